"""Columns of a table: the raw envelope, then the typed columns of a declared payload (spec H4).

A payload's schema is declared in JSON, with Delta's names of types:

    {"fields": [{"name": "carrier", "type": "string", "nullable": false},
                {"name": "dep_delay", "type": "double"},
                {"name": "time_hour", "type": "timestamp"}]}

`nullable` (default true) says whether a record may lack the field; a column is nullable in any case, for a
tombstone (null value) has no fields at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from millrace.records.arrow import RECORD_FIELDS, TIMESTAMP_TYPE
from millrace_pipelines.warehouse.errors import SchemaError

ENVELOPE_FIELDS: list[pa.Field[Any]] = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    *RECORD_FIELDS,
]
ENVELOPE_SCHEMA = pa.schema(ENVELOPE_FIELDS)
ENVELOPE_COLUMNS = tuple(ENVELOPE_SCHEMA.names)
DEAD_LETTER_FIELDS: list[pa.Field[Any]] = [*ENVELOPE_FIELDS, pa.field("error", pa.string())]
DEAD_LETTER_SCHEMA = pa.schema(DEAD_LETTER_FIELDS)

PAYLOAD_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": TIMESTAMP_TYPE,
    "date": pa.date32(),
}
FORBIDDEN_IN_NAMES = re.compile(r"[ ,;{}()\n\t=]")
FIELD_KEYS = {"name", "type", "nullable"}


@dataclass(frozen=True, slots=True)
class PayloadField:
    """One declared field; `type` is a key of PAYLOAD_TYPES."""

    name: str
    type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class PayloadSchema:
    """The declared fields of a JSON payload, in the order of their columns."""

    fields: tuple[PayloadField, ...]

    @property
    def arrow(self) -> pa.Schema:
        """The typed columns."""
        fields: list[pa.Field[Any]] = [pa.field(field.name, PAYLOAD_TYPES[field.type]) for field in self.fields]
        return pa.schema(fields)

    def to_json(self) -> str:
        """The declaration, as `parse_payload_schema` reads it."""
        return json.dumps({"fields": [asdict(field) for field in self.fields]})


def table_schema(payload: PayloadSchema | None) -> pa.Schema:
    """The columns of a table: the envelope, then the payload's."""
    return pa.schema([*ENVELOPE_FIELDS, *payload.arrow]) if payload else ENVELOPE_SCHEMA


def read_payload_schema(path: str) -> PayloadSchema:
    """The declaration in a file; SchemaError where it can't be read or used."""
    try:
        with open(path, encoding="utf-8") as file:
            return parse_payload_schema(file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"{path}: {error}") from error
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from error


def parse_payload_schema(text: str) -> PayloadSchema:
    """The declaration in a text; SchemaError names the field that can't be used."""
    try:
        declared = json.loads(text)["fields"]
    except (ValueError, KeyError, TypeError) as error:
        raise SchemaError('a schema is a JSON object {"fields": [{"name": …, "type": …}, …]}') from error
    if not isinstance(declared, list) or not declared:
        raise SchemaError("a schema declares at least one field")
    fields = tuple(_field(number, entry) for number, entry in enumerate(declared, start=1))
    _check_names(fields)
    return PayloadSchema(fields)


def _field(number: int, entry: object) -> PayloadField:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
        raise SchemaError(f"field {number} has no name")
    name, type_name, nullable = entry["name"], entry.get("type"), entry.get("nullable", True)
    if not isinstance(type_name, str) or type_name not in PAYLOAD_TYPES:
        raise SchemaError(f"field {name}: type {type_name!r} is not one of {', '.join(PAYLOAD_TYPES)}")
    if not isinstance(nullable, bool):
        raise SchemaError(f"field {name}: nullable is {nullable!r}, not true or false")
    if unknown := entry.keys() - FIELD_KEYS:
        raise SchemaError(f"field {name}: {', '.join(sorted(unknown))} is not known")
    if FORBIDDEN_IN_NAMES.search(name):
        raise SchemaError(f"field {name!r}: a column's name has no space and none of ,;{{}}()=")
    return PayloadField(name, type_name, nullable)


def _check_names(fields: tuple[PayloadField, ...]) -> None:
    """Spark and Delta hold names equal that differ in case only."""
    taken = {name.casefold(): f"the envelope's column {name}" for name in ENVELOPE_COLUMNS}
    for field in fields:
        if (other := taken.get(field.name.casefold())) is not None:
            raise SchemaError(f"field {field.name} has the name of {other}")
        taken[field.name.casefold()] = f"field {field.name}"
