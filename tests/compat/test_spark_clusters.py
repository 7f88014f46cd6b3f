"""A standalone cluster whose workers share the store with the driver, and nothing else: no user, folder or Python."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import psutil
import pytest
from deltalake import DeltaTable, write_deltalake

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace.security.client_security import ClientSecurity
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.kafka_broker import find_kafka
from millrace_pipelines.machine import CLOCK, DISK
from millrace_pipelines.spark.session import spark_session
from millrace_pipelines.warehouse.choices import Mode
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.errors import ExecutorSetupError, FolderNotSharedError
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.ledger.plan import Selection
from millrace_pipelines.warehouse.load.load import load_topic, reload_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.maintenance import compact, vacuum
from millrace_pipelines.warehouse.spark_tasks import tasks_of
from millrace_support.certificates import PASSWORD as STORE_PASSWORD
from millrace_support.lake_contents import rows_at, stray_files
from millrace_support.secured_kafka import PASSWORD, SecuredKafka
from millrace_support.spark import SparkCluster, SparkConnect
from millrace_support.spark_machines import (
    BARE,
    ENVIRONMENT,
    WORK,
    Machine,
    shared_folder,
    without_millrace,
)
from millrace_support.warm_jvm import without_warm_jvm

RECORDS = 2_000
PYTHON = f"{ENVIRONMENT}/bin/python"
SECRETS = (PASSWORD, STORE_PASSWORD)

pytestmark = [pytest.mark.usefixtures("shared_with_group"), pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def topic(tmp_path_factory):
    """A broker with the topics `events`, of two partitions, and `keyed`, in which each key comes four times."""
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        with Cluster(broker.bootstrap) as cluster:
            for name in ("events", "keyed"):
                Admin(cluster).create_topic(name, 2)
            for partition in (0, 1):
                values = [b"%d %d" % (partition, number) for number in range(RECORDS // 2)]
                SyncProducer(cluster).send("events", partition, [NewRecord(value) for value in values])
                keyed = [
                    NewRecord(value, key=b"%d %d" % (partition, number % 250)) for number, value in enumerate(values)
                ]
                SyncProducer(cluster).send("keyed", partition, keyed)
        yield broker.bootstrap


class Lake:
    """A cluster of two machines, a session on it, and the folder that they share with the driver."""

    def __init__(self, folder, machines, cluster, session):
        self.folder, self.machines, self.cluster, self.session = folder, machines, cluster, session
        self.store, self.events = folder / "store", folder / "events"

    def options(self, topic, bootstrap, name=None, **others):
        return LoadOptions(
            topic=topic,
            table=str(self.store / (name or topic)),
            bootstrap=bootstrap,
            max_records_per_task=250,
            **others,
        )


@pytest.fixture(scope="module")
def lake(tmp_path_factory, packed_python):
    folder = tmp_path_factory.mktemp("lake")
    store, other, events = shared_folder(folder / "store"), folder / "other", folder / "events"
    other.mkdir()
    events.mkdir()
    _, unpacked = packed_python
    mounts = {ENVIRONMENT: unpacked, BARE: without_millrace(unpacked, folder / "bare")}
    mounts[str(folder / "unshared")] = other  # of this path the driver has another folder
    machines = [Machine(folder / f"machine-{one}", one, shared=[store], mounts=mounts) for one in (0, 1)]
    settings = {
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",  # one of each machine: the others are for what starts a session of its own
        "spark.pyspark.python": PYTHON,
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
    }
    with (
        SparkCluster(folder / "cluster", cores=2, machines=machines) as cluster,
        without_warm_jvm(),
        spark_session("machines", cluster.master, settings) as session,
    ):
        yield Lake(folder, machines, cluster, session)


@pytest.fixture
def python_of_executors(lake):
    """Returns a function that gives the session's next tasks another Python."""
    context = lake.session.sparkContext

    def choose(path):
        context.pythonExec = path

    yield choose
    context.pythonExec = PYTHON


def test_workers_see_neither_this_clone_nor_another_s_home(lake):
    for worker, machine in zip(lake.cluster.workers, lake.machines, strict=True):
        root = Path(f"/proc/{worker.pid}/root")
        assert root.resolve() == machine.root.resolve()
        assert not (machine.root / str(Path(__file__))[1:]).exists()
    assert len(executors_users(lake) - {0}) == 2


def written_by(table):
    """Returns the users that the table's data files belong to."""
    return {path.stat().st_uid for path in Path(table).rglob("*.parquet") if "_delta_log" not in path.parts}


def executors_users(lake):
    return {psutil.Process(worker.pid).uids().real for worker in lake.cluster.workers}


def test_each_offset_is_loaded_once_and_again_by_a_reload(lake, topic):
    options = lake.options("events", topic)
    expected = {(one, n, b"%d %d" % (one, n)): 1 for one in (0, 1) for n in range(RECORDS // 2)}
    assert load_topic(options, spark=lake.session).rows == RECORDS
    assert rows_at(options.table, "partition", "offset", "value") == expected
    assert reload_topic(options, Selection(from_offset=100, until_offset=700), spark=lake.session).rows == 1_200
    assert rows_at(options.table, "partition", "offset", "value") == expected
    assert audit(options.table, bootstrap=topic) == []
    vacuum(options.table, DISK, retention_hours=0)
    assert stray_files(options.table) == set()
    assert written_by(options.table) <= executors_users(lake)


def test_each_key_is_upserted_with_its_newest_value(lake, topic):
    options = lake.options("keyed", topic, mode=Mode.UPSERT, max_records_per_run=1_000)
    for _ in range(2):
        load_topic(options, spark=lake.session)
    newest = {(b"%d %d" % (one, n % 250), b"%d %d" % (one, n)): 1 for one in (0, 1) for n in range(750, 1_000)}
    assert rows_at(options.table, "key", "value") == newest
    assert audit(options.table, bootstrap=topic) == []
    vacuum(options.table, DISK, retention_hours=0)
    assert stray_files(options.table) == set()
    assert written_by(options.table) <= executors_users(lake)


OVER_CONNECT = """
import json, sys
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
load_topic(LoadOptions(**json.loads(sys.argv[1])))
"""


@pytest.mark.parametrize(("name", "mode"), [("events", Mode.APPEND), ("keyed", Mode.UPSERT)])
def test_a_server_of_spark_connect_gives_executors_the_archive(  # noqa: PLR0917
    lake, topic, packed_python, tmp_path, name, mode
):
    archive, _ = packed_python
    settings = {"spark.executor.memory": "512m", "spark.cores.max": "2"}
    table = str(lake.store / f"{name}-connect")
    with SparkConnect(tmp_path / "connect", master=lake.cluster.master, settings=settings) as server:
        given = {"topic": name, "table": table, "bootstrap": topic, "mode": mode, "master": server.address}
        given |= {"max_records_per_task": 250, "max_records_per_run": 1_000}
        python = {"spark.archives": f"{archive}#millrace", "spark.pyspark.python": "millrace/bin/python"}
        given["spark_settings"] = python
        for _ in range(2):  # the second merges into files of the first
            subprocess.run([sys.executable, "-c", OVER_CONNECT, json.dumps(given)], check=True)
    first = 0 if mode is Mode.APPEND else 750
    expected = {(one, n, b"%d %d" % (one, n)): 1 for one in (0, 1) for n in range(first, 1_000)}
    assert rows_at(table, "partition", "offset", "value") == expected
    assert audit(table, bootstrap=topic) == []
    assert written_by(table) <= executors_users(lake)


def test_a_table_is_compacted_and_erased_from_by_executors(lake, topic):
    options, tasks = lake.options("keyed", topic, "appended"), tasks_of(lake.session, "rewrite")
    load_topic(options, spark=lake.session)
    before = rows_at(options.table, "partition", "offset", "key", "value")
    assert compact(options.table, DISK, CLOCK, tasks=tasks).files_before == 8
    assert rows_at(options.table, "partition", "offset", "key", "value") == before
    erase(options.table, [b"0 7", b"1 9"], DISK, tasks=tasks)
    kept = {row: times for row, times in before.items() if row[2] not in (b"0 7", b"1 9")}
    assert rows_at(options.table, "partition", "offset", "key", "value") == kept
    assert audit(options.table, bootstrap=topic) == []
    vacuum(options.table, DISK, retention_hours=0)
    assert stray_files(options.table) == set()
    assert written_by(options.table) <= executors_users(lake)


def audited(lake, options, events):
    """Runs the command that audits a table on the cluster; returns its status, its lines, and where its tasks ran."""
    settings = [f"spark.pyspark.python={PYTHON}", "spark.executor.memory=512m", "spark.eventLog.enabled=true"]
    settings += [f"spark.eventLog.dir={events.as_uri()}", "spark.eventLog.compress=false"]
    # No job begins on one machine alone.
    settings += ["spark.cores.max=2", "spark.scheduler.minRegisteredResourcesRatio=1.0"]
    settings += ["spark.scheduler.maxRegisteredResourcesWaitingTime=300s"]
    command = [sys.executable, "-m", "millrace_ops", "warehouse", "audit", options.table, "--master"]
    command += [lake.cluster.master, "--bootstrap", options.bootstrap, *(f"--conf={one}" for one in settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for path in events.rglob("events_*") for line in path.read_text().splitlines()]
    ended = [json.loads(line) for line in lines if '"SparkListenerTaskEnd"' in line]
    return done.returncode, done.stdout.splitlines(), {one["Task Info"]["Host"] for one in ended}


def test_a_table_is_audited_by_executors_of_the_command_s_master(lake, topic, tmp_path):
    options = lake.options("events", topic, "audited")
    load_topic(options, spark=lake.session)
    places = [tmp_path / name for name in ("whole", "doubled")]
    for one in places:
        one.mkdir()
    hosts = {machine.address for machine in lake.machines}
    assert audited(lake, options, places[0]) == (0, [f"{options.table}: complete, each offset once"], hosts)
    doubled = DeltaTable(options.table).to_pyarrow_table(filters=[("partition", "=", 1), ("offset", "=", 7)])
    write_deltalake(options.table, doubled, mode="append")
    found = audit(options.table, bootstrap=topic)
    assert found
    assert audited(lake, options, places[1]) == (1, found, hosts)


LACKING = {
    f"{BARE}/bin/python": "loading events: the Python of Spark's executors has no millrace_pipelines, and needs the "
    "driver's version of millrace-log[tables,spark]; `millrace warehouse pack` makes an archive that brings it",
    "/opt/none/python": "loading events: Spark's executors have no program /opt/none/python, which",
}


@pytest.mark.parametrize(("python", "told"), LACKING.items())
def test_what_executors_lack_is_told(lake, topic, python_of_executors, python, told):
    options = lake.options("events", topic, f"lacking-{len(python)}")
    python_of_executors(python)
    with pytest.raises(ExecutorSetupError, match=f"^{re.escape(told)}"):
        load_topic(options, spark=lake.session)
    assert list(Path(options.table).rglob("*.parquet")) == []
    python_of_executors(PYTHON)
    assert load_topic(options, spark=lake.session).rows == RECORDS


def test_another_folder_of_the_same_path_is_told(lake, topic):
    options = replace(lake.options("events", topic), table=str(lake.folder / "unshared" / "events"))
    told = (
        rf"loading events: Spark's executor on worker-[01] does not see {options.table}; all executors need the table's"
    )
    with pytest.raises(FolderNotSharedError, match=f"^{told}"):
        load_topic(options, spark=lake.session)
    assert list((lake.folder / "other").rglob("*.parquet")) == []


def test_a_folder_that_executors_may_not_write_to_is_told(lake, topic):
    options = lake.options("events", topic, "closed/events")
    closed = lake.store / "closed"
    closed.mkdir()
    closed.chmod(0o755)
    (closed / "events").mkdir(mode=0o755)
    (closed / "events").chmod(0o755)
    with pytest.raises(FolderNotSharedError, match=r"^loading events: Spark's executor on worker-[01] may not write: "):
        load_topic(options, spark=lake.session)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    with SecuredKafka(find_kafka("4.1"), tmp_path_factory.mktemp("kafka")) as started:
        security = ClientSecurity.from_properties(started.passwords("PLAIN"))
        with Cluster(started.address("PASSWORDS"), security=security) as cluster:
            Admin(cluster).create_topic("flights", 2)
            for partition in (0, 1):
                values = [NewRecord(b"%d" % number) for number in range(RECORDS // 2)]
                SyncProducer(cluster).send("flights", partition, values)
        yield started


WAYS = {
    "passwords": ("PASSWORDS", lambda kafka: kafka.passwords("SCRAM-SHA-512")),
    "certificates": ("MUTUAL", lambda kafka: kafka.mutual()),
}


def shown_by(lake):
    """Returns by its place all that Spark shows: pages, plans, logs, and what lies on the disks of its machines."""
    context, shown = lake.session.sparkContext, {}
    for page in ("environment", "jobs", "stages", "sql?details=true", "allexecutors"):
        address = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/{page}"
        shown[page] = httpx.get(address, timeout=300).raise_for_status().text
    files = [path for one in (lake.events, lake.folder / "cluster", lake.store) for path in one.rglob("*")]
    files += [
        path for one in lake.machines for folder in (WORK, "/tmp") for path in Path(f"{one.root}{folder}").rglob("*")
    ]
    return shown | {str(path): path.read_bytes().decode("latin-1") for path in files if path.is_file()}


def test_a_client_s_file_that_executors_lack_is_told(lake, kafka):
    file = kafka.file(kafka.passwords("PLAIN"))
    options = lake.options("flights", kafka.address("PASSWORDS"), "flights", client_config=str(file))
    told = f"Spark's executors can't read what secures the connection ({file}: No such file or directory): put it there"
    with pytest.raises(ExecutorSetupError, match=re.escape(told)):
        load_topic(options, spark=lake.session)


@pytest.mark.parametrize("way", WAYS)
def test_what_the_driver_sends_of_a_client_s_secrets_is_shown_nowhere(lake, kafka, way):
    listener, properties = WAYS[way]
    sent = f"send:{kafka.file(properties(kafka))}"
    options = lake.options("flights", kafka.address(listener), f"flights-{way}", client_config=sent)
    assert load_topic(options, spark=lake.session).rows == RECORDS
    assert audit(options.table, bootstrap=options.bootstrap, client_config=sent) == []
    key = Path(kafka.client.key_store_pem).read_text().splitlines()[2]
    shown = shown_by(lake)
    assert "SparkListenerJobStart" in "".join(shown.values())
    assert "spark.pyspark.python" in shown["environment"]
    assert [place for place, text in shown.items() for secret in (*SECRETS, key) if secret in text] == []
