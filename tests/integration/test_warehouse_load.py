"""Loads from a real broker through a real Spark into real tables."""

import json
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.errors import UnknownTopicError
from millrace.fs import OsFileSystem
from millrace.records.compression import Codec
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_ops.cli.warehouse import app
from millrace_pipelines.spark.brokers import TopicSource
from millrace_pipelines.spark.errors import TopicRecreatedError
from millrace_pipelines.spark.read import read_range
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import LoadFailedError, SchemaError, StaleLedgerError
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, read_ledger
from millrace_pipelines.warehouse.ledger.plan import OffsetRange
from millrace_pipelines.warehouse.load.jobs import run_tasks
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions, SilentListener, Step
from millrace_pipelines.warehouse.load.task import LoadSpec
from millrace_pipelines.warehouse.stores.leases import lease
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.tables.find import read_failed_loads
from millrace_pipelines.warehouse.tables.spark_table import spark_table
from millrace_support import recorded_data
from millrace_support.backup_commands import backup_broker, backup_table
from millrace_support.command_runner import CommandRunner

SCHEMA = {"fields": [{"name": "id", "type": "long", "nullable": False}, {"name": "at", "type": "timestamp"}]}


@pytest.fixture(scope="module")
def spark(warm_loads):
    with spark_session("tests", local_master(2)) as session:
        yield session


@pytest.fixture
def topic(broker):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("events", 2)
        yield lambda partition, values, **how: SyncProducer(cluster).send(
            "events",
            partition,
            [value if isinstance(value, NewRecord) else NewRecord(value) for value in values],
            **how,
        )


@pytest.fixture
def options(broker, tmp_path):
    return LoadOptions(
        topic="events", table=str(tmp_path / "table"), bootstrap=broker.bootstrap, max_records_per_task=40
    )


@pytest.fixture
def typed(options, tmp_path):
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    return LoadOptions(
        topic=options.topic,
        table=options.table,
        bootstrap=options.bootstrap,
        schema=str(tmp_path / "schema.json"),
        max_records_per_task=40,
    )


class At(SilentListener):
    """Does something when the load is at a step."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def reached(self, step):
        if step is self.step:
            self.action()


def stored(directory):
    files = Table.load(directory, OsFileSystem()).files()
    return ds.dataset(files).to_table().sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()


def offsets(directory):
    return Counter((row["partition"], row["offset"]) for row in stored(directory))


def parquet_files(directory):
    return sorted(str(path) for path in Path(directory).glob("*.parquet"))


def test_every_record_arrives_as_it_was_sent(spark, topic, options):
    headers = (("trace", b"\x00\x01"), ("empty", None))
    records = [
        NewRecord(b"v" * n, key=b"k" if n % 2 else None, timestamp_ms=1_700_000_000_000 + n, headers=headers[: n % 3])
        for n in range(100)
    ]
    for codec in Codec:
        topic(codec % 2, records, codec=codec)
    topic(1, [NewRecord(None, key=b"deleted", timestamp_ms=5)])
    report = load_topic(options, spark=spark)
    assert (report.rows, report.version, report.dead_letters) == (501, 1, 0)
    rows = [row for row in stored(options.table) if row["partition"] == 0]
    for row, record in zip(rows, records * 3, strict=True):
        assert (row["topic"], row["key"], row["value"]) == ("events", record.key, record.value)
        assert row["timestamp"].timestamp() * 1000 == record.timestamp_ms
        assert [(header["key"], header["value"]) for header in row["headers"]] == list(record.headers)
    assert stored(options.table)[-1]["value"] is None
    assert audit(options.table) == []


def test_loads_follow_one_another(spark, topic, options):
    topic(0, [b"a"] * 100)
    assert load_topic(options, spark=spark).rows == 100
    assert load_topic(options, spark=spark).version is None
    topic(0, [b"b"] * 30)
    topic(1, [b"c"] * 50)
    report = load_topic(options, spark=spark)
    assert [(span.partition, span.from_offset, span.until_offset) for span in report.ranges] == [
        (0, 100, 130),
        (1, 0, 50),
    ]
    assert read_ledger(options.table).partitions == {0: LedgerEntry(0, 130), 1: LedgerEntry(0, 50)}
    assert set(offsets(options.table).values()) == {1}
    assert len(offsets(options.table)) == 180
    assert audit(options.table) == []
    counts = spark_table(spark, options.table).groupBy("partition").count().collect()
    assert {row.partition: row["count"] for row in counts} == {0: 130, 1: 50}


def test_a_copied_table_goes_on_with_a_copy_of_its_broker_that_was_made_after_it(
    spark, broker, topic, options, tmp_path
):
    table, data = str(tmp_path / "copies" / "table"), tmp_path / "copies" / "data"
    topic(0, [b"a"] * 100)
    load_topic(options, spark=spark)
    backup_table(options.table, table)
    topic(1, [b"b"] * 50)
    load_topic(options, spark=spark)
    backup_broker(broker.data_dir, data)
    with BrokerProcess(data) as restored:
        copied = replace(options, table=table, bootstrap=restored.bootstrap)
        assert load_topic(copied, spark=spark).rows == 50
        assert audit(table, bootstrap=restored.bootstrap) == []


def test_a_load_goes_on_where_that_of_the_version_before_has_stopped(spark, tmp_path):
    recorded_data.unpack(recorded_data.RECORDED, tmp_path)
    table, rows = str(tmp_path / "warehouse" / recorded_data.MIXED), len(recorded_data.expected_records())
    with BrokerProcess(tmp_path / "data") as broker, Cluster(broker.bootstrap) as cluster:
        SyncProducer(cluster).send(recorded_data.MIXED, 0, [NewRecord(b"after the upgrade")])
        options = LoadOptions(topic=recorded_data.MIXED, table=table, bootstrap=broker.bootstrap)
        assert load_topic(options, spark=spark).rows == 1
        assert read_ledger(table).partitions[0] == LedgerEntry(0, rows + 1)
        assert audit(table, bootstrap=broker.bootstrap) == []


def test_an_empty_topic_commits_nothing(topic, options):
    assert load_topic(options).version is None
    assert read_ledger(options.table).partitions == {}
    assert audit(options.table) == []


def test_progress_is_told(spark, topic, options):
    told = []

    class Listener(SilentListener):
        def reached(self, step):
            told.append(step)

        def tasks_done(self, done, total, records):
            told.append((done, total, records))

    topic(0, [b"a"] * 100)
    load_topic(options, spark=spark, listener=Listener())
    assert [step for step in told if isinstance(step, Step)] == [
        Step.PLANNED,
        Step.WRITTEN,
        Step.COMMITTED,
        Step.PUBLISHED,
    ]
    assert told[told.index(Step.WRITTEN) - 1] == (3, 3, 100)


def test_typed_columns_and_dead_letters(spark, topic, typed):
    topic(0, [b'{"id": %d, "at": "2013-01-01T05:00:00Z"}' % n for n in range(50)] + [b"not json", b'{"id": "x"}', None])
    topic(0, [b'{"id": 50}'])
    report = load_topic(typed, spark=spark)
    assert (report.rows, report.dead_letters) == (52, 2)
    dead = stored(dead_letters_dir(typed.table))
    assert [(row["offset"], row["value"], row["error"]) for row in dead] == [
        (50, b"not json", "not a JSON object: Expecting value at character 0"),
        (51, b'{"id": "x"}', "field id: expected number, found string"),
    ]
    ids = spark_table(spark, typed.table).selectExpr("count(*) rows", "count(id) ids", "sum(id) total").first()
    assert (ids.rows, ids.ids, ids.total) == (52, 51, sum(range(51)))
    assert audit(typed.table) == []
    assert load_topic(typed, spark=spark).version is None


def test_a_table_keeps_its_own_schema(spark, topic, options, typed, tmp_path):
    topic(0, [b'{"id": 1}'])
    load_topic(typed, spark=spark)
    topic(0, [b'{"id": 2}'])
    assert load_topic(options, spark=spark).rows == 1
    assert [row["id"] for row in stored(typed.table)] == [1, 2]
    (tmp_path / "schema.json").write_text('{"fields": [{"name": "id", "type": "string"}]}')
    with pytest.raises(SchemaError, match="column id is long in the table and string in the schema"):
        load_topic(typed, spark=spark)


def test_of_two_loads_one_commits_and_the_other_leaves_nothing(spark, topic, options):
    topic(0, [b"a"] * 100)
    second = At(Step.WRITTEN, lambda: load_topic(options, spark=spark))
    with pytest.raises(StaleLedgerError, match="another load committed first"):
        load_topic(options, spark=spark, listener=second)
    assert set(offsets(options.table).values()) == {1}
    assert len(offsets(options.table)) == 100
    assert parquet_files(options.table) == Table.load(options.table, OsFileSystem()).files()
    assert audit(options.table) == []
    assert load_topic(options, spark=spark).version is None


def test_racing_commits_end_with_each_offset_once(spark, topic, typed):
    topic(0, [b'{"id": 1}', b"not json"] * 50)
    barrier, outcomes = threading.Barrier(2, timeout=240), []

    def load():
        try:
            outcomes.append(load_topic(typed, spark=spark, listener=At(Step.WRITTEN, barrier.wait)).version)
        except StaleLedgerError:
            outcomes.append("stale")

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, outcomes)) == ["1", "stale"]
    once = offsets(typed.table) + offsets(dead_letters_dir(typed.table))
    assert len(once) == 100
    assert set(once.values()) == {1}
    assert audit(typed.table) == []


def test_a_failed_attempt_is_repeated_and_leaves_nothing(spark, topic, options, tmp_path):
    topic(0, [b"a"] * 10)
    source, marker = TopicSource(options.bootstrap, "events"), tmp_path / "failed once"

    def read(*wanted):
        yield from read_range(source, *wanted)
        if not marker.exists():
            marker.touch()
            raise OSError("the network went away")

    spec = LoadSpec(
        load_id="load",
        topic="events",
        table=str(tmp_path),
        dead_letters_table=str(tmp_path),
        payload=None,
    )
    with lease(str(tmp_path), "load", OsFileSystem()):
        [result] = run_tasks(spark, [OffsetRange(0, 0, 10)], spec, read, lambda *_: None)
    assert marker.exists()
    assert (result.records, result.value_bytes) == (10, 10)
    assert [Path(path).name for path in parquet_files(str(tmp_path))] == [file.name for file in result.files]


def test_a_topic_deleted_under_the_load_stops_it_and_leaves_nothing(spark, broker, topic, options):
    topic(0, [b"a"] * 100)
    with (
        Cluster(broker.bootstrap) as cluster,
        pytest.raises(LoadFailedError, match=r"loading events: .*Error: .*events") as raised,
    ):
        load_topic(options, spark=spark, listener=At(Step.PLANNED, lambda: Admin(cluster).delete_topic("events")))
    assert read_failed_loads(options.table, OsFileSystem()).reason == f"LoadFailedError: {raised.value}"
    assert parquet_files(options.table) == []
    assert read_ledger(options.table).partitions == {}


def test_a_recreated_topic_is_seen(spark, broker, topic, options):
    topic(0, [b"a"] * 10)
    load_topic(options, spark=spark)
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).delete_topic("events")
        Admin(cluster).create_topic("events", 2)
    with pytest.raises(TopicRecreatedError, match="created again"):
        load_topic(options, spark=spark)


def test_another_topic_s_table_is_refused(broker, topic, options, spark):
    topic(0, [b"a"])
    load_topic(options, spark=spark)
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("others", 1)
    others = LoadOptions(topic="others", table=options.table, bootstrap=options.bootstrap)
    with pytest.raises(TopicRecreatedError, match="holds topic events, not others"):
        load_topic(others, spark=spark)


def test_an_unknown_topic_makes_no_table(broker, options, tmp_path):
    with pytest.raises(UnknownTopicError):
        load_topic(options)
    assert not (tmp_path / "table").exists()


def test_the_command_line_shows_ledger_and_audit(spark, topic, options):
    topic(0, [b"a"] * 10)
    load_topic(options, spark=spark)
    run = CommandRunner().invoke
    shown = run(app, ["ledger", options.table, "--json"])
    assert json.loads(shown.stdout)["partitions"]["0"] == {
        "start_offset": 0,
        "next_offset": 10,
        "leader_epoch": 0,
    }
    assert "complete" in run(app, ["audit", options.table]).stdout
    Path(Table.load(options.table, OsFileSystem()).files()[0]).unlink()
    broken = run(app, ["audit", options.table])
    assert broken.exit_code == 1
    assert "it is not there" in broken.stdout
