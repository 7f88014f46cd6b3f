"""Dead letters of a table with one row for each key are not replayed: a letter may be older than its key's row."""

import json

import pyarrow as pa
import pytest

from millrace.errors import WarehouseError
from millrace.fs import OsFileSystem
from millrace_ops.cli.app import app
from millrace_pipelines.warehouse.choices import Mode
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, swap
from millrace_pipelines.warehouse.load.replay import ReplayOptions, replay
from millrace_pipelines.warehouse.payload.outcome import DEAD_LETTER_SCHEMA
from millrace_pipelines.warehouse.payload.schema import parse_payload_schema
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.table.files import write_file
from millrace_support.command_runner import CommandRunner
from millrace_support.small_tables import open_tables

FS = OsFileSystem()
SCHEMA = json.dumps({"fields": [{"name": "name", "type": "string"}]})
LETTER = {"topic": "events", "partition": 0, "offset": 0, "key": b"k", "value": b'{"name": "old"}', "headers": [],
          "reason": "type", "ledger": "id"}  # fmt: skip


@pytest.fixture
def upserted(any_address):
    """A table of newest records with a letter that would decode by now."""
    tables = open_tables(any_address, "events", "id", parse_payload_schema(SCHEMA), FS, mode=Mode.UPSERT)
    letters = tables.dead_letters
    file = write_file(
        letters.location, "load", pa.Table.from_pylist([LETTER], DEAD_LETTER_SCHEMA), FS, letters.field_ids
    )
    for table, files in ((letters, [file]), (tables.rows, [])):
        expected, transactions = swap(ledger_of(table), {0: LedgerEntry(0, 1)})
        table.commit(files, expected=expected, transactions=transactions, lineage={"kind": "load", "ranges": []})
    return tables.rows.address


def versions(address):
    return [load_table(each, FS).version for each in (address, dead_letters_dir(address))]


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_replay_into_a_table_of_newest_records_is_refused(upserted, tmp_path, dry_run):
    before = versions(upserted)
    (tmp_path / "schema.json").write_text(SCHEMA)
    for schema in (None, str(tmp_path / "schema.json")):
        with pytest.raises(WarehouseError, match=r"one row for each key.*reload its range"):
            replay(ReplayOptions(table=upserted, schema=schema, dry_run=dry_run))
    assert versions(upserted) == before


def test_the_command_says_so(upserted):
    refused = CommandRunner().invoke(app, ["dead-letters", "replay", upserted])
    assert refused.exit_code == 1
    assert "one row for each key" in f"{refused.output}{refused.exception}"
