"""The tables of a load: created by the first load, kept to their topic, and brought to the declared schema."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from millrace.fs import FileSystem
from millrace_pipelines.spark.envelope import ENVELOPE_FIELDS
from millrace_pipelines.spark.errors import TopicRecreatedError
from millrace_pipelines.warehouse.delta.compression import COMPRESSION_PROPERTY, Compression, compression_properties
from millrace_pipelines.warehouse.delta.location import dead_letters_dir
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import SchemaError, StaleLedgerError, TableNotFoundError
from millrace_pipelines.warehouse.ledger.ledger import TOPIC_ID_PROPERTY, TOPIC_PROPERTY, ledger_of
from millrace_pipelines.warehouse.payload.dead_letter import DEAD_LETTER_FIELDS, DEAD_LETTER_SCHEMA
from millrace_pipelines.warehouse.payload.evolution import Evolution, evolve
from millrace_pipelines.warehouse.payload.payload import Payload
from millrace_pipelines.warehouse.payload.schema import ChangedTypes, PayloadSchema, parse_payload_schema
from millrace_pipelines.warehouse.payload.sources import source_fields, versions_of
from millrace_pipelines.warehouse.tables.choices import Mode
from millrace_pipelines.warehouse.tables.evolve import (
    PAYLOAD_SCHEMA_PROPERTY,
    SCHEMA_KIND,
    apply_evolution,
    payload_columns,
)
from millrace_pipelines.warehouse.tables.mode import check_mode, mode_properties

COMPRESSION_KIND = "compression"


class LoadTables(NamedTuple):
    """The table of rows, the payload that gives values their columns, and the table of dead letters if there is one."""

    rows: Table
    payload: Payload | None
    dead_letters: Table | None


class Wanted(NamedTuple):
    """A declaration's payload, and the changes that bring the table to it."""

    payload: Payload
    evolution: Evolution


def open_tables(
    location: str,
    topic: str,
    topic_id: str,
    payload: PayloadSchema | None,
    fs: FileSystem,
    *,
    mode: Mode | None = None,
    compression: Compression | None = None,
) -> LoadTables:
    """Loads the tables, or creates them, and brings them to the declared schema; without one, to the table's own.

    It does not check whether the ledger belongs to the topic's current id; `ledger.generation` does.

    Raises:
        TopicRecreatedError: The table belongs to another topic.
        SchemaChangedError: A field's type does not fit its column.
        SchemaError: The declared schema can't be used, or asks for other partitions than the table has.
        RegistryError: The schema registry can't be asked.
        ModeError: The table was created for another mode.
        StaleLedgerError: Another commit came between; run again.
    """
    there = _existing(location, topic, fs)
    schema = payload or own_schema(there)
    wanted = None if schema is None else wanted_columns(schema, there, topic)
    properties = {TOPIC_PROPERTY: topic, TOPIC_ID_PROPERTY: topic_id}
    chosen = {**mode_properties(mode), **compression_properties(compression)}
    rows = there or _made(location, topic, {**properties, **chosen}, wanted, fs)
    check_mode(rows, mode)
    _choose_compression(rows, compression)
    if wanted is None:
        return LoadTables(rows, None, None)
    if there is not None:  # a table that was made just now has its columns
        apply_evolution(rows, wanted.payload.schema, wanted.evolution, fs)
    return LoadTables(rows, wanted.payload, _dead_letters(rows, topic, properties, fs))


def _choose_compression(table: Table, compression: Compression | None) -> None:
    """Stores a choice that differs from the table's; raises StaleLedgerError where another commit comes first."""
    properties = compression_properties(compression)
    if compression is not None and table.configuration.get(COMPRESSION_PROPERTY) != compression:
        lineage = {"kind": COMPRESSION_KIND, "compression": str(compression)}
        table.configure(properties, expected={}, transactions={}, lineage=lineage)


def _existing(location: str, topic: str, fs: FileSystem) -> Table | None:
    try:
        table = Table.load_to_write(location, fs)
    except TableNotFoundError:
        return None
    _check_topic(table, topic)
    return table


def own_schema(table: Table | None) -> PayloadSchema | None:
    """Returns the declaration that a table keeps; None for a table of raw envelopes."""
    text = None if table is None else table.configuration.get(PAYLOAD_SCHEMA_PROPERTY)
    return None if text is None else parse_payload_schema(text)


def wanted_columns(schema: PayloadSchema, table: Table | None, topic: str) -> Wanted:
    """Returns what a schema makes of a table, or of one that is to be created; raises as `open_tables` does."""
    if table is not None:
        _check_partitions(schema, table)
    versions = versions_of(schema, topic)
    fields = source_fields(schema, versions)
    columns = pa.schema([]) if table is None else payload_columns(table)
    evolution = evolve(columns, fields, keep_types=schema.changed_types is ChangedTypes.DEAD_LETTER)
    known = {version.schema_id: version for version in versions}
    return Wanted(Payload(schema, evolution.columns, known), evolution)


def _check_partitions(schema: PayloadSchema, table: Table) -> None:
    """Raises SchemaError where the schema asks for other partitions, for a table keeps the partitions that it has."""
    asked = [] if schema.event_time is None else [schema.event_time.partition_field.name]
    own = own_schema(table)
    column = own and own.event_time and own.event_time.column
    if asked != table.partition_columns or (asked and schema.event_time and column != schema.event_time.column):
        raise SchemaError(
            f"{table.location} is partitioned by {', '.join(table.partition_columns) or 'nothing'}"
            f"{f' of {column}' if column else ''}, the schema asks for {', '.join(asked) or 'nothing'}"
            f"{f' of {schema.event_time.column}' if schema.event_time else ''}; load into another table"
        )


def _made(location: str, topic: str, properties: dict[str, str], wanted: Wanted | None, fs: FileSystem) -> Table:
    """Creates the table; returns what another load created if that was first."""
    columns: list[pa.Field[pa.DataType]] = list(ENVELOPE_FIELDS)
    partition_by: list[str] = []
    if wanted is not None:
        properties = properties | {PAYLOAD_SCHEMA_PROPERTY: wanted.payload.schema.to_json()}
        columns += list(wanted.payload.columns)
        if (event_time := wanted.payload.schema.event_time) is not None:
            columns.append(event_time.partition_field)
            partition_by.append(event_time.partition_field.name)
    table = Table.load_or_create(
        location, fs, schema=pa.schema(columns), name=topic, configuration=properties, partition_by=partition_by
    )
    _check_topic(table, topic)
    if own_schema(table) != (wanted and wanted.payload.schema):
        raise StaleLedgerError(f"{table.location} was created by another load just now, for another schema; run again")
    return table


def _dead_letters(rows: Table, topic: str, properties: dict[str, str], fs: FileSystem) -> Table:
    table = Table.load_or_create(
        dead_letters_dir(rows.location),
        fs,
        schema=DEAD_LETTER_SCHEMA,
        name=f"{topic} dead letters",
        configuration=properties,
    )
    _check_topic(table, topic)
    missing = [field for field in DEAD_LETTER_FIELDS if field.name not in table.schema.names]
    if missing:
        added = [field.name for field in missing]
        table.add_columns(pa.schema(missing), lineage={"kind": SCHEMA_KIND, "added": added, "widened": []})
    return table


def _check_topic(table: Table, topic: str) -> None:
    ledger = ledger_of(table)
    if ledger.topic != topic:
        raise TopicRecreatedError(f"{table.location} holds topic {ledger.topic}, not {topic}; load into another table")
