"""Dry runs, from a real broker: they change nothing, say what is then done, and raise what is then raised."""

import json
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

import pytest
from pyspark.sql import SparkSession

from millrace.client import Admin, Cluster, Groups, SyncProducer
from millrace.errors import ClientError, UnknownTopicError
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace.times import epoch_ms
from millrace_pipelines.spark.errors import OffsetsLostError, TopicRecreatedError
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse import preview_load, preview_reload
from millrace_pipelines.warehouse.choices import Mode
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.errors import ModeError, SchemaChangedError
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.ledger.ledger import read_ledger
from millrace_pipelines.warehouse.ledger.plan import Selection
from millrace_pipelines.warehouse.load.load import load_topic, reload_topic
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.replay import ReplayOptions, replay
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.tables.find import FAILED_LOADS_FILE, read_failed_loads
from millrace_pipelines.warehouse.tables.open import TableChanges
from millrace_support.broker_properties import KEEPS_ALL
from millrace_support.unchanged import contents, unchanged

FS = OsFileSystem()
DAY_MS = 86_400_000
names = (f"topic-{number}" for number in count())


@pytest.fixture(scope="module")
def spark(warm_loads):
    with spark_session("tests", local_master(2)) as session:
        yield session


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("broker")
    with BrokerProcess(folder, properties=KEEPS_ALL) as process, Cluster(process.bootstrap) as cluster:
        cluster.bootstrap = process.bootstrap
        yield cluster


@contextmanager
def without_spark():
    """Lets the block fail where it asks for a session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkSession, "getActiveSession", None)
        patch.setattr(SparkSession, "builder", None)
        yield


class Flow:
    """A topic of two partitions and its table, in a folder with everything that belongs to them."""

    def __init__(self, cluster, folder, spark):
        self.cluster, self.folder, self.spark, self.topic = cluster, folder, spark, next(names)
        self.options = LoadOptions(topic=self.topic, table=str(folder / "t"), bootstrap=cluster.bootstrap)
        self.create()

    def create(self):
        Admin(self.cluster).create_topic(self.topic, 2)

    def recreate(self):
        Admin(self.cluster).delete_topic(self.topic)
        self.create()

    def send(self, *values, partition=0, key=None, timestamp_ms=1_700_000_000_000):
        records = [NewRecord(value, key=key, timestamp_ms=timestamp_ms) for value in values]
        SyncProducer(self.cluster).send(self.topic, partition, records)

    def declare(self, **fields):
        (self.folder / "schema.json").write_text(
            json.dumps({"fields": [{"name": name, "type": kind} for name, kind in fields.items()]})
        )
        self.options = replace(self.options, schema=str(self.folder / "schema.json"))

    @contextmanager
    def unchanged(self):
        """Asserts that folder, groups and topics stay as they are."""
        before = self.groups()
        with unchanged(self.folder):
            yield
        assert self.groups() == before

    @contextmanager
    def unchanged_but_for_the_note(self):
        """Asserts that a refused load changes nothing but the note of failed loads and the time of its folder."""

        def rest():
            noted = ("t", f"t/{FAILED_LOADS_FILE}")
            return self.groups(), {name: one for name, one in contents(self.folder).items() if name not in noted}

        before = rest()
        yield
        assert rest() == before

    def groups(self):
        groups = Groups(self.cluster)
        names = sorted(group.group_id for group in groups.list())
        return {name: groups.offsets(name) for name in names}, sorted(self.cluster.metadata(None).topics)

    def preview(self, **how):
        with self.unchanged(), without_spark():
            return preview_load(replace(self.options, **how))

    def preview_reload(self, selection, **how):
        with self.unchanged(), without_spark():
            return preview_reload(replace(self.options, **how), selection)

    def load(self, **how):
        """Loads after a dry run, and checks that this has said what is done."""
        would = self.preview(**how)
        report = load_topic(replace(self.options, **how), spark=self.spark)
        assert would.ranges == tuple(span.range for span in report.ranges)
        assert (would.lost, would.lag) == (report.lost, report.lag)
        assert would.offsets == sum(span.until_offset - span.from_offset for span in report.ranges)
        assert audit(self.options.table) == []
        return would

    def reload(self, selection, **how):
        would = self.preview_reload(selection, **how)
        report = reload_topic(replace(self.options, **how), selection, spark=self.spark)
        assert would.replaced == tuple(span.range for span in report.replaced)
        assert would.backfilled == tuple(span.range for span in report.backfilled)
        assert (would.lost, would.removed_rows) == (report.lost, report.removed_rows)
        assert audit(self.options.table) == []
        return would

    def refused(self, error, selection=None, **how):
        """Checks that dry run and real run raise the same error with the same words, and that neither does anything.

        Only a load notes that it has failed.
        """
        options = replace(self.options, **how)
        if selection is None:
            runs = [
                (self.unchanged, preview_load),
                (self.unchanged_but_for_the_note, lambda options: load_topic(options, spark=self.spark)),
            ]
        else:
            runs = [
                (self.unchanged, lambda options: preview_reload(options, selection)),
                (self.unchanged, lambda options: reload_topic(options, selection, spark=self.spark)),
            ]
        said = []
        for watched, run in runs:
            with watched(), pytest.raises(error) as raised:
                run(options)
            said.append(f"{type(raised.value).__name__}: {raised.value}")
        assert said[0] == said[1]
        if selection is None:
            assert read_failed_loads(options.table, FS).reason == said[1]


@pytest.fixture
def flow(cluster, tmp_path, spark):
    return Flow(cluster, tmp_path, spark)


def test_a_load_into_a_new_table_and_the_next_one(flow):
    assert flow.preview().changes == TableChanges(created=(flow.options.table,))
    flow.send(b"a", b"b")
    flow.send(b"c", partition=1)
    flow.declare(n="long")
    would = flow.load(max_records_per_run=2)
    created = (flow.options.table, dead_letters_dir(flow.options.table))
    assert (would.version, would.changes) == (None, TableChanges(created=created, added=("n",)))
    assert (would.offsets, sum(would.lag.values())) == (2, 1)
    would = flow.load()
    assert (would.offsets, would.changes, would.lag) == (1, TableChanges(), {0: 0, 1: 0})
    assert flow.load().ranges == ()


def test_a_schema_that_changes(flow):
    flow.send(b'{"n": 1}')
    flow.declare(n="integer")
    flow.load()
    flow.declare(n="long", s="string")
    assert flow.preview().changes == TableChanges(added=("s",), widened=("n",), rewritten_files=1)
    flow.send(b'{"n": 5000000000, "s": "x"}')
    assert flow.load().changes.added == ("s",)
    flow.declare(n="boolean")
    flow.refused(SchemaChangedError)
    flow.refused(SchemaChangedError, Selection())


def test_a_topic_that_was_created_again(flow):
    flow.send(b"a", b"b")
    flow.load()
    flow.recreate()
    flow.send(b"c")
    flow.refused(TopicRecreatedError)
    flow.refused(TopicRecreatedError, Selection())
    would = flow.load(accept_recreated_topic=True)
    assert would.new_ledger == read_ledger(flow.options.table).name
    assert [span[:3] for span in would.given_up] == [(0, 2, None), (1, 0, None)]
    assert (would.offsets, flow.preview().new_ledger) == (1, None)
    flow.refused(ModeError, Selection(from_offset=0))


def test_a_partition_that_is_gone_and_lost_offsets(flow):
    flow.send(*[b"v"] * 5)
    flow.load()
    flow.send(*[b"v"] * 5)
    Admin(flow.cluster).delete_records(flow.topic, 0, 7)
    flow.refused(OffsetsLostError)
    flow.refused(OffsetsLostError, Selection(from_offset=3))
    would = flow.load(accept_lost_offsets=True)
    assert [span[:3] for span in would.lost] == [(0, 5, 7)]
    assert flow.reload(Selection(from_offset=3), accept_lost_offsets=True).removed_rows == 3
    flow.refused(ModeError, Selection(partitions=(7,)))
    flow.refused(ModeError, Selection(from_offset=1), accept_recreated_topic=True)
    flow.refused(UnknownTopicError, topic="missing")


def test_an_upsert(flow):
    flow.send(b"a", b"b", key=b"k")
    would = flow.load(mode=Mode.UPSERT)
    assert would.changes.created == (flow.options.table,)
    flow.send(b"c", key=b"k")
    assert flow.load().offsets == 1
    flow.refused(ModeError, mode=Mode.APPEND)
    flow.refused(ModeError, Selection(until_offset=1))
    assert flow.reload(Selection(from_offset=1)).removed_rows == 0
    flow.recreate()
    flow.refused(ModeError, accept_recreated_topic=True)


def test_a_reload_of_days_and_a_backfill(flow):
    first = datetime(2026, 1, 1, tzinfo=UTC)
    for day in range(4):
        for partition in (0, 1):
            flow.send(b"1", b"2", b"3", partition=partition, timestamp_ms=epoch_ms(first) + day * DAY_MS)
    flow.reload(Selection(from_offset=6))
    assert flow.preview_reload(Selection(until_table_begins=True)).backfilled == ((0, 0, 6), (1, 0, 6))
    flow.reload(Selection(partitions=(1,), until_table_begins=True))
    days = Selection.of_times(first.replace(day=2), first.replace(day=4), (1,))
    would = flow.reload(days)
    assert (would.replaced, would.removed_rows) == (((1, 3, 9),), 6)
    assert flow.reload(Selection.of_times(first.replace(day=5), first.replace(day=6))).offsets == 0


def test_the_erasure_of_keys_and_the_replay_of_dead_letters(flow):
    flow.declare(n="integer")
    flow.send(b'{"n": 1}', b"?", b'{"n": 5000000000}', key=b"alice")
    flow.send(b'{"n": 2}', b'{"n": 6000000000}', key=b"bob")
    flow.load()
    flow.declare(n="long")
    options = ReplayOptions(table=flow.options.table, schema=flow.options.schema, dry_run=True)
    with flow.unchanged():
        would = replay(options)
    done = replay(replace(options, dry_run=False))
    assert would == replace(done, dry_run=True, versions=())
    assert (would.replayed, would.changes) == (2, TableChanges(widened=("n",), rewritten_files=1))
    with flow.unchanged():
        would = erase(flow.options.table, [b"alice"], FS, dry_run=True)
    assert would == replace(erase(flow.options.table, [b"alice"], FS), dry_run=True, version=None)
    assert (would.rows, would.dead_letters) == (2, 1)


def test_without_a_broker_the_same_error_is_raised(flow):
    flow.send(b"a")
    flow.load()
    flow.refused(ClientError, bootstrap="127.0.0.1:1")
