"""The tables of a load: created by the first load, kept to their topic, and brought to the declared schema.

    look_at_tables     what is there, and what it is to become; nothing is changed
    make_tables        what is missing is created, and what differs is changed

A load plans between the two, so that a load that is refused, and a dry run, leave everything as it was.

A table is brought to the columns of a changed schema before rows of that schema are written:

    1. the declaration, a property of the table          what the table is to become
    2. the columns: added, or                             one commit of metadata
       widened, perhaps with all files rewritten          one commit of metadata, or of metadata and files
    3. rows                                               the load's own commit

A crash leaves the table whole between two of these commits, and the next load, with or without a schema, goes on from
there: it reads the declaration and finds which columns are missing.

Where the format can't widen a column (`Table.widens`), that is a rewrite: every file is read and written once, one
after the other, a row group at a time. Loads that run meanwhile are refused by the ledger.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from millrace.fs import FileSystem
from millrace_pipelines.arrow import ENVELOPE_COLUMNS, ENVELOPE_FIELDS
from millrace_pipelines.spark.errors import TopicRecreatedError
from millrace_pipelines.warehouse.choices import (
    COMPRESSION_PROPERTY,
    Compression,
    Mode,
    compression_properties,
    settled_compression,
)
from millrace_pipelines.warehouse.errors import (
    ModeError,
    SchemaError,
    StaleLedgerError,
    TableNotFoundError,
    TableRefusedError,
)
from millrace_pipelines.warehouse.formats import load_or_create, load_table
from millrace_pipelines.warehouse.ledger.ledger import (
    GENERATION_PROPERTY,
    TOPIC_ID_PROPERTY,
    TOPIC_PROPERTY,
    Ledger,
    check_rows_have_ledger,
    ledger_of,
    swap,
)
from millrace_pipelines.warehouse.payload.conform import Evolution, conform, evolve
from millrace_pipelines.warehouse.payload.outcome import DEAD_LETTER_FIELDS, DEAD_LETTER_SCHEMA
from millrace_pipelines.warehouse.payload.payload import Payload, source_fields, versions_of
from millrace_pipelines.warehouse.payload.schema import ChangedTypes, PayloadSchema, parse_payload_schema
from millrace_pipelines.warehouse.rewrite import rows_to_move
from millrace_pipelines.warehouse.stores.leases import lease
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.table.files import DataFile, DataFileWriter, FieldIds, remove_files_of_load
from millrace_pipelines.warehouse.table.lineage import WrittenLineage
from millrace_pipelines.warehouse.table.row_ids import ROW_ID_COLUMNS, ROW_ID_FIELDS
from millrace_pipelines.warehouse.table.table import Table

PAYLOAD_SCHEMA_PROPERTY = "millrace.payloadSchema"
MODE_PROPERTY = "millrace.mode"
"""Is `upsert` where a table has one row for each key; a table without it has one for each record."""
SCHEMA_KIND = "schema"
COMPRESSION_KIND = "compression"
NEVER_NULL = frozenset({"topic", "partition", "offset"})


def payload_columns(table: Table) -> pa.Schema:
    """Returns a table's payload columns: those after the envelope's, without partition columns."""
    others = {*ENVELOPE_COLUMNS, *table.partition_columns}
    return pa.schema([pa.field(field.name, field.type) for field in table.schema if field.name not in others])


def apply_evolution(table: Table, schema: PayloadSchema, evolution: Evolution, fs: FileSystem) -> None:
    """Changes the table's stored declaration and columns to the given ones, where they differ.

    Raises:
        StaleLedgerError: Another commit came first; run again.
    """
    lineage: WrittenLineage = {"kind": SCHEMA_KIND, "added": evolution.added, "widened": evolution.widened}
    if table.configuration.get(PAYLOAD_SCHEMA_PROPERTY) != schema.to_json():
        table.configure({PAYLOAD_SCHEMA_PROPERTY: schema.to_json()}, expected={}, transactions={}, lineage=lineage)
    changed = {path.partition("/")[0] for path in (*evolution.added, *evolution.widened)}
    if is_rewritten(table, evolution):
        _rewrite(table, evolution.columns, lineage, fs)
    elif changed:
        table.add_columns(pa.schema([field for field in evolution.columns if field.name in changed]), lineage=lineage)


def is_rewritten(table: Table, evolution: Evolution) -> bool:
    """Returns whether an evolution rewrites all files, since it widens columns where the format can't."""
    return bool(evolution.widened) and not table.widens(evolution.columns)


def _rewrite(table: Table, columns: pa.Schema, lineage: WrittenLineage, fs: FileSystem) -> None:
    """Rewrites all data files with the new columns, and sets the table's columns, in one commit."""
    envelope = [field for field in table.schema if field.name in ENVELOPE_COLUMNS]
    partitioned = [field for field in table.schema if field.name in table.partition_columns]
    in_files = pa.schema([*envelope, *columns])
    ledger = ledger_of(table)
    expected, _ = swap(ledger, ledger.partitions)
    load_id = uuid.uuid4().hex
    try:
        with lease(table.location, load_id, fs):
            schema = pa.schema([*in_files, *partitioned])
            files = list(_rewritten(table, in_files, load_id, fs, table.ids_for(schema)))
            table.replace(schema, files, expected=expected, lineage=lineage)
    except BaseException:
        table_now = load_table(table.address, fs)
        if not any(load_id in name for name in table_now.file_names()):
            remove_files_of_load(table.location, load_id, fs)
        raise


def _rewritten(
    table: Table, schema: pa.Schema, load_id: str, fs: FileSystem, field_ids: FieldIds
) -> Iterator[DataFile]:
    partitions, compression = table.partition_values(), settled_compression(table.configuration)
    ids = () if table.row_origins is None else ROW_ID_COLUMNS
    for number, name in enumerate(table.file_names()):
        with DataFileWriter(
            table.location,
            load_id,
            number,
            pa.schema([*schema, *ids]),
            fs,
            partition_values=partitions[name],
            compression=compression,
            field_ids={**field_ids, **ROW_ID_FIELDS} if ids else field_ids,
        ) as writer:
            for rows in rows_to_move(table, name):
                conformed, _ = conform(rows, schema, ())
                for column in ids:
                    conformed = conformed.append_column(column, rows.column(column.name))
                writer.write(conformed)
            if (file := writer.finish()) is not None:
                yield file


class LoadTables(NamedTuple):
    """The table of rows, the decoder of values, and the table of dead letters; None where there is none."""

    rows: Table
    payload: Payload | None
    dead_letters: Table | None


class PlannedColumns(NamedTuple):
    """The decoder of a declared schema, and the changes that it makes to the table's columns."""

    payload: Payload
    evolution: Evolution


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChanges:
    """The changes that `make_tables` makes to the tables of a load.

    `created` has the addresses of new tables, `added` and `widened` the paths of typed columns; `rewritten_files` is
    the number of files that are written again under wider columns.
    """

    created: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()
    rewritten_files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTables:
    """The tables of a load as they were found, and the mode, codec and columns that the load asks for.

    Attributes:
        address: The address of the table of rows.
        topic: The topic's name.
        topic_id: The topic's current id.
        mode: The mode that is asked for; None for the table's own.
        deletion_vectors: Whether a table that is made here has its rows deleted by vectors.
        compression: The codec that is asked for; None for the table's own choice.
        rows: The table of rows; None where there is none yet.
        dead_letters: The table of dead letters; None where there is none yet.
        ledger: The ledger of the rows as it was found; that of a new table is empty.
        wanted: What the declared schema, or the table's own, makes of the table; None for raw envelopes.
    """

    address: str
    topic: str
    topic_id: str
    mode: Mode | None
    deletion_vectors: bool
    compression: Compression | None
    rows: Table | None
    dead_letters: Table | None
    ledger: Ledger
    wanted: PlannedColumns | None

    @property
    def version(self) -> int | None:
        """Returns the version of the table of rows; None where there is none yet."""
        return None if self.rows is None else self.rows.version

    @property
    def is_upserted(self) -> bool:
        """Returns whether the table has, or gets, one row for each key."""
        return (self.mode if self.rows is None else mode_of(self.rows)) is Mode.UPSERT

    def changes(self) -> TableChanges:
        """Returns what is to be created, added and widened before rows can be written."""
        missing = [self.address] if self.rows is None else []
        if self.wanted is None:
            return TableChanges(created=tuple(missing))
        if self.dead_letters is None:
            missing.append(dead_letters_dir(self.address))
        evolution = self.wanted.evolution
        return TableChanges(
            created=tuple(missing),
            added=evolution.added,
            widened=evolution.widened,
            rewritten_files=0
            if self.rows is None or not is_rewritten(self.rows, evolution)
            else len(self.rows.file_names()),
        )


LoadTable = Callable[[str, FileSystem], Table]
"""Loads an existing table: `load_table` changes nothing, `load_to_write` repairs and syncs the log's end."""


def look_at_tables(
    address: str,
    topic: str,
    topic_id: str,
    payload: PayloadSchema | None,
    fs: FileSystem,
    *,
    mode: Mode | None = None,
    deletion_vectors: bool = False,
    compression: Compression | None = None,
    load: LoadTable = load_table,
    access: Access = Access.APPEND,
) -> FoundTables:
    """Looks at the tables of a load, and at what changes by the declared schema, or the table's own without one.

    It does not check whether the ledger belongs to the topic's current id; `next_ledger` does.

    Raises:
        TopicRecreatedError: The table belongs to another topic.
        SchemaChangedError: A field's type does not fit its column.
        SchemaError: The declared schema can't be used, or asks for other partitions than the table has.
        RegistryError: The schema registry can't be asked.
        ModeError: The table was created for another mode.
        LedgerError: The ledger is lost, or does not belong to the rows.
        TableRefusedError: A table uses something of its format that `access`, or what becomes of it, can't obey.
    """
    rows = _existing(address, topic, fs, load)
    schema = payload or own_schema(rows)
    wanted = None if schema is None else wanted_columns(schema, rows, topic)
    dead_letters = _existing_dead_letters(address, topic, fs, load, may_be_another_topics=wanted is None)
    if rows is not None:
        check_mode(rows, mode)
        is_replaced = mode_of(rows) is Mode.UPSERT or (wanted is not None and is_rewritten(rows, wanted.evolution))
        rows.check_access(Access.REMOVE if is_replaced else access)
        _check_nulls(rows)
        _check_envelope(rows)
        check_rows_have_ledger(rows)
    if dead_letters is not None:
        dead_letters.check_access(access)
        dead_letters.check_ledger_copy()
    return FoundTables(
        address=address,
        topic=topic,
        topic_id=topic_id,
        mode=mode,
        deletion_vectors=deletion_vectors,
        compression=compression,
        rows=rows,
        dead_letters=dead_letters,
        ledger=Ledger(topic, topic_id, {}) if rows is None else ledger_of(rows),
        wanted=wanted,
    )


def _check_nulls(table: Table) -> None:
    """Raises TableRefusedError where another engine made a column `NOT NULL` that a load may leave empty."""
    for column in table.schema:
        if not column.nullable and column.name not in NEVER_NULL:
            raise TableRefusedError(
                f"{table.address}: the column {column.name} takes no nulls, and a load may have to write one. Way on: "
                f"`ALTER TABLE … ALTER COLUMN {column.name} DROP NOT NULL`. Nothing was changed"
            )


def _check_envelope(table: Table) -> None:
    """Raises TableRefusedError where another engine renamed or dropped a column of the records themselves."""
    if table.field_ids and (gone := [name for name in ENVELOPE_COLUMNS if name not in table.schema.names]):
        raise TableRefusedError(
            f"{table.address}: the column {gone[0]} is gone or has another name, and each load writes it. Way on: "
            f"`ALTER TABLE … RENAME COLUMN … TO {gone[0]}`, or load into another table. Nothing was changed"
        )


def make_tables(found: FoundTables, fs: FileSystem) -> LoadTables:
    """Creates the tables that are missing, and brings the others to the declared schema and the chosen compression.

    Raises:
        TopicRecreatedError, ModeError: Another load created the table meanwhile, for another topic or mode.
        StaleLedgerError: Another commit came between; run again.
    """
    rows = found.rows or _made(found, fs)
    check_mode(rows, found.mode)
    _choose_compression(rows, found.compression)
    wanted, existing = found.wanted, found.dead_letters
    if wanted is None:
        if existing is None and rows.field_ids:  # which tasks need for the files of dead letters, too
            existing = made_dead_letters(rows, fs)
        return LoadTables(rows, None, None if existing is None else _with_columns_of_today(existing))
    if found.rows is not None:  # a table that was made just now has its columns
        apply_evolution(rows, wanted.payload.schema, wanted.evolution, fs)
    dead_letters = existing or _dead_letters_table(found.address, _topic_properties(found), fs)
    return LoadTables(rows, wanted.payload, _with_columns_of_today(dead_letters))


def _choose_compression(table: Table, compression: Compression | None) -> None:
    """Stores a chosen codec that differs from the table's; raises StaleLedgerError where another commit comes first."""
    properties = compression_properties(compression)
    if compression is not None and table.configuration.get(COMPRESSION_PROPERTY) != compression:
        lineage = {"kind": COMPRESSION_KIND, "compression": str(compression)}
        table.configure(properties, expected={}, transactions={}, lineage=lineage)


def _existing(address: str, topic: str, fs: FileSystem, load: LoadTable) -> Table | None:
    try:
        table = load(address, fs)
    except TableNotFoundError:
        return None
    _check_topic(table, topic)
    return table


def _existing_dead_letters(
    address: str, topic: str, fs: FileSystem, load: LoadTable, *, may_be_another_topics: bool
) -> Table | None:
    """Returns the dead letters beside a table, None without; a raw table has none until its first dead letter."""
    try:
        return _existing(dead_letters_dir(address), topic, fs, load)
    except TopicRecreatedError:
        if may_be_another_topics:
            return None
        raise


def own_schema(table: Table | None) -> PayloadSchema | None:
    """Returns the declaration that a table keeps; None for a table of raw envelopes."""
    text = None if table is None else table.configuration.get(PAYLOAD_SCHEMA_PROPERTY)
    return None if text is None else parse_payload_schema(text)


def wanted_columns(schema: PayloadSchema, table: Table | None, topic: str) -> PlannedColumns:
    """Returns the decoder and column changes of a schema, for `table`, or a new one for None.

    Raises SchemaChangedError, SchemaError or RegistryError, as `look_at_tables` does.
    """
    if table is not None:
        _check_partitions(schema, table)
    versions = versions_of(schema, topic)
    fields = source_fields(schema, versions)
    columns = pa.schema([]) if table is None else payload_columns(table)
    evolution = evolve(columns, fields, keep_types=schema.changed_types is ChangedTypes.DEAD_LETTER)
    known = {version.schema_id: version for version in versions}
    return PlannedColumns(Payload(schema, evolution.columns, known), evolution)


def _check_partitions(schema: PayloadSchema, table: Table) -> None:
    """Raises SchemaError where the schema's partitions are not the table's, which can't be changed."""
    asked = [] if schema.event_time is None else [schema.event_time.partition_field.name]
    own = own_schema(table)
    column = own and own.event_time and own.event_time.column
    if asked != table.partition_columns or (asked and schema.event_time and column != schema.event_time.column):
        raise SchemaError(
            f"{table.address} is partitioned by {', '.join(table.partition_columns) or 'nothing'}"
            f"{f' of {column}' if column else ''}, the schema asks for {', '.join(asked) or 'nothing'}"
            f"{f' of {schema.event_time.column}' if schema.event_time else ''}; load into another table"
        )


def _made(found: FoundTables, fs: FileSystem) -> Table:
    """Creates the table of rows; where another load has created it meanwhile, returns that one."""
    properties = _topic_properties(found) | mode_properties(found.mode) | compression_properties(found.compression)
    columns: list[pa.Field[pa.DataType]] = list(ENVELOPE_FIELDS)
    partition_by: dict[str, str] = {}
    schema = found.wanted and found.wanted.payload.schema
    if found.wanted is not None:
        payload = found.wanted.payload
        properties = properties | {PAYLOAD_SCHEMA_PROPERTY: payload.schema.to_json()}
        columns += list(payload.columns)
        if (event_time := payload.schema.event_time) is not None:
            columns.append(event_time.partition_field)
            partition_by[event_time.partition_field.name] = event_time.column
    table = load_or_create(
        found.address,
        fs,
        schema=pa.schema(columns),
        name=found.topic,
        configuration=properties,
        partition_by=partition_by,
        deletion_vectors=found.deletion_vectors,
    )
    _check_topic(table, found.topic)
    if own_schema(table) != schema:
        raise StaleLedgerError(f"{table.address} was created by another load just now, for another schema; run again")
    return table


def made_dead_letters(rows: Table, fs: FileSystem) -> Table:
    """Returns the table of dead letters beside a table of raw envelopes; makes it where there is none yet."""
    ledger = ledger_of(rows)
    properties = {TOPIC_PROPERTY: ledger.topic, TOPIC_ID_PROPERTY: ledger.topic_id}
    return _dead_letters_table(rows.address, properties | {GENERATION_PROPERTY: str(ledger.generation)}, fs)


def _dead_letters_table(address: str, properties: Mapping[str, str], fs: FileSystem) -> Table:
    """Returns the table of dead letters, which is created where it is missing."""
    topic = properties[TOPIC_PROPERTY]
    name = f"{topic} dead letters"
    table = load_or_create(
        dead_letters_dir(address), fs, schema=DEAD_LETTER_SCHEMA, name=name, configuration=properties
    )
    _check_topic(table, topic)
    return table


def _with_columns_of_today(table: Table) -> Table:
    """Returns a table of dead letters after adding the columns that it lacks because it is older."""
    missing = [field for field in DEAD_LETTER_FIELDS if field.name not in table.schema.names]
    if missing:
        added = [field.name for field in missing]
        table.add_columns(pa.schema(missing), lineage={"kind": SCHEMA_KIND, "added": added, "widened": []})
    return table


def _topic_properties(found: FoundTables) -> dict[str, str]:
    return {TOPIC_PROPERTY: found.topic, TOPIC_ID_PROPERTY: found.topic_id}


def _check_topic(table: Table, topic: str) -> None:
    ledger = ledger_of(table)
    if ledger.topic != topic:
        raise TopicRecreatedError(f"{table.address} holds topic {ledger.topic}, not {topic}; load into another table")


def mode_properties(mode: Mode | None) -> dict[str, str]:
    """Returns the table properties by which a new table stores its mode."""
    return {MODE_PROPERTY: str(Mode.UPSERT)} if mode is Mode.UPSERT else {}


def mode_of(table: Table) -> Mode:
    """Returns a table's mode; raises ModeError for an unknown one."""
    mode = table.configuration.get(MODE_PROPERTY, Mode.APPEND)
    try:
        return Mode(mode)
    except ValueError:
        raise ModeError(f"{table.address}: {MODE_PROPERTY} is {mode!r}, not one of {', '.join(Mode)}") from None


def check_mode(table: Table, mode: Mode | None) -> None:
    """Raises ModeError where a mode is requested that is not the table's."""
    if mode is not None and mode is not mode_of(table):
        raise ModeError(f"{table.address} was created for {mode_of(table)}, not {mode}; load into another table")
