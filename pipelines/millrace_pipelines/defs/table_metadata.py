"""What the UI shows of a table: its size, columns, location, newest rows and code, from its log and its newest files.

Keys that begin with `dagster/` are those that the UI knows: it shows the columns on a page of their own, and draws row
counts. Numbers are integers, so that the UI draws them over time.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlencode

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from millrace.fs import FileSystem
from millrace_pipelines.arrow import ENVELOPE_COLUMNS, Field, python_rows
from millrace_pipelines.warehouse.choices import Format, Mode
from millrace_pipelines.warehouse.formats import format_of, load_if_there, load_table, name_of
from millrace_pipelines.warehouse.ledger.ledger import TOPIC_PROPERTY
from millrace_pipelines.warehouse.load.history import TableCommit, described, newest_load
from millrace_pipelines.warehouse.payload.event_time import EventTime
from millrace_pipelines.warehouse.payload.schema import PayloadSchema
from millrace_pipelines.warehouse.payload.types import type_text
from millrace_pipelines.warehouse.rewrite import file_schema, open_file
from millrace_pipelines.warehouse.stores.store import DEAD_LETTERS_SUFFIX, dead_letters_dir
from millrace_pipelines.warehouse.table.columns import as_schema, file_columns, under_present_names
from millrace_pipelines.warehouse.table.table import Table
from millrace_pipelines.warehouse.tables.open import mode_of, own_schema

ROWS = 10
FILES = 5
MAX_CHARACTERS = 40
MAX_ROW_GROUP_BYTES = 256 << 20
CONSOLE_URL = "MILLRACE_CONSOLE_URL"
MARKUP = re.compile(r"([\\`*_\[\]<>|~&#!])")
ESCAPED = r"\\\1"


def preview(table: Table, rows: int = ROWS) -> str:
    """Returns the newest rows, newest first, as a table in Markdown, or words where none can be read.

    The newest file is the one that was added last; its last row group is read. Values are shortened, bytes that are no
    text are shown in hexadecimal digits, and what Markdown would take for markup is escaped.
    """
    try:
        shown = _newest_rows(table, rows)
    except (pa.ArrowException, OSError) as error:
        return f"The newest rows can't be read: {cell(error)}"
    return markdown_table(file_schema(table).names, [list(row.values()) for row in shown]) if shown else "no rows"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Returns a table in Markdown (GitHub's extension), whose cells show the values as short texts."""
    body = [[cell(value) for value in row] for row in rows]
    lines = [[cell(column) for column in columns], ["---"] * len(columns), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(value: object) -> str:
    """Returns a value as a short text that Markdown shows as it is, in one line."""
    if value is None:
        return ""
    text = _bytes_text(value) if isinstance(value, bytes) else str(value)
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return MARKUP.sub(ESCAPED, line if len(line) <= MAX_CHARACTERS else line[: MAX_CHARACTERS - 1] + "…")


def _bytes_text(value: bytes) -> str:
    """Returns bytes as the text that they are in UTF-8, or in hexadecimal digits."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def _newest_rows(table: Table, rows: int) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for name in _newest_files(table)[:FILES]:
        found += reversed(python_rows(_last_rows(table, name, rows - len(found))))
        if len(found) >= rows:
            break
    return found


def _newest_files(table: Table) -> list[str]:
    """Returns the names of a table's data files, newest first."""
    actions = table.add_actions().select(["path", "modification_time"]).to_pylist()
    newest = sorted(actions, key=lambda action: (action["modification_time"], action["path"]), reverse=True)
    return [unquote(str(action["path"])) for action in newest]


def _last_rows(table: Table, name: str, rows: int) -> pa.Table:
    """Reads the last rows of a file; none where its last row group is larger than Millrace writes them."""
    schema = file_schema(table)
    with open_file(table, name) as file:
        last = file.num_row_groups - 1
        if last < 0 or file.metadata.row_group(last).total_byte_size > MAX_ROW_GROUP_BYTES:
            return schema.empty_table()
        present = file_columns(file.schema_arrow, table.field_ids, schema.names)
        names = [column.name for column in present.values()]
        group = file.read_row_group(last, columns=names, use_threads=False)
        first = file.metadata.num_rows - group.num_rows
    kept = table.kept_rows().get(name)
    if kept is not None:
        group = group.filter(pa.array(kept[first : first + group.num_rows]))
    newest = group.slice(max(0, group.num_rows - rows)).combine_chunks()
    batches = [under_present_names(batch, present) for batch in newest.to_batches()]
    return as_schema(pa.Table.from_batches(batches), schema) if batches else schema.empty_table()


DESCRIPTIONS: Mapping[str, str] = {
    "topic": "The record's topic.",
    "partition": "The record's partition.",
    "offset": "The record's offset in its partition.",
    "timestamp": "The record's time; null where it has none.",
    "key": "The record's key.",
    "value": "The record's value as it came.",
    "headers": "The record's headers.",
}
LETTER_DESCRIPTIONS: Mapping[str, str] = {
    "error": "Why the record is no row.",
    "reason": "The kind of error, by which letters are selected.",
    "schema_id": "The id of the registered schema that the value names.",
    "load_id": "The load that met the record.",
    "ledger": "The ledger of that load.",
    "replay": "The number of the replay that made a row of the record; null where it waits.",
    "timestamp_ms": "The record's own time where it is outside of the years 1 to 9999; else null.",
    "header_keys": "The keys of the record's headers as they are, where one is null or not UTF-8; else null.",
}
VALUE = "value"
ROW_COUNT = "dagster/row_count"
COLUMN_SCHEMA = "dagster/column_schema"
COLUMN_LINEAGE = "dagster/column_lineage"
TABLE_NAME = "dagster/table_name"
URI = "dagster/uri"
STORAGE_KIND = "dagster/storage_kind"
STORAGE_KINDS: Mapping[Format, str] = {Format.DELTA: "deltalake", Format.ICEBERG: "iceberg"}
"""What Dagster calls the formats."""
FORMAT_NAMES: Mapping[Format, str] = {Format.DELTA: "a Delta", Format.ICEBERG: "an Iceberg"}
TABLE_ID = "table id"
COMMITTED_VERSION = "committed version"

Metadata = dict[str, dg.MetadataValue]


def column_schema(
    columns: pa.Schema, payload: PayloadSchema | None, *, one_row_per_key: bool = False
) -> dg.TableSchema:
    """Returns the columns with their types, as declarations write them, and what each of them holds.

    Args:
        columns: The table's columns.
        payload: The declared schema that the table keeps; None for raw records and for dead letters.
        one_row_per_key: Whether the table has the newest record of each key.
    """
    return dg.TableSchema(
        columns=[_column(field, payload) for field in columns],
        constraints=dg.TableConstraints(other=["one row for each key"] if one_row_per_key else []),
    )


def column_lineage(columns: pa.Schema, payload: PayloadSchema, topic: dg.AssetKey) -> dg.TableColumnLineage:
    """Returns what each column of a typed table is made of: a part of the record, or a field of its value.

    A field is named by its path, as in `value.carrier`.
    """
    return dg.TableColumnLineage(
        {
            field.name: [dg.TableColumnDep(asset_key=topic, column_name=_source(field.name, payload.event_time))]
            for field in columns
        }
    )


def _column(field: Field, payload: PayloadSchema | None) -> dg.TableColumn:
    return dg.TableColumn(
        field.name,
        type_text(field.type),
        description=_description(field.name, payload),
        constraints=dg.TableColumnConstraints(nullable=field.nullable),
    )


def _description(name: str, payload: PayloadSchema | None) -> str | None:
    if name in DESCRIPTIONS:
        return DESCRIPTIONS[name]
    if payload is None:
        return LETTER_DESCRIPTIONS.get(name)
    if _is_partition_column(name, payload.event_time):
        return (
            f"The {name.removeprefix('event_')} of {_source(name, payload.event_time)}, by which files are in folders."
        )
    return f"The field {name} of the record's value."


def _source(name: str, event_time: EventTime | None) -> str:
    """Returns the name of what a column is made of: a column of the envelope (the record itself), or `value.FIELD`."""
    if event_time is not None and _is_partition_column(name, event_time):
        name = event_time.column
    return name if name in ENVELOPE_COLUMNS else f"{VALUE}.{name}"


def _is_partition_column(name: str, event_time: EventTime | None) -> bool:
    return event_time is not None and name == event_time.partition_field.name


def console_page(console: str, topic: str) -> str:
    """Returns the address of a topic's page in the console, from which links lead to its groups and its tables."""
    return f"{console.rstrip('/')}/topic?{urlencode({'name': topic})}"


def table_metadata(table: Table, fs: FileSystem, *, topic: dg.AssetKey | None = None) -> Metadata:
    """Returns Dagster's metadata of a table of rows or of dead letters.

    It costs about the same however many rows the table has: the log says how many there are, and ten rows are read.

    Args:
        table: The version that is shown.
        fs: The disk.
        topic: The asset of the table's topic, for the lineage of typed columns; None leaves it out.

    Raises:
        WarehouseError: The table's log, or that of its dead letters, can't be read.
    """
    payload = own_schema(table)
    shown: Metadata = {
        ROW_COUNT: dg.MetadataValue.int(rows_of(table)),
        COLUMN_SCHEMA: dg.MetadataValue.table_schema(
            column_schema(table.schema, payload, one_row_per_key=mode_of(table) is Mode.UPSERT)
        ),
        TABLE_NAME: dg.MetadataValue.text(name_of(table.address)),
        URI: dg.MetadataValue.text(uri_of(table.location)),
        "newest rows": dg.MetadataValue.md(preview(table)),
        STORAGE_KIND: dg.MetadataValue.text(STORAGE_KINDS[format_of(table.address)]),
        "table files": dg.MetadataValue.int(table.add_actions().num_rows),
        "table bytes": dg.MetadataValue.int(total(table, "size_bytes")),
        "table version": dg.MetadataValue.int(table.version),
        TABLE_ID: dg.MetadataValue.text(table.id),
        **_snapshot(table),
    }
    if (console := os.environ.get(CONSOLE_URL)) and TOPIC_PROPERTY in table.configuration:
        shown["console"] = dg.MetadataValue.url(console_page(console, table.configuration[TOPIC_PROPERTY]))
    if payload is not None and topic is not None:
        shown[COLUMN_LINEAGE] = dg.MetadataValue.column_lineage(column_lineage(table.schema, payload, topic))
    if not _has_dead_letters(table):
        dead_letters = load_if_there(dead_letters_dir(table.address), fs)
        shown["dead letters in total"] = dg.MetadataValue.int(0 if dead_letters is None else rows_of(dead_letters))
        shown["dead letters that wait"] = dg.MetadataValue.int(waiting_letters(dead_letters))
    if (load := newest_load(table)) is not None and load.records_per_second is not None:
        shown["records per second"] = dg.MetadataValue.int(load.records_per_second)
    return shown


def _snapshot(table: Table) -> Metadata:
    """Returns the id by which a format's readers name the version, and the table's address; none for Delta."""
    if (snapshot := table.snapshot_id) is None:
        return {}
    return {
        "snapshot id": dg.MetadataValue.text(str(snapshot)),  # a number of 19 digits, which the UI would round
        "table address": dg.MetadataValue.text(table.address),
    }


def loaded_metadata(location: str, version: int, fs: FileSystem, *, topic: dg.AssetKey | None = None) -> Metadata:
    """Returns the metadata of the commit that made a version, followed by that of the table as it is now.

    Dagster keeps the order. Raises WarehouseError where the log of the table or of its dead letters can't be read.
    """
    table = load_table(location, fs)
    commit = table.commit_of(version)
    done = {} if commit is None else commit_metadata(table, described(commit))
    return {**done, **table_metadata(table, fs, topic=topic), **done}


def commit_metadata(table: Table, commit: TableCommit) -> Metadata:
    """Returns the metadata of one commit of a table; in a table of dead letters, its rows are the dead letters."""
    rows = {"rows": commit.rows, "dead letters": commit.dead_letters}
    if _has_dead_letters(table):
        rows = {"rows": commit.dead_letters}
    shown: Metadata = {
        "kind": dg.MetadataValue.text(commit.kind),
        **{name: dg.MetadataValue.int(number) for name, number in rows.items()},
        "bytes": dg.MetadataValue.int(commit.bytes),
        "committed at": dg.MetadataValue.timestamp(commit.time_ms / 1000),
        COMMITTED_VERSION: dg.MetadataValue.int(commit.version),
        TABLE_ID: dg.MetadataValue.text(table.id),
    }
    if commit.removed:
        shown["records removed"] = dg.MetadataValue.int(commit.removed)
    if commit.records_per_second is not None:
        shown["records per second"] = dg.MetadataValue.int(commit.records_per_second)
    return shown


def rows_of(table: Table) -> int:
    """Returns how many rows the log says that a table has."""
    return total(table, "num_records")


def total(table: Table, column: str) -> int:
    """Returns the sum of a numeric column of the log's add actions over all files; 0 where the log has none."""
    return _sum(table.add_actions().column(column).to_pylist())


def waiting_letters(dead_letters: Table | None) -> int:
    """Returns how many dead letters no replay has made rows of, from the log: those whose column `replay` is null."""
    if dead_letters is None:
        return 0
    actions = dead_letters.add_actions()
    if "null_count.replay" not in actions.column_names:
        return rows_of(dead_letters)
    return _sum(pc.coalesce(actions.column("null_count.replay"), actions.column("num_records")).to_pylist())


def uri_of(location: str) -> str:
    """Returns a table's address: `file:///…` of a folder, or the `s3://…` that it is."""
    return location if "://" in location else Path(location).absolute().as_uri()


def _has_dead_letters(table: Table) -> bool:
    return table.location.endswith(DEAD_LETTERS_SUFFIX)


def _sum(numbers: Iterable[object]) -> int:
    return sum(number for number in numbers if isinstance(number, int))


Asset = dg.AssetsDefinition | dg.AssetSpec


def linked(assets: Sequence[Asset]) -> list[Asset]:
    """Returns the assets with links to their functions in the source; an asset without a function here gets none."""
    with warnings.catch_warnings():  # links are in beta: their fields are few, and a change would fail the tests
        warnings.simplefilter("ignore", dg.BetaWarning)
        return cast("list[Asset]", list(dg.with_source_code_references(assets)))
