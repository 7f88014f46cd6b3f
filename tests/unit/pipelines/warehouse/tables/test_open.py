"""Looking at the tables of a load changes nothing, and says what making them would do."""

import json

import pyarrow as pa
import pytest

from millrace.fs import OsFileSystem
from millrace_pipelines.spark.errors import TopicRecreatedError
from millrace_pipelines.warehouse.choices import Mode
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import ModeError, SchemaChangedError, SchemaError, StaleLedgerError
from millrace_pipelines.warehouse.ledger.ledger import Ledger, LedgerEntry, check_ledger, ledger_of, swap
from millrace_pipelines.warehouse.payload.schema import parse_payload_schema
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.table.files import write_file
from millrace_pipelines.warehouse.tables.open import TableChanges, look_at_tables, make_tables
from millrace_support.small_tables import open_tables
from millrace_support.unchanged import unchanged

FS = OsFileSystem()
EMPTY = Ledger("events", "id", {})


def schema(**fields):
    return parse_payload_schema(json.dumps({"fields": [{"name": n, "type": kind} for n, kind in fields.items()]}))


@pytest.fixture
def location(tmp_path):
    return str(tmp_path / "t")


@pytest.fixture
def look(tmp_path, location):
    def look(declared=None, *, topic="events", mode=None):
        with unchanged(tmp_path):
            return look_at_tables(location, topic, "id", declared, FS, mode=mode)

    return look


def commit(table, offset):
    """Appends a row and moves the ledger behind it."""
    columns = {name: pa.nulls(1, table.schema.field(name).type) for name in table.schema.names}
    columns |= {"partition": pa.array([0], pa.int32()), "offset": pa.array([offset], pa.int64())}
    file = write_file(table.location, f"load{offset}", pa.table(columns, table.schema), FS)
    expected, transactions = swap(ledger_of(table), {0: LedgerEntry(0, offset + 1)})
    table.commit([file], expected=expected, transactions=transactions, lineage={})


def test_new_tables_are_named_and_made_as_they_were_found_missing(look, location):
    assert look().changes() == TableChanges(created=(location,))
    found = look(schema(a="long", b="string"), mode=Mode.UPSERT)
    assert found.changes() == TableChanges(created=(location, dead_letters_dir(location)), added=("a", "b"))
    assert (found.ledger, found.version, found.is_upserted) == (EMPTY, None, True)
    tables = make_tables(found, FS)
    assert tables.rows.schema.names[-2:] == ["a", "b"]
    found = look()
    assert (found.changes(), found.ledger, found.version, found.is_upserted) == (TableChanges(), EMPTY, 0, True)


def test_columns_are_named_before_they_are_added_or_widened(look, location):
    tables = open_tables(location, "events", "id", schema(a="integer"), FS)
    for offset in range(2):
        commit(tables.rows, offset)
    assert look(schema(a="integer")).changes() == TableChanges()
    assert look(schema(b="string")).changes() == TableChanges(added=("b",))
    wider = look(schema(a="long", b="string"))
    assert wider.changes() == TableChanges(added=("b",), widened=("a",), rewritten_files=2)
    made = make_tables(wider, FS)
    assert made.rows.schema.field("a").type == pa.int64()
    check_ledger(made.rows, wider.ledger)
    assert look().changes() == TableChanges()


def test_what_can_not_be_made_is_refused_before_anything_is_changed(look, location):
    open_tables(location, "events", "id", schema(a="string"), FS)
    for error, how in (
        (TopicRecreatedError, {"topic": "other"}),
        (SchemaChangedError, {"declared": schema(a="boolean")}),
        (ModeError, {"mode": Mode.UPSERT}),
    ):
        with pytest.raises(error):
            look(**how)
    partitioned = {"fields": [{"name": "at", "type": "timestamp"}], "event_time": {"column": "at"}}
    with pytest.raises(SchemaError, match="is partitioned by nothing"):
        look(parse_payload_schema(json.dumps(partitioned)))


def test_a_plan_holds_only_for_the_ledger_that_it_was_made_from(look, location):
    """Two loads find no table; the second one's plan would append the first one's records again."""
    first, second = look(), look()
    commit(make_tables(first, FS).rows, 0)
    with pytest.raises(StaleLedgerError, match="between this one's plan and its tables"):
        check_ledger(make_tables(second, FS).rows, second.ledger)
    check_ledger(Table.load(location, FS), look().ledger)
