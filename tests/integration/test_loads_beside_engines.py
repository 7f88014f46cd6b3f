"""Loads, reloads, upserts, replays and downstream outputs of tables that another engine has changed.

Records come from a real broker through a real Spark, and another Spark, with Delta's own jars, changes the tables and
judges: after each command it reads the rows of a model, or the command was refused and left every file as it was. A
short run takes the most telling changes, `--soak` all.
"""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from millrace.client import Cluster
from millrace.client.consumer import Message
from millrace.client.log_offsets import LogOffsets
from millrace.clock import SystemClock
from millrace.testing.broker import BrokerProcess
from millrace_pipelines.downstream import Form, micro_batch_job
from millrace_pipelines.downstream.output import Output
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse.choices import Mode
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import LedgerError, TableRefusedError
from millrace_pipelines.warehouse.ledger.plan import Selection
from millrace_pipelines.warehouse.load.load import load_topic, reload_topic
from millrace_pipelines.warehouse.load.replay import ReplayOptions, replay
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.tables.find import FAILED_LOADS_FILE
from millrace_support.broker_properties import KEEPS_ALL
from millrace_support.engine_changes import CHANGES, WITHOUT_1
from millrace_support.keyed_events import FS, Events
from millrace_support.spark_delta import SparkDelta

DELTA_JARS = Path(__file__).parents[2] / ".peers" / "spark-delta" / "libs"
ROWS = 10
LETTERS = (10, 11)
FIELDS = [pa.field("offset", pa.int64()), pa.field("key", pa.string()), pa.field("value", pa.string())]
OUTPUT = pa.schema(FIELDS)

pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(not any(DELTA_JARS.glob("*.jar")), reason="`make peers` brings Delta's jars for Spark"),
]


@pytest.fixture(scope="module")
def delta_spark(tmp_path_factory):
    with SparkDelta(DELTA_JARS, tmp_path_factory.mktemp("spark")) as spark:
        yield spark


@pytest.fixture(scope="module")
def spark(delta_spark, warm_loads):
    with spark_session("tests", local_master(2)) as session:
        yield session


@pytest.fixture(scope="module")
def topics(tmp_path_factory):
    """Makes topics, each with the records that are sent to it."""
    folder = tmp_path_factory.mktemp("broker")
    with BrokerProcess(folder, properties=KEEPS_ALL) as broker, Cluster(broker.bootstrap) as cluster:
        yield lambda: Events(cluster, broker.bootstrap)


class ChangedTable:
    """A table that another engine changes; `offsets` are those that it should have."""

    def __init__(self, location, delta_spark):
        self.location = str(location)
        self.delta_spark = delta_spark
        self.offsets = set()
        self.first_version = self.version = -1

    def sql(self, statement):
        """Runs a statement in the judge, with `{t}` for the table and the versions of its first and of all rows."""
        texts = {"{t}": f"delta.`{self.location}`", "{v}": f"{self.first_version}", "{n}": f"{self.version}"}
        for name, text in texts.items():
            statement = statement.replace(name, text)
        return self.delta_spark.sql(statement)

    def loaded(self, first, load):
        """Notes the version after the first rows, or after all of them, and which rows these are."""
        load()
        self.version = Table.load(self.location, FS).version
        if first:
            self.first_version = self.version

    def files(self):
        """All files of the table and its dead letters but for leases and the note of a failed load."""
        return {
            path: path.read_bytes()
            for path in Path(self.location).parent.glob(f"{Path(self.location).name}*/**/*")
            if path.is_file() and not {"_running", FAILED_LOADS_FILE} & {*path.parts}
        }

    def does(self, act, offsets, *, refused):
        """Runs a command that leaves these offsets, or is refused and changes nothing; the judge reads the rows."""
        before = self.files()
        if refused:
            with pytest.raises((TableRefusedError, LedgerError)):
                act()
            assert self.files() == before
        else:
            act()
            self.offsets = set(offsets)
        assert sorted(row[0] for row in self.sql("SELECT offset FROM {t}")) == sorted(self.offsets)


def even_key(number):
    """A key of partition 0."""
    return b"key-%d0" % number


@pytest.fixture
def chosen(rounds):
    """The changes of this run by their names."""
    return [list(CHANGES)[number % len(CHANGES)] for number in rounds]


def declare(folder, kind):
    (folder / "schema.json").write_text(json.dumps({"fields": [{"name": "n", "type": kind}]}))
    return str(folder / "schema.json")


def send(events, *numbers):
    events.send(*((even_key(number), b'{"n": %d}' % number) for number in numbers))


@pytest.mark.soak(rounds=1, soak_rounds=len(CHANGES))
def test_loads_reloads_and_replays_are_right_or_refused(spark, topics, delta_spark, tmp_path, chosen):
    for name in chosen:
        folder = tmp_path / name
        folder.mkdir()
        appended(name, topics(), folder, spark, delta_spark)


def appended(name, events, folder, spark, delta_spark):
    """A table of all records, with two dead letters."""
    change = CHANGES[name]
    options = events.options(folder / "t", schema=declare(folder, "integer"))
    table = ChangedTable(folder / "t", delta_spark)
    for low, high in ((0, 4), (4, 7), (7, 10)):
        send(events, *range(low, high))
        table.loaded(low == 0, lambda: load_topic(options, spark=spark))
    send(events, *(5_000_000_000 + one for one in LETTERS))
    change.act(table)
    table.offsets = set(change.left)
    is_set_back = change.is_set_back

    if Access.READ not in change.refused:
        found = audit(table.location)
        missing = set(range(ROWS)) - table.offsets
        assert bool(found) == bool(missing), (name, found)
        assert (missing == set()) or f"{min(missing)}" in "".join(found)
    no_rows = is_set_back or Access.APPEND in change.refused
    no_removal = is_set_back or Access.REMOVE in change.refused
    there = set(table.offsets)
    table.does(lambda: load_topic(options, spark=spark), there, refused=no_rows)
    every = Selection(from_offset=0)
    table.does(lambda: reload_topic(options, every, spark=spark), range(ROWS), refused=no_removal)
    wide = declare(folder, "long")
    everything = range(ROWS + len(LETTERS))
    table.does(lambda: replay(ReplayOptions(table=table.location, schema=wide)), everything, refused=no_removal)
    if not no_removal:
        assert audit(table.location) == []


@pytest.mark.soak(rounds=1, soak_rounds=len(CHANGES))
def test_upserts_are_right_or_refused(spark, topics, delta_spark, tmp_path, chosen):
    for name in chosen:
        upserted(name, topics(), tmp_path / name, spark, delta_spark)


def upserted(name, events, location, spark, delta_spark):
    """A table of the newest record of each key."""
    change = CHANGES[name]
    options, table = events.options(location, mode=Mode.UPSERT), ChangedTable(location, delta_spark)
    for low, high in ((0, 4), (4, 7), (7, 10)):
        send(events, *range(low, high))
        table.loaded(low == 0, lambda: load_topic(options, spark=spark))
    change.act(table)
    table.offsets = set(change.left)
    refused = change.is_set_back or Access.REMOVE in change.refused
    if Access.READ not in change.refused:
        assert bool(audit(table.location)) == (table.offsets != set(range(ROWS)))
    send(events, 1, 3)
    newer = (table.offsets - {1, 3}) | {10, 11}
    table.does(lambda: load_topic(options, spark=spark), newer, refused=refused)
    whole = Selection(from_offset=0)
    table.does(lambda: reload_topic(options, whole, spark=spark), set(range(12)) - {1, 3}, refused=refused)


OUTPUT_CHANGES = (
    "vectors",
    "rows deleted",
    "append only",
    "row tracking",
    "column mapping",
    "optimized and vacuumed",
    "vectors, twice, in checkpoints of the second kind",
    "vectors, updated",
    "vectors, purged",
)


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("name", OUTPUT_CHANGES)
def test_downstream_outputs_are_right_or_refused(delta_spark, tmp_path, name, form):
    change, table = CHANGES[name], ChangedTable(tmp_path / "output", delta_spark)

    def listed(rows, messages):
        new = [(one.offset, (one.key or b"").decode(), (one.value or b"").decode()) for one in messages]
        made = pa.table([list(column) for column in zip(*new, strict=True)], schema=OUTPUT)
        return pa.concat_tables([rows, made]) if form is Form.STATE else made

    output = Output(
        table.location, micro_batch_job(topic="t", schema=OUTPUT, form=form)(listed), "id", FS, SystemClock()
    )
    output.prepare({0: LogOffsets(0, ROWS)})

    def commit(low, high):
        return lambda: output.commit({0: [Message("t", 0, one, b"k", b"v", 0, ()) for one in range(low, high)]})

    for low, high in ((0, 4), (4, 7), (7, 10)):
        table.loaded(low == 0, commit(low, high))
    change.act(table)
    table.offsets = set(change.left)
    needed = Access.REMOVE if form is Form.STATE else Access.APPEND
    table.does(commit(10, 12), {*table.offsets, 10, 11}, refused=needed in change.refused)


def test_deleted_rows_come_back_by_the_audits_own_command(spark, topics, delta_spark, tmp_path):
    events, change = topics(), CHANGES["vectors"]
    options, table = events.options(tmp_path / "t"), ChangedTable(tmp_path / "t", delta_spark)
    send(events, *range(ROWS))
    load_topic(options, spark=spark)
    change.act(table)
    table.offsets = set(WITHOUT_1)
    [named, _] = audit(table.location)
    assert "partition 0, offsets 1: deleted by another engine's deletion vector" in named
    assert f"reload {events.topic} --table {table.location} --partition 0 --from-offset 1 --until-offset 2`" in named
    selection = Selection(partitions=(0,), from_offset=1, until_offset=2)
    table.does(lambda: reload_topic(options, selection, spark=spark), range(ROWS), refused=False)
    assert audit(table.location) == []
