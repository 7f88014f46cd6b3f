"""kill -9 of two loaders that race in one table of each store, and of who compacts it beside.

That is delta-rs where loads append. Where they upsert it is Millrace, and in a folder delta-spark: an `optimize` of
delta-rs commits over removals of the files that it read, its own ones, too (docs/warehouse-reading.md).

What is killed, and how long after a load has ended, is drawn by a seed, which MILLRACE_CHAOS_SEED gives. New records
come before each kill. In the end the audit that compares with the topic is clean, and delta-rs reads each record once:
of a table with a row for each key, the newest one.
"""

import os
import random
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, takewhile
from pathlib import Path
from threading import Event, Thread

import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.choices import Mode
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.maintenance import vacuum
from millrace_pipelines.warehouse.stores.options import use_store_options
from millrace_support.lake_contents import rows_at
from millrace_support.spark_delta import SparkDelta, SparkDeltaError
from millrace_support.stores.racing_loads import Victim, compact_for_ever, keep_compact, load_for_ever, load_here
from millrace_support.stores.stand_ins import missing, started
from millrace_support.waiting import until

STORES = ("folder", "s3 (MinIO)", "gs (fake-gcs-server)", "abfss (Azurite)", "hdfs (MiniDFS)")
DELTA_JARS = Path(__file__).parents[2] / ".peers" / "spark-delta" / "libs"
PARTITIONS, RECORDS, KEYS = 2, 20, 30
LONGEST_PAUSE_S = 0.5
MORE_ROUNDS = 50
COLUMNS = ("partition", "offset", "key", "value")


@pytest.fixture(params=STORES)
def store(request, tmp_path):
    """The address of a store, and its options by that address."""
    if request.param == "folder":
        yield str(tmp_path / "lake"), {}
        return
    if (reason := missing(request.param)) is not None:
        pytest.skip(reason)
    with started(request.param) as running:
        yield running.address, {running.address: running.options}


@pytest.fixture
def cluster(tmp_path):
    with BrokerProcess(tmp_path / "broker") as broker, Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("events", PARTITIONS)
        cluster.address = broker.bootstrap
        yield cluster


class Topic:
    """The topic of the loads, and all that was sent to it, as rows of a table."""

    def __init__(self, cluster, chance):
        self._producer, self._chance = SyncProducer(cluster), chance
        self.sent = []

    def send(self, number):
        """Sends a batch of records to a partition, whose keys come again and again."""
        partition = number % PARTITIONS
        keys = [b"%d-%d" % (partition, self._chance.randrange(KEYS)) for _ in range(RECORDS)]
        values = [b"%d-%d" % (number, one) for one in range(RECORDS)]
        self._producer.send("events", partition, [NewRecord(*one) for one in zip(values, keys, strict=True)])
        first = RECORDS * (number // PARTITIONS)
        self.sent += zip([partition] * RECORDS, range(first, first + RECORDS), keys, values, strict=True)

    def expected(self, mode):
        newest = {row[2]: row for row in self.sent}
        return Counter(self.sent if mode is Mode.APPEND else newest.values())


pytestmark = [pytest.mark.soak(rounds=10, soak_rounds=200), pytest.mark.timeout(3 * 3600)]


class Race:
    """Two loaders of a topic into one table, new records, and who is killed; all drawn by a seed."""

    def __init__(self, address, store_options, mode, cluster, folder):
        self.seed = int(os.environ.get("MILLRACE_CHAOS_SEED") or random.randrange(10**6))
        self._chance = random.Random(self.seed)
        self.mode, self._store_options = mode, store_options
        use_store_options(store_options)
        self._options = LoadOptions(
            topic="events", table=f"{address}/chaos/events", bootstrap=cluster.address, mode=mode,
            max_records_per_run=RECORDS, max_records_per_task=RECORDS // 4,
        )  # fmt: skip
        self._topic = Topic(cluster, self._chance)
        self._topic.send(0)
        load_here(self._options)
        self._logs = [folder / name for name in ("left", "right")]
        self._victims = [Victim(load_for_ever, self._options, store_options, log) for log in self._logs]

    @property
    def table(self):
        return self._options.table

    def join(self, compaction, log):
        """Adds a process that compacts the table to those that are killed."""
        self._victims.append(Victim(compaction, self.table, self._store_options, log))

    def run(self, rounds):
        """Sends records, waits for the end of a load, and kills one of the processes, in each round.

        More rounds follow, up to MORE_ROUNDS, until a loader was too late, as the other was first.
        """
        ended, more = 0, takewhile(lambda _: not ends(*self._logs)["StaleLedgerError"], range(MORE_ROUNDS))
        try:
            for number, _ in enumerate(chain(rounds, more)):
                self._topic.send(number + 1)
                ended = until(self._loads, lambda now, before=ended: now > before)
                time.sleep(self._chance.uniform(0, LONGEST_PAUSE_S))
                victim = self._chance.choice(self._victims)
                victim.kill()
                victim.start()
        finally:
            for victim in self._victims:
                victim.kill()

    def check(self):
        """Loads what is left, and checks the table before and after a vacuum."""
        load_here(replace(self._options, max_records_per_run=None))
        expected = self._topic.expected(self.mode)
        check(self._options, expected, self._store_options)
        vacuum(self.table, DISK, retention_hours=0)
        check(self._options, expected, self._store_options)
        assert ends(*self._logs).keys() == {"rows", "StaleLedgerError"}

    def _loads(self):
        """Returns how many loads have ended, whether by a commit or because the other loader was first."""
        return ends(*self._logs).total()


@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.UPSERT], ids=str)
def test_each_record_is_there_once_whatever_is_killed(store, mode, cluster, tmp_path, rounds, record_property):  # noqa: PLR0917
    race = Race(*store, mode, cluster, tmp_path)
    record_property("seed", race.seed)
    log = tmp_path / "compactions"
    race.join(compact_for_ever if mode is Mode.APPEND else keep_compact, log)
    race.run(rounds)
    race.check()
    record_property("compactions", dict(ends(log)))
    assert ends(log)["compacted"] > 0
    assert ends(log).keys() <= {"compacted", "StaleLedgerError", "CommitFailedError"}, race.seed


@pytest.mark.skipif(not any(DELTA_JARS.glob("*.jar")), reason="`make peers` brings Delta's jars for Spark")
def test_each_row_is_there_once_beside_delta_spark_that_compacts(cluster, tmp_path, rounds, record_property):
    race = Race(str(tmp_path / "lake"), {}, Mode.UPSERT, cluster, tmp_path)
    record_property("seed", race.seed)
    with compacting_by_spark(race.table, tmp_path) as compactions:
        race.run(rounds)
        until(lambda: Counter(compactions)["compacted"])
    race.check()
    record_property("compactions", dict(Counter(compactions)))
    assert set(compactions) <= {"compacted", "idle", "refused"}, race.seed


@contextmanager
def compacting_by_spark(table, folder):
    """Lets delta-spark compact a table until the context ends; yields what became of each of its compactions."""
    ended, outcomes = Event(), []

    def compact():
        while not ended.is_set():
            try:
                [[_, metrics]] = spark.sql(f"OPTIMIZE delta.`{table}`")
                outcomes.append("compacted" if metrics[1] else "idle")
            except SparkDeltaError as error:
                outcomes.append("refused" if "CONCURRENT" in str(error).upper() else str(error))

    directory = folder / "spark"
    directory.mkdir()
    with SparkDelta(DELTA_JARS, directory) as spark:
        thread = Thread(target=compact)
        thread.start()
        try:
            yield outcomes
        finally:
            ended.set()
            thread.join()


def ends(*logs):
    """Returns how often a process ended its work by what, as it wrote down."""
    return Counter(line.split()[0] for log in logs if log.exists() for line in log.read_text().splitlines())


def check(options, expected, store_options):
    assert audit(options.table, bootstrap=options.bootstrap) == []
    [own] = store_options.values() or [{}]
    assert rows_at(options.table, *COLUMNS, options={**own, "allow_http": "true"} if own else None) == expected
