"""SIGKILL at random points of whatever takes part in loading, while it goes on: no duplicate, no gap.

Two loaders race for one table, as clients of one Spark Connect server whose application runs on a standalone cluster
of two workers; a producer writes all the time. Each round kills one of them (a loader, a worker with its executors, an
executor alone, the broker) at a random moment, and starts it again. A killed loader's job goes on in the cluster as a
zombie. The table is audited while all of this runs; at the end it is held against the log, record by record.

A kill may cost the log its end, as a power cut does, and new records take the offsets of lost ones that the table has.
No load takes them for what is already there.
"""

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import psutil
import pyarrow.dataset as ds
import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.errors import MillraceError
from millrace.fs import OsFileSystem
from millrace.records.batch import walk
from millrace.records.record import NewRecord, decode_records
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.spark.brokers import TopicSource, log_offsets
from millrace_pipelines.spark.errors import LogTruncatedError
from millrace_pipelines.spark.read import read_range
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.ledger.ledger import former_ledgers, read_ledger
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_support.spark import SparkCluster, SparkConnect

PARTITIONS = (0, 1, 2)
KILLS = 200
LONGEST_PAUSE_S = 3.0
PATIENCE_S = 1200
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.deploy.maxExecutorRetries": "-1",
}


class Loader:
    """A process that loads for ever, started again after each kill; its lines are in its log."""

    def __init__(self, options, log):
        self.options, self.log = options, log
        self.start()

    def start(self):
        script = str(Path(__file__).with_name("load_forever.py"))
        arguments = {"topic": "events", "table": self.options.table, "bootstrap": self.options.bootstrap}
        command = [sys.executable, script, json.dumps(arguments | {"master": self.options.master})]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def restart(self):
        self.kill()
        self.start()


@contextmanager
def producing(bootstrap):
    """Writes numbered records until the end; what a dead broker did not acknowledge may be there twice, or not."""
    done = threading.Event()

    def run():
        number = 0
        while not done.wait(0.05):
            try:
                with Cluster(bootstrap, timeout_s=5) as cluster:
                    producer = SyncProducer(cluster)
                    while not done.wait(0.05):
                        values = [NewRecord(b"%d %d" % (number, each) + b"." * 80) for each in range(50)]
                        producer.send("events", PARTITIONS[number % len(PARTITIONS)], values)
                        number += 1
            except MillraceError:
                continue

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def kill_an_executor(cluster):
    """Kills the JVM of one executor; its worker stays, and starts another executor."""
    below = [child for worker in cluster.workers for child in psutil.Process(worker.pid).children(recursive=True)]
    executors = [each for each in below if "CoarseGrainedExecutorBackend" in " ".join(cmdline(each))]
    if executors:
        with suppress(psutil.NoSuchProcess):  # it may end by itself
            random.choice(executors).kill()


def cmdline(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def restart_worker(worker):
    worker.kill()
    worker.start()


def restart_broker(broker):
    broker.kill()
    broker.start()


def differences(options, lost=()):
    """Returns the (partition, offset) where the table differs from log and `lost`, and how many records the log has."""
    files = Table.load(options.table, OsFileSystem()).files()
    table = Counter()
    for batch in ds.dataset(files).to_batches(columns=["partition", "offset", "value"]):
        table.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    source = TopicSource(options.bootstrap, "events")
    log = Counter(lost)
    for partition, offsets in log_offsets(source, PARTITIONS).items():
        for block in read_range(source, partition, offsets.start_offset, offsets.end_offset):
            values = block.records.column("value").to_pylist()
            log.update(zip([partition] * len(values), block.records.column("offset").to_pylist(), values, strict=True))
    return {key[:2] for key in (table - log) | (log - table)}, log.total() - len(lost)


@pytest.mark.soak(rounds=4, minutes=60)
@pytest.mark.timeout(4800)
@pytest.mark.usefixtures("warm_processes")
def test_whatever_is_killed_the_table_has_each_offset_once(rounds, tmp_path, record_property):
    killed = Counter()
    with (
        BrokerProcess(tmp_path / "broker") as broker,
        SparkCluster(tmp_path / "cluster", workers=2) as spark_cluster,
        SparkConnect(tmp_path / "connect", master=spark_cluster.master, settings=SETTINGS) as connect,
    ):
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("events", len(PARTITIONS))
        options = LoadOptions(
            topic="events", table=str(tmp_path / "table"), bootstrap=broker.bootstrap, master=connect.address
        )
        loaders = [Loader(options, tmp_path / f"loader-{number}.log") for number in (0, 1)]
        victims = {
            "loader": lambda: random.choice(loaders).restart(),
            "worker": lambda: restart_worker(random.choice(spark_cluster.workers)),
            "executor": lambda: kill_an_executor(spark_cluster),
            "broker": lambda: restart_broker(broker),
        }
        try:
            with producing(broker.bootstrap):
                await_commits(options.table, 1)
                for number in islice(rounds, KILLS):
                    time.sleep(random.uniform(0, LONGEST_PAUSE_S))
                    victim = list(victims)[number % len(victims)]
                    victims[victim]()
                    killed[victim] += 1
                    if number % 10 == 2:
                        assert audit(options.table) == []
                        await_commits(options.table, Table.load(options.table, OsFileSystem()).version + 1)
        finally:
            for loader in loaders:
                loader.kill()
        with spark_session("last", connect.address) as session:
            report = load_topic(options, spark=session)
        assert sum(report.lag.values()) == 0
        assert audit(options.table) == []
        different, records = differences(options)
        assert different == set()
    ends = Counter(line.split()[0] for loader in loaders for line in loader.log.read_text().splitlines() if line)
    record_property("kills", dict(killed))
    record_property("records", records)
    record_property("commits", Table.load(options.table, OsFileSystem()).version)
    record_property("ends of loads", dict(ends))


def await_commits(table, version):
    """Waits until the table is at a version."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if Table.load(table, OsFileSystem()).version >= version:
                return
        except MillraceError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"no commit {version} in {PATIENCE_S} s")


def send(broker, partition, values):
    with Cluster(broker.bootstrap) as cluster:
        producer = SyncProducer(cluster)
        while batch := [NewRecord(value) for value in islice(values, random.randint(1, 50))]:
            producer.send("events", partition, batch)


def loaded_offsets(options):
    return {partition: entry.next_offset for partition, entry in read_ledger(options.table).partitions.items()}


def lose_end(broker, partition, loaded):
    """Cuts the log of a killed broker below the offset `loaded`; returns (partition, offset, value) of what is lost."""
    (segment,) = broker.data_dir.glob(f"events-{partition}/*.log")
    data = segment.read_bytes()
    batches = [(position, header) for position, header in walk(data) if header.base_offset < loaded]
    position, header = batches[-1]
    size_bytes = random.randrange(position + header.size_bytes)
    with segment.open("r+b") as file:
        file.truncate(size_bytes)
    (broker.data_dir / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    end = next(header.base_offset for start, header in batches if start + header.size_bytes > size_bytes)
    return [(partition, one.offset, one.value) for one in decode_records(data) if end <= one.offset < loaded]


def restart_without_ends(broker, loaded):
    """Kills the broker, cuts some of its logs and starts it again; returns the results of `lose_end` by partition."""
    broker.kill()
    filled = [partition for partition, next_offset in loaded.items() if next_offset]
    victims = random.sample(filled, random.randint(1, len(filled)))
    gone = {partition: lose_end(broker, partition, loaded[partition]) for partition in victims}
    broker.start()
    if random.random() < 0.5:
        restart_broker(broker)
    return gone


@pytest.mark.soak(rounds=1, minutes=10)
@pytest.mark.timeout(1200)
def test_a_log_that_lost_its_end_and_has_grown_past_the_ledger_is_loaded_from_there(rounds, tmp_path, record_property):
    lost, ledgers, values = [], [], (b"%d" % number for number in count())
    with BrokerProcess(tmp_path / "broker") as broker, spark_session("cuts", local_master(2)) as spark:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("events", len(PARTITIONS))
        options = LoadOptions(topic="events", table=str(tmp_path / "table"), bootstrap=broker.bootstrap)
        source = TopicSource(options.bootstrap, options.topic)
        for _ in rounds:
            for partition in random.sample(PARTITIONS, random.randint(1, len(PARTITIONS))):
                send(broker, partition, islice(values, random.randint(1, 500)))
            load_topic(options, spark=spark)
            loaded = loaded_offsets(options)
            ledgers.append(loaded)
            for partition in random.sample(PARTITIONS, random.randint(0, len(PARTITIONS))):
                send(broker, partition, islice(values, random.randint(1, 50)))  # no load has seen these

            gone = restart_without_ends(broker, loaded)
            lost += [record for records in gone.values() for record in records]
            for partition, records in gone.items():
                send(broker, partition, islice(values, len(records) + random.randint(1, 100)))

            with pytest.raises(LogTruncatedError) as stopped:
                load_topic(options, spark=spark)
            for partition, records in gone.items():
                assert f"partition {partition}: the log agrees up to offset {records[0][1]}" in str(stopped.value)
            report = load_topic(replace(options, accept_truncated_log=True), spark=spark)
            begins = loaded | {partition: records[0][1] for partition, records in gone.items()}
            ends = {partition: offsets.end_offset for partition, offsets in log_offsets(source, PARTITIONS).items()}
            assert report.rows == sum(ends.values()) - sum(begins.values())
            assert loaded_offsets(options) == ends
            assert audit(options.table, bootstrap=options.bootstrap) == []
        different, records = differences(options, lost)
        assert different == set()
        former = former_ledgers(Table.load(options.table, OsFileSystem())).values()
    assert [{partition: entry.next_offset for partition, entry in each.items()} for each in former] == ledgers
    record_property("cuts", len(ledgers))
    record_property("lost and loaded", len(lost))
    record_property("records", records)
