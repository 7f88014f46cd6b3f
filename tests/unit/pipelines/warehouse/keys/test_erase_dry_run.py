"""A dry run of an erasure says what the erasure then does, and changes nothing."""

from dataclasses import replace

import pyarrow as pa
import pytest

from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.dead_letters import REPLAY_APP_ID, REPLAY_KIND
from millrace_pipelines.warehouse.errors import TableNotFoundError
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.keys.removal import count_rows
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, swap
from millrace_pipelines.warehouse.ledger.plan import OffsetRange
from millrace_pipelines.warehouse.maintenance import vacuum
from millrace_pipelines.warehouse.payload.outcome import DEAD_LETTER_SCHEMA
from millrace_pipelines.warehouse.payload.schema import parse_payload_schema
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.table.files import write_file
from millrace_support.small_tables import open_tables
from millrace_support.unchanged import unchanged

FS = OsFileSystem()
RAW = parse_payload_schema('{"fields": [{"name": "n", "type": "long"}]}')
ENVELOPE = {"topic": "events", "partition": 0, "value": b"v", "headers": []}


def append(table, schema, name, keys, first_offset):
    """Appends a record for each key, in one file."""
    rows = [
        {**ENVELOPE, "key": key, "offset": first_offset + number, "ledger": "id"} for number, key in enumerate(keys)
    ]
    rows = [{column: row[column] for column in row if column in schema.names} for row in rows]
    file = write_file(table.location, name, pa.Table.from_pylist(rows, schema), FS, table.field_ids)
    next_offset = max(first_offset + len(keys), ledger_of(table).next_offset(0) or 0)
    expected, transactions = swap(ledger_of(table), {0: LedgerEntry(0, next_offset)})
    table.commit([file], expected=expected, transactions=transactions, lineage={"kind": "load", "ranges": []})


@pytest.fixture
def address(any_address):
    """Rows of alice and bob in three files, and dead letters of theirs, the last of which are ahead of the rows."""
    tables = open_tables(any_address, "events", "id", RAW, FS)
    schema = pa.schema([*ENVELOPE_SCHEMA, pa.field("n", pa.int64())])
    append(tables.rows, schema, "a", [b"alice", b"bob", b"alice"], 0)
    append(tables.rows, schema, "b", [b"bob"], 3)
    append(tables.rows, schema, "c", [b"bob", b"alice", None], 4)
    append(tables.dead_letters, DEAD_LETTER_SCHEMA, "d", [b"alice", b"bob"], 2)
    append(tables.dead_letters, DEAD_LETTER_SCHEMA, "e", [b"alice", b"alice"], 6)
    return tables.rows.address


def outcomes(address, keys, folder):
    """Returns the reports of a dry run and of the erasure after it."""
    with unchanged(folder):
        would = erase(address, keys, FS, dry_run=True)
    return would, erase(address, keys, FS)


def test_a_dry_run_counts_what_the_erasure_erases(address, tmp_path):
    would, done = outcomes(address, [b"alice"], tmp_path)
    assert would == replace(done, version=None, dry_run=True)
    assert (would.rows, would.dead_letters, would.left, would.files, would.file_rows) == (3, 2, 1, 4, 10)
    would_again, done = outcomes(address, [b"nobody"], tmp_path)
    assert (would_again.rows, would_again.files, would_again.bytes, would_again.version) == (0, 0, 0, None)
    assert done.version is not None
    removed = [vacuum(each, FS, retention_hours=0) for each in (address, dead_letters_dir(address))]
    assert sum(report.bytes for report in removed) == would.bytes


def test_letters_that_a_replay_has_not_marked_yet_count_as_the_erasure_counts_them(address, tmp_path):
    lineage = {"kind": REPLAY_KIND, "number": 1, "letters": {"id": {"0": [[2, 3]]}}}
    load_table(address, FS).commit([], expected={}, transactions={REPLAY_APP_ID: 1}, lineage=lineage)
    would, done = outcomes(address, [b"alice"], tmp_path)
    assert (would.dead_letters, would.rows) == (done.dead_letters, done.rows) == (1, 3)


def test_no_table_is_said_by_both(tmp_path):
    for dry_run in (True, False):
        with unchanged(tmp_path), pytest.raises(TableNotFoundError):
            erase(str(tmp_path / "missing"), [b"alice"], FS, dry_run=dry_run)


def test_rows_of_a_range_are_counted_in_the_files_that_have_some(address, tmp_path):
    table = load_table(address, FS)
    with unchanged(tmp_path):
        assert count_rows(table, [OffsetRange(0, 1, 5)], FS) == {0: 4}
        assert count_rows(table, [OffsetRange(0, 0, 1), OffsetRange(0, 6, 99), OffsetRange(1, 0, 99)], FS) == {0: 2}
        assert count_rows(table, [], FS) == {}
