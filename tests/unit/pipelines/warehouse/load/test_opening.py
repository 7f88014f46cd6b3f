"""Between a plan and its tables others may commit: a plan of an older ledger is never carried out."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_pipelines.spark.brokers import LogOffsets, TopicDescription
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import StaleLedgerError
from millrace_pipelines.warehouse.ledger.ledger import (
    Ledger,
    LedgerChange,
    LedgerEntry,
    former_ledgers,
    ledger_of,
    swap,
)
from millrace_pipelines.warehouse.load.loader import LoadInputs, RangeLoader
from millrace_pipelines.warehouse.load.options import LoadOptions, SilentListener
from millrace_pipelines.warehouse.payload.schema import parse_payload_schema
from millrace_pipelines.warehouse.table.files import write_file
from millrace_pipelines.warehouse.tables.open import look_at_tables
from millrace_support.small_tables import open_tables

FS = OsFileSystem()


@pytest.fixture
def location(tmp_path):
    return str(tmp_path / "t")


def look(location, *columns, topic_id="id"):
    fields = [{"name": name, "type": "long"} for name in columns]
    schema = parse_payload_schema(json.dumps({"fields": fields})) if fields else None
    tables = look_at_tables(location, "events", topic_id, schema, FS)
    return LoadInputs(TopicDescription(topic_id, (0,)), {0: LogOffsets(0, 9)}, tables)


def open_for_load(location, found, change=None):
    options = LoadOptions(topic="events", table=location, bootstrap="127.0.0.1:1")
    return RangeLoader(options, SilentListener(), FS, SystemClock()).open(found, change)


def commit(table, offset=0):
    """Another load: a row, and the ledger behind it."""
    columns = {name: pa.nulls(1, table.schema.field(name).type) for name in table.schema.names}
    columns |= {"partition": pa.array([0], pa.int32()), "offset": pa.array([offset], pa.int64())}
    file = write_file(table.location, f"other{offset}", pa.table(columns, table.schema), FS)
    expected, transactions = swap(ledger_of(table), {0: LedgerEntry(0, offset + 1)})
    table.commit([file], expected=expected, transactions=transactions, lineage={})


def test_another_load_creates_the_table_and_loads(location):
    found = look(location)
    commit(open_tables(location, "events", "id", None, FS).rows)
    with pytest.raises(StaleLedgerError):
        open_for_load(location, found)
    assert open_for_load(location, look(location)).tables.rows.version == 1


def test_another_load_commits_before_columns_are_added(location):
    open_tables(location, "events", "id", look(location, "a").tables.wanted.payload.schema, FS)
    found = look(location, "a", "b")
    commit(Table.load(location, FS))
    with pytest.raises(StaleLedgerError):
        open_for_load(location, found)
    opened = open_for_load(location, look(location, "a", "b"))
    assert opened.tables.rows.schema.names[-1] == "b"


def test_another_load_commits_before_the_next_ledger_begins(location):
    """Otherwise the next ledger would begin below what is loaded, and some records would have two rows."""
    commit(open_tables(location, "events", "id", None, FS).rows)
    found = look(location)
    following = LedgerChange(replace(found.tables.ledger, generation=1), ())
    commit(Table.load(location, FS), offset=1)
    with pytest.raises(StaleLedgerError):
        open_for_load(location, found, following)
    assert former_ledgers(Table.load(location, FS)) == {}


def test_the_next_ledger_begins_in_both_tables(location):
    open_for_load(location, look(location, "a"))
    change = LedgerChange(Ledger("events", "new", {}), ())
    opened = open_for_load(location, look(location, "a", topic_id="new"), change)
    for table in (opened.tables.rows, opened.tables.dead_letters):
        assert ledger_of(table) == ledger_of(Table.load(table.location, FS)) == change.ledger


@pytest.mark.parametrize("other", [("a", "b"), ("a", "c")])
def test_another_load_adds_columns_first(location, other):
    open_for_load(location, look(location, "a"))
    found = look(location, "a", "b")
    open_for_load(location, look(location, *other))
    with pytest.raises(StaleLedgerError):
        open_for_load(location, found)
    assert {*other, "b"} <= {*open_for_load(location, look(location, "a", "b")).tables.rows.schema.names}
