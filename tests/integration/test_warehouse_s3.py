"""Tables in a bucket of S3, whose part moto's server plays: data files by pyarrow, commits by conditional put."""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from urllib.request import Request, urlopen

import dagster as dg
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.clock import SystemClock
from millrace.errors import WarehouseError
from millrace.fs import OsFileSystem
from millrace.ports import free_port
from millrace.records.record import NewRecord
from millrace_ops.cli.app import app
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.declaration.attributes import Check
from millrace_pipelines.defs.maintenance import table_upkeep_asset
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.spark.errors import TopicRecreatedError
from millrace_pipelines.warehouse import preview_load, preview_reload
from millrace_pipelines.warehouse.delta.commits import LEDGER_FILE
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import LeaseLostError, StaleLedgerError
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, swap
from millrace_pipelines.warehouse.ledger.plan import Selection
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.maintenance import vacuum
from millrace_pipelines.warehouse.payload.outcome import DEAD_LETTER_SCHEMA
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.leases import lease, running
from millrace_pipelines.warehouse.stores.store import LINEAGE_FOLDER, dead_letters_dir
from millrace_pipelines.warehouse.stores.timed_leases import TimedLeases
from millrace_pipelines.warehouse.table.files import remove_files_of_load, write_file
from millrace_pipelines.warehouse.tables.query import query
from millrace_pipelines.warehouse.tables.spark_table import s3a_options
from millrace_support.command_runner import CommandRunner
from millrace_support.declared import LOAD_ALL, cluster_of, definitions_of
from millrace_support.loads import Loads
from millrace_support.small_tables import find_tables

TIMEOUT_S = 240
S3_JARS = Path(__file__).parents[2] / ".peers" / "spark-s3" / "libs"
FS = OsFileSystem()
PROPERTIES = {"millrace.topic": "events", "millrace.topicId": "id"}


@pytest.fixture(scope="module")
def s3():
    """The endpoint of a server with the bucket `warehouse`."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        deadline = time.monotonic() + 240
        while True:
            try:
                urlopen(Request(f"{endpoint}/warehouse", method="PUT"), timeout=60).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield endpoint
        server.terminate()


@pytest.fixture
def environment(s3, monkeypatch):
    names = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    for name, value in (names | {"AWS_ENDPOINT_URL": s3}).items():
        monkeypatch.setenv(name, value)


def make(location):
    return Table.load_or_create(location, FS, schema=ENVELOPE_SCHEMA, name="events", configuration=PROPERTIES)


def commit(table, offset):
    columns = {name: pa.nulls(1, ENVELOPE_SCHEMA.field(name).type) for name in ENVELOPE_SCHEMA.names}
    columns |= {"partition": pa.array([0], pa.int32()), "offset": pa.array([offset], pa.int64())}
    file = write_file(table.location, f"load{offset}", pa.table(columns, schema=ENVELOPE_SCHEMA), FS)
    expected, transactions = swap(ledger_of(table), {0: LedgerEntry(0, offset + 1)})
    return table.commit([file], expected=expected, transactions=transactions, lineage={"ranges": [], "lost": []})


def test_of_two_commits_to_a_bucket_one_is_made(environment):
    location = "s3://warehouse/commits/events"
    first, second = make(location), make(location)
    assert commit(first, 0) == 1
    with pytest.raises(StaleLedgerError):
        commit(second, 0)
    assert commit(make(location), 1) == 2
    table = make(location)
    assert ledger_of(table).partitions == {0: LedgerEntry(0, 2)}
    rows = ds.dataset(table.files(), filesystem=table.filesystem).to_table(columns=["offset"])
    assert sorted(rows.column("offset").to_pylist()) == [0, 1]
    remove_files_of_load(location, "load0", FS)
    left = [name for name in table.file_names() if "load1" in name]
    names = store_at(location, FS).names()
    assert [name for name in names if not name.startswith(LINEAGE_FOLDER)] == [LEDGER_FILE, *left]
    assert sum(name.startswith(LINEAGE_FOLDER) for name in names) == 2


def test_a_topic_is_loaded_into_a_bucket(environment, broker):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("events", 2)
        SyncProducer(cluster).send("events", 1, [NewRecord(b"%d" % number) for number in range(100)])
    command = [
        *(sys.executable, "-m", "millrace_ops", "warehouse", "load", "events", "--json", "--master", "local[2,3]"),
        *("--table", "s3://warehouse/loads/events", "--bootstrap", broker.bootstrap, "--max-records-per-task", "40"),
    ]
    result = subprocess.run(command, capture_output=True, timeout=400, check=False, env=os.environ)
    assert result.returncode == 0, result.stderr.decode()[-4000:]
    assert json.loads(result.stdout)["rows"] == 100
    table = Table.load("s3://warehouse/loads/events", FS)
    rows = ds.dataset(table.files(), filesystem=table.filesystem).to_table().sort_by("offset")
    assert rows.column("value").to_pylist() == [b"%d" % number for number in range(100)]
    assert ledger_of(table).next_offset(1) == 100


def test_dry_runs_write_nothing_into_a_bucket(environment, broker):
    location = "s3://warehouse/dry/events"
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("dry", 1)
        SyncProducer(cluster).send("dry", 0, [NewRecord(b"v")] * 3)
    options = LoadOptions(topic="dry", table=location, bootstrap=broker.bootstrap, accept_recreated_topic=True)
    before = objects()
    assert preview_load(options).changes.created == (location,)
    assert objects() == before
    properties = {"millrace.topic": "dry", "millrace.topicId": "of another topic"}
    table = Table.load_or_create(location, FS, schema=ENVELOPE_SCHEMA, name="dry", configuration=properties)
    commit(table, 0)
    before = objects()
    would = preview_load(options)
    assert (would.version, would.ranges, would.new_ledger is None) == (1, ((0, 0, 3),), False)
    with pytest.raises(TopicRecreatedError):
        preview_reload(replace(options, accept_recreated_topic=False), Selection())
    assert erase(location, [b"k"], FS, dry_run=True).files == 0
    assert vacuum(location, FS, retention_hours=24, dry_run=True).files == ()
    assert objects() == before


def objects():
    """Everything in the bucket, with sizes and times."""
    files = store_at("s3://warehouse/any", FS).filesystem.get_file_info(pafs.FileSelector("warehouse", recursive=True))
    return sorted((info.path, info.size, info.mtime_ns) for info in files)


def keys_in(warehouse):
    """The keys in every data file below a folder of the bucket, whether a table names it or not, by table."""
    filesystem, found = store_at(warehouse, FS).filesystem, {}
    for info in filesystem.get_file_info(pafs.FileSelector(warehouse.removeprefix("s3://"), recursive=True)):
        if info.extension == "parquet" and "_delta_log" not in info.path:
            rows = ds.dataset(info.path, filesystem=filesystem).to_table(columns=["key"])
            found.setdefault(info.path.split("/")[2], set()).update(rows.column("key").to_pylist())
    return found


def erased(warehouse, instance, monkeypatch, **config):
    """The metadata of the event that the job of erasure reports."""
    monkeypatch.setattr("millrace_pipelines.defs.repairs.Check", [Check.DEAD_LETTERS])  # which needs no broker
    millrace = MillraceResource(bootstrap="", admin_url="", warehouse_dir=warehouse, schema_dir="", master="")
    job = definitions_of(cluster_of(LOAD_ALL, "events"), millrace).resolve_job_def("erase_millrace")
    given = {"ops": {"millrace_erase_keys": {"config": {"topics": ["events"], "keys": ["UA"], **config}}}}
    result = job.execute_in_process(given, instance=instance, resources={"millrace": millrace})
    would = [event.asset_observation_data.asset_observation for event in result.get_asset_observation_events()]
    [told] = [*result.asset_materializations_for_node("millrace_erase_keys"), *would]
    return {name: value.value for name, value in told.metadata.items()}


def test_an_erasure_in_a_bucket_takes_the_bytes_along(environment, monkeypatch):
    warehouse = "s3://warehouse/erased"
    location = f"{warehouse}/events"
    loads = Loads(location)
    loads.load((0, 3), [0, 1], dead=[2], values={"key": [b"UA", b"AA"]})
    letters = dead_letters_dir(location)
    letter = loads.write(letters, [2], schema=DEAD_LETTER_SCHEMA, values={"key": [b"UA"]})
    Table.load(letters, FS).commit([letter], expected={}, transactions={}, lineage={"kind": "other"})
    assert keys_in(warehouse) == {"events": {b"UA", b"AA"}, "events__dead_letters": {b"UA", None}}

    with dg.DagsterInstance.ephemeral() as instance:
        done = erased(warehouse, instance, monkeypatch)
    assert (done["rows erased"], done["dead letters erased"], done["files removed"]) == (1, 1, 2)
    assert keys_in(warehouse) == {"events": {b"AA"}, "events__dead_letters": {None}}


def test_what_a_running_operation_writes_stays_until_it_ends(environment):
    location = "s3://warehouse/leased/events"
    loads = Loads(location)
    loads.load((0, 2), [0, 1], values={"key": [b"UA", b"AA"]})
    with lease(location, "running", FS) as held:
        written = write_file(location, "running", pa.table(make(location).dataset().to_table()), FS)
        loads.write(location, [2], values={"key": [b"UA"]})  # of an operation that has ended
        assert [one.operation_id for one in running(location, FS)] == ["running"]
        before = objects()
        would = vacuum(location, FS, retention_hours=0, dry_run=True)
        assert objects() == before
        done = vacuum(location, FS, retention_hours=0)
        assert (len(would.files), len(done.files), done.running) == (1, 1, 1)
        held.confirm()
    assert vacuum(location, FS, retention_hours=0).files == (written.name,)
    assert keys_in("s3://warehouse/leased") == {"events": {b"UA", b"AA"}}


def test_an_operation_that_is_taken_for_dead_commits_nothing(environment):
    """Its commit may be on its way when its lease is taken over: the fence, an empty commit, is there before it."""
    location = "s3://warehouse/fenced/events"
    late, letters = make(location), make(dead_letters_dir(location))
    leases = TimedLeases(store_at(location, FS), SystemClock(), lease_ms=0)
    with TimedLeases(store_at(location, FS), SystemClock()).hold("dead") as held:
        file = write_file(location, "dead", pa.table({"value": [b"v"]}), FS)
        while not leases.ask(dry_run=False).ended:  # the store's times are whole seconds
            pass
        for table in (make(location), make(dead_letters_dir(location))):
            table.fence()
        with pytest.raises(LeaseLostError, match="could not renew its lease"):
            held.confirm()
    for table in (late, letters):
        assert table.commit([file] if table is late else [], expected={}, transactions={}, lineage={"kind": "x"}) == 2


def test_tables_of_a_bucket_are_found(environment):
    for topic in ("flights", "deep/weather"):
        commit(make(f"s3://warehouse/found/{topic}"), 0)
    make("s3://warehouse/found/flights__dead_letters")
    assert find_tables("s3://warehouse/found/") == ["s3://warehouse/found/deep/weather", "s3://warehouse/found/flights"]
    assert find_tables("s3://warehouse/found/flights") == ["s3://warehouse/found/flights"]
    assert set(find_tables("s3://warehouse")) >= set(find_tables("s3://warehouse/found"))
    shown = CommandRunner().invoke(app, ["warehouse", "tables", "s3://warehouse/found", "--json"], prog_name="millrace")
    assert [(one["location"], one["rows"]) for one in json.loads(shown.stdout)] == [
        ("s3://warehouse/found/deep/weather", 1),
        ("s3://warehouse/found/flights", 1),
    ]
    told = CommandRunner().invoke(app, ["warehouse", "ledger", "s3://warehouse/found/flights"], prog_name="millrace")
    assert told.stdout.splitlines()[-1].split() == ["0", "0", "1", "1"]
    with query("s3://warehouse/found", "SELECT count(*) AS rows FROM weather, flights") as rows:
        assert rows.read_all().to_pylist() == [{"rows": 1}]
    with pytest.raises(WarehouseError, match="ftp://bucket: tables lie in a folder"):
        find_tables("ftp://bucket")


def test_tables_of_a_bucket_are_kept(environment):
    """Upkeep as Dagster runs it compacts and writes checkpoints in a bucket as in a folder."""
    kept = "s3://warehouse/kept"
    for number in range(12):
        commit(make(f"{kept}/events"), number)
    commit(make(f"{kept}/deep/weather"), 0)
    make(f"{kept}/events__dead_letters")
    metadata = upkeep_metadata(kept)
    assert metadata["files compacted"].value == 12
    rows = {record.data["table"]: record.data for record in metadata["tables"].records}
    assert set(rows) == {f"{kept}/deep/weather", f"{kept}/events", f"{kept}/events__dead_letters"}
    assert rows[f"{kept}/events"]["checkpoint"] == 13
    assert len(make(f"{kept}/events").files()) == 1
    assert upkeep_metadata("s3://warehouse/empty")["files compacted"].value == 0


def upkeep_metadata(warehouse):
    millrace = MillraceResource(bootstrap="", admin_url="", warehouse_dir=warehouse, schema_dir="", master="")
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([table_upkeep_asset("lake")], instance=instance, resources={"lake": millrace})
        [materialization] = result.asset_materializations_for_node("lake__table_upkeep")
        return materialization.metadata


# A program of its own, since a JVM takes jars in at its start only.
READS_IN_SPARK = """
import sys
from millrace.errors import SetupError
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse import spark_table

jars, location = sys.argv[1:]
with spark_session("s3", local_master(1), {"spark.jars": jars} if jars else {}) as spark:
    try:
        print(sorted(row.offset for row in spark_table(spark, location).collect()))
    except SetupError as error:
        print(error)
"""


def read_in_spark(location, jars):
    command = [sys.executable, "-c", READS_IN_SPARK, jars, location]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.strip()


def test_spark_says_which_jar_it_lacks_for_a_bucket(environment):
    table = make("s3://warehouse/lacking")
    commit(table, 0)
    package = r"org\.apache\.hadoop:hadoop-aws:3\.\d+\.\d+"
    assert re.fullmatch(
        rf"Spark lacks its client of S3: start the session with spark\.jars\.packages={package}",
        read_in_spark("s3://warehouse/lacking", ""),
    )


@pytest.mark.skipif(not any(S3_JARS.glob("*.jar")), reason="`make peers` brings the jars of Spark's client of S3")
def test_spark_reads_a_table_in_a_bucket(environment):
    table = make("s3://warehouse/in spark")
    for offset in range(3):
        commit(table, offset)
    assert read_in_spark("s3://warehouse/in spark", ",".join(map(str, S3_JARS.glob("*.jar")))) == "[0, 1, 2]"


def test_endpoint_and_region_of_the_environment_are_those_of_spark():
    assert s3a_options({}) == {}
    assert s3a_options({"AWS_REGION": "eu-1", "AWS_SECRET_ACCESS_KEY": "hush"}) == {"fs.s3a.endpoint.region": "eu-1"}
    assert s3a_options({"AWS_ENDPOINT_URL": "http://minio:9000"}) == {
        "fs.s3a.endpoint": "http://minio:9000",
        "fs.s3a.path.style.access": "true",
    }
