"""HDFS as a store of tables: what keeps its writers apart, racing commits of several processes, and Spark beside it.

What all stores have in common is in `test_stores.py`. MiniDFS, one NameNode and one DataNode, plays the cluster.
"""

import subprocess
import sys
import threading
from collections import Counter

import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse import load_topic
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import ledger_of
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.leases import conditional
from millrace_pipelines.warehouse.stores.options import use_store_options
from millrace_pipelines.warehouse.tables.find import table_locations
from millrace_pipelines.warehouse.tables.spark_table import spark_table
from millrace_support.stores.stand_ins import missing, started

FS = OsFileSystem()
NAME = "hdfs (MiniDFS)"
RACERS = 8
COMMITS = 8
COMMITTER = """
import sys
import pyarrow as pa
from deltalake import write_deltalake
location, writer, commits, options = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), eval(sys.argv[4])
for number in range(commits):
    rows = pa.table({"writer": [writer], "number": [number]})
    write_deltalake(location, rows, mode="append", storage_options=options)
    print(writer, number, flush=True)
"""


@pytest.fixture(scope="module")
def hdfs():
    reason = missing(NAME)
    if reason is not None:
        pytest.skip(reason)
    with started(NAME) as running:
        use_store_options({running.address: running.options})
        yield running
        use_store_options({})


@pytest.fixture
def spark(warm_loads):
    with spark_session("tests", local_master(2)) as session:
        yield session


def race(act):
    """What each of several threads, which begin together, returns of `act(number)`, or the type of its error."""
    together, said = threading.Barrier(RACERS), [None] * RACERS

    def run(number):
        together.wait()
        try:
            said[number] = act(number)
        except (FileExistsError, FileNotFoundError) as error:
            said[number] = type(error)

    racers = [threading.Thread(target=run, args=(number,)) for number in range(RACERS)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    return said


@pytest.mark.parametrize("turn", range(5))
def test_of_those_that_create_one_file_one_does(hdfs, turn):
    store = store_at(f"{hdfs.address}/racing/created", FS)
    said = race(lambda number: store.create(f"{turn}", b"%d" % number))
    [winner] = [number for number in range(RACERS) if said[number] is None]
    assert store.read(f"{turn}") == b"%d" % winner
    assert Counter(said) == {None: 1, FileExistsError: RACERS - 1}
    assert [name for name in store.names() if "#" in name] == []


@pytest.mark.parametrize("turn", range(5))
def test_of_those_that_replace_one_version_one_does(hdfs, turn):
    files = conditional(store_at(f"{hdfs.address}/racing/updated", FS))
    name = f"_running/{turn}.lease"
    files.create(name, b"before")
    known = files.fetch(name)
    said = race(lambda number: files.update(name, b"%d" % number, known.facts))
    [winner] = [number for number in range(RACERS) if said[number] is None]
    assert files.fetch(name).content == b"%d" % winner
    assert Counter(said) == {None: 1, FileExistsError: RACERS - 1}


def test_a_version_that_was_replaced_twice_can_t_be_replaced_by_who_read_it(hdfs):
    files = conditional(store_at(f"{hdfs.address}/late/updated", FS))
    files.create("_running/x.lease", b"0")
    late = files.fetch("_running/x.lease")
    for content in (b"1", b"2"):
        files.update("_running/x.lease", content, files.fetch("_running/x.lease").facts)
    with pytest.raises(FileExistsError, match="a later version is there"):
        files.update("_running/x.lease", b"late", late.facts)
    assert files.fetch("_running/x.lease").content == b"2"
    assert set(files.facts_below("_running")) == {"_running/x.lease"}


def test_nothing_is_made_again_of_a_file_that_is_gone(hdfs):
    files = conditional(store_at(f"{hdfs.address}/gone/updated", FS))
    files.create("_running/x.lease", b"0")
    late = files.fetch("_running/x.lease")
    files.remove("_running/x.lease")
    with pytest.raises(FileNotFoundError):
        files.update("_running/x.lease", b"late", late.facts)
    assert files.fetch("_running/x.lease") is None
    assert files.facts_below("_running") == {}


def test_commits_of_delta_rs_that_race_are_each_there_once(hdfs):
    location = f"{hdfs.address}/engines/raced"
    command = [sys.executable, "-c", COMMITTER, location]
    first = [*command, "0", "1", repr(hdfs.options)]
    subprocess.run(first, check=True, capture_output=True, timeout=400)
    racers = [
        subprocess.Popen([*command, f"{one}", f"{COMMITS}", repr(hdfs.options)], stdout=subprocess.PIPE, text=True)
        for one in (1, 2, 3)
    ]
    said = "0 0\n" + "".join(racer.communicate(timeout=400)[0] for racer in racers)
    rows = Table.load(location, FS).dataset().to_table().to_pylist()
    assert len(said.splitlines()) == 3 * COMMITS + 1
    assert Counter(f"{row['writer']} {row['number']}" for row in rows) == Counter(said.splitlines())


def test_a_topic_is_loaded_by_its_namenode_s_port_and_read_by_spark(hdfs, broker, spark):
    below = f"hdfs://127.0.0.1:{hdfs.port}/warehouse/loads"
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("events", 2)
        SyncProducer(cluster).send("events", 1, [NewRecord(b"%d" % number) for number in range(100)])
    options = LoadOptions(topic="events", table=f"{below}/events", bootstrap=broker.bootstrap, max_records_per_task=40)
    assert load_topic(options, spark=spark).rows == 100
    assert ledger_of(Table.load(f"{below}/events", FS)).next_offset(1) == 100
    assert table_locations(below) == [f"{below}/events"]
    for location in (f"{below}/events", f"{hdfs.address}/loads/events"):
        rows = spark_table(spark, location).orderBy("offset").collect()
        assert [bytes(row.value) for row in rows] == [b"%d" % number for number in range(100)]
