"""A table's columns as the UI shows them: name, type, whether a row may lack it, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg
import pyarrow as pa

from millrace_pipelines.arrow import Field
from millrace_pipelines.spark.envelope import ENVELOPE_COLUMNS
from millrace_pipelines.warehouse.payload.event_time import EventTime
from millrace_pipelines.warehouse.payload.schema import PayloadSchema
from millrace_pipelines.warehouse.payload.types import type_text

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
    """Returns the part of a record that a column is made of."""
    if event_time is not None and _is_partition_column(name, event_time):
        name = event_time.column
    return name if name in ENVELOPE_COLUMNS else f"{VALUE}.{name}"


def _is_partition_column(name: str, event_time: EventTime | None) -> bool:
    return event_time is not None and name == event_time.partition_field.name
