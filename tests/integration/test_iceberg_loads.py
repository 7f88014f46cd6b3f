"""Loads from a real broker through a real Spark into Iceberg tables of an embedded catalog, beside Delta's."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord
from millrace_ops.cli.app import app
from millrace_pipelines.spark.session import local_master, spark_session
from millrace_pipelines.warehouse import preview_load
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.errors import StaleLedgerError
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, read_ledger
from millrace_pipelines.warehouse.load.load import load_topic
from millrace_pipelines.warehouse.load.options import LoadOptions, SilentListener, Step
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_support.command_runner import CommandRunner
from millrace_support.iceberg_catalogs import CATALOGS, catalog
from millrace_support.iceberg_tables import load_range, made, other_engine
from millrace_support.pages import blocks

FS = OsFileSystem()
ROOT = Path(__file__).parents[2]
ID = {"name": "id", "type": "integer", "nullable": False}
AT = {"name": "at", "type": "timestamp"}
PLAIN = {"fields": [ID, AT]}
NESTED = {
    "fields": [
        {"name": "id", "type": "long", "nullable": False},
        {"name": "price", "type": "decimal(12,2)"},
        AT,
        {"name": "tags", "type": {"type": "array", "elementType": "string", "containsNull": True}},
        {"name": "place", "type": {"type": "struct", "fields": [{"name": "city", "type": "string"}]}},
    ]
}


@pytest.fixture(scope="module")
def spark(warm_loads):
    with spark_session("tests", local_master(2)) as session:
        yield session


@pytest.fixture
def topic(broker):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("events", 2)
        yield lambda partition, values: SyncProducer(cluster).send(
            "events", partition, [NewRecord(value, timestamp_ms=1_700_000_000_000) for value in values]
        )


@pytest.fixture(scope="module", params=CATALOGS)
def tables(request, tmp_path_factory):
    """Runs a catalog of each kind, and yields what the addresses of its tables begin with."""
    with catalog(request.param, tmp_path_factory.mktemp(request.param)) as prefix:
        yield prefix


@pytest.fixture
def options(broker, tables, tmp_path):
    table = f"{tables}shop.events_{tmp_path.name.replace('-', '_')}"
    return LoadOptions(topic="events", table=table, bootstrap=broker.bootstrap, max_records_per_task=40)


@pytest.fixture
def typed(options, tmp_path):
    def declared(schema):
        path = tmp_path / "schema.json"
        path.write_text(json.dumps(schema))
        return replace(options, schema=str(path))

    return declared


def rows(table, *columns):
    """Returns all rows of a table, in the order of their offsets."""
    found = load_table(table, FS).dataset().to_table()
    ordered = found.sort_by([("partition", "ascending"), ("offset", "ascending")])
    return ordered.select(columns or sorted(ordered.column_names)).to_pylist()


def offsets(table):
    return Counter((row["partition"], row["offset"]) for row in rows(table))


def test_rows_are_those_of_a_delta_table(spark, topic, options, tmp_path):
    other = replace(options, table=str(tmp_path / "delta"))
    for number in range(3):
        topic(0, [b"%d" % n for n in range(100)])
        topic(1, [None, b""])
        reports = [load_topic(one, spark=spark) for one in (options, other)]
        assert [(one.rows, one.version) for one in reports] == [(102, number + 1)] * 2
    assert rows(options.table) == rows(other.table)
    assert read_ledger(options.table) == read_ledger(other.table)
    assert load_topic(options, spark=spark).version is None
    for table in (options.table, other.table):
        assert audit(table, bootstrap=options.bootstrap) == []


@pytest.mark.parametrize("granularity", ["day", "hour"])
def test_typed_rows_dead_letters_and_partitions_of_event_time(spark, topic, typed, tmp_path, granularity):
    schema = {**PLAIN, "event_time": {"column": "at", "granularity": granularity}}
    options = typed(schema)
    topic(0, [b'{"id": %d, "at": "2024-01-%02dT05:00:00Z"}' % (n, 1 + n % 3) for n in range(30)])
    topic(1, [b"not json", b'{"id": 5}'])
    other = replace(options, table=str(tmp_path / "delta"))
    for one in (options, other):
        report = load_topic(one, spark=spark)
        assert (report.rows, report.dead_letters) == (31, 1)
    table = load_table(options.table, FS)
    name = "event_date" if granularity == "day" else "event_hour"
    assert table.partition_columns == [name]
    assert sorted(map(str, (values[name] for values in table.partition_values().values()))) == [
        *(f"2024-01-0{day}{'' if granularity == 'day' else ' 05:00:00'}" for day in (1, 2, 3)), "None",
    ]  # fmt: skip
    columns = ("partition", "offset", "id", "at")
    assert rows(options.table, *columns) == rows(other.table, *columns)
    letters = [rows(dead_letters_dir(one.table), "partition", "offset", "reason", "error") for one in (options, other)]
    assert letters[0] == letters[1]
    assert audit(options.table, bootstrap=options.bootstrap) == []


def test_columns_are_added_and_widened_under_their_ids(spark, topic, typed):
    topic(0, [b'{"id": 1, "at": "2024-01-01T05:00:00Z"}'])
    load_topic(typed(PLAIN), spark=spark)
    before = load_table(typed(PLAIN).table, FS)
    topic(0, [b'{"id": 5000000000, "price": "1.25", "tags": ["a", null], "place": {"city": "Bern"}}'])
    changes = preview_load(typed(NESTED)).changes
    assert (changes.widened, changes.rewritten_files) == (("id",), 0)
    assert load_topic(typed(NESTED), spark=spark).rows == 1
    table = load_table(typed(NESTED).table, FS)
    assert table.schema.field("id").type == pa.int64()
    assert {path: one for path, one in table.field_ids.items() if path in before.field_ids} == before.field_ids
    found = rows(table.address, "id", "price", "tags", "place")
    assert [(row["id"], str(row["price"]), row["tags"], row["place"]) for row in found] == [
        (1, "None", None, None),
        (5_000_000_000, "1.25", ["a", None], {"city": "Bern"}),
    ]
    assert set(before.file_names()) < set(table.file_names())
    assert audit(table.address, bootstrap=typed(NESTED).bootstrap) == []


def test_columns_that_iceberg_can_t_widen_are_written_again(spark, topic, typed):
    topic(0, [b'{"id": 7, "at": "2024-01-01T05:00:00Z"}'])
    load_topic(typed(PLAIN), spark=spark)
    before = load_table(typed(PLAIN).table, FS)
    wider = {"fields": [{**ID, "type": "double"}, AT, {"name": "city", "type": "string"}]}
    assert preview_load(typed(wider)).changes.rewritten_files == 1
    topic(0, [b'{"id": 1.5, "city": "Bern"}'])
    assert load_topic(typed(wider), spark=spark).rows == 1
    table = load_table(typed(wider).table, FS)
    assert [tuple(row.values()) for row in rows(table.address, "id", "city")] == [(7.0, None), (1.5, "Bern")]
    assert other_engine(table.address).scan().to_arrow().sort_by("offset").column("id").to_pylist() == [7.0, 1.5]
    assert table.field_ids["id",] not in before.field_ids.values()
    assert not set(before.file_names()) & set(table.file_names())
    assert audit(table.address, bootstrap=typed(wider).bootstrap) == []


def test_an_empty_topic_commits_nothing(topic, options):
    """Iceberg's Kafka Connect sink makes commits without rows (apache/iceberg 13633)."""
    assert load_topic(options).version is None
    assert load_table(options.table, FS).version == 0
    assert read_ledger(options.table).partitions == {}


def test_an_idle_partition_stops_no_commit(spark, topic, options):
    """Tasks without records stop the commits of Iceberg's Kafka Connect sink (apache/iceberg 17811)."""
    topic(1, [b"v"])
    assert load_topic(options, spark=spark).rows == 1
    assert read_ledger(options.table).partitions == {0: LedgerEntry(0, 0), 1: LedgerEntry(0, 1)}


class At(SilentListener):
    """Does something when the load is at a step."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def reached(self, step):
        if step is self.step:
            self.action()


def test_a_loader_that_was_replaced_commits_nothing(spark, topic, options):
    """A coordinator that was replaced and commits late loses rows in Kafka Connect (apache/iceberg 17551)."""
    topic(0, [b"v"] * 50)
    with pytest.raises(StaleLedgerError):
        load_topic(options, spark=spark, listener=At(Step.WRITTEN, lambda: load_topic(options, spark=spark)))
    assert offsets(options.table) == Counter({(0, n): 1 for n in range(50)})
    assert audit(options.table, bootstrap=options.bootstrap) == []


def test_other_programs_open_the_embedded_catalog_as_the_page_says(tmp_path):
    made(f"iceberg:{tmp_path}/demo.flights")
    load_range(f"iceberg:{tmp_path}/demo.flights", 150)
    [block] = [one for one in blocks(ROOT / "docs" / "iceberg.md") if one.language == "python"]
    names = {}
    exec(compile(block.text.replace("/srv/lake", str(tmp_path)), str(block), "exec"), names)
    assert names["rows"].num_rows == 100


REFUSED = {
    ("checkpoint",): "no checkpoints",
}


def test_commands_work_or_say_in_a_sentence_that_they_do_not_yet(spark, topic, options):
    topic(0, [b"v"] * 3)
    load_topic(options, spark=spark)
    before = load_table(options.table, FS).version
    runner = CommandRunner()
    for command in (
        ["tables"],
        ["ledger"],
        ["audit"],
        ["audit", "--deep"],
        ["audit", "--bootstrap", options.bootstrap],
    ):
        result = runner.invoke(app, ["warehouse", command[0], options.table, *command[1:]])
        assert result.exit_code == 0, result.output
    for (command, *how), sentence in REFUSED.items():
        result = runner.invoke(app, ["warehouse", command, options.table, *how])
        assert result.exit_code == 1
        assert sentence in str(result.exception or result.output)
    assert load_table(options.table, FS).version == before
