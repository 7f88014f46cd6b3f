"""The declared schema of a topic's values; docs/warehouse-schemas.md has the whole format.

    {"format": "json",                                        or "avro", "protobuf", "raw"
     "fields": [{"name": "carrier", "type": "string", "nullable": false}, …],
     "schema": "flight.avsc", "message": "flights.Flight",     for values that are not framed
     "registry": "http://127.0.0.1:8081", "subject": "flights-value",
     "columns": {"timestamp": "sent_at", …}, "changed_types": "stop", "event_time": {…}}

`nullable` (default true) says whether a record may lack the field. A column is nullable in any case, for a tombstone
(a null value) has no fields at all. A table keeps its declaration, with the schema's text in it.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

import pyarrow as pa

from millrace_pipelines.arrow import Field
from millrace_pipelines.spark.envelope import ENVELOPE_COLUMNS, ENVELOPE_FIELDS, ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.payload.column_names import ColumnNames, named_columns
from millrace_pipelines.warehouse.payload.event_time import EventTime, parse_event_time
from millrace_pipelines.warehouse.payload.protobuf.descriptors import compile_proto
from millrace_pipelines.warehouse.payload.registry.files import read_text
from millrace_pipelines.warehouse.payload.registry.registry import Format
from millrace_pipelines.warehouse.payload.types import column_of, declare_fields, parse_fields

KEYS = {
    "format",
    "fields",
    "schema",
    "schema_text",
    "message",
    "registry",
    "subject",
    "columns",
    "changed_types",
    "event_time",
}
PROTO_SUFFIX = ".proto"
PARTITION_COLUMNS = ("event_date", "event_hour")
Choice = TypeVar("Choice", bound=StrEnum)


class ChangedTypes(StrEnum):
    """What a load does where neither of a field's new type and its column's type holds all values of the other."""

    STOP = "stop"
    DEAD_LETTER = "dead-letter"


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadSchema:
    """A declaration.

    Attributes:
        format: What values are made of.
        fields: The declared columns; empty where they are those of the schema.
        text: The Avro schema, or the Protobuf descriptor set in base64, of values that are not framed.
        message: Full name of the Protobuf message type.
        registry: A registry's address, or its directory; values are framed then.
        subject: The registry's subject; None for `<topic>-value`.
        columns: Paths of fields with the names of their columns, where these differ.
        changed_types: What to do about types that don't fit the table's.
        event_time: How rows find their partition; None where the table has none.
    """

    format: Format = Format.JSON
    fields: tuple[Field, ...] = ()
    text: str | None = None
    message: str | None = None
    registry: str | None = None
    subject: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    changed_types: ChangedTypes = ChangedTypes.STOP
    event_time: EventTime | None = None

    @property
    def arrow(self) -> pa.Schema:
        """The columns of the declared fields."""
        return pa.schema([column_of(field) for field in self.names.columns(self.fields)])

    @property
    def names(self) -> ColumnNames:
        """The names of columns that differ from their fields'."""
        return ColumnNames(dict(self.columns))

    def named(self, versions: Sequence[Sequence[Field]]) -> list[list[Field]]:
        """Returns the fields of all versions of a schema under the names of their columns.

        Raises:
            SchemaError: A name can't be that of a column, or is given to a field that no version has.
        """
        missing = [
            path for path in dict(self.columns) if all(path in self.names.without_field(one) for one in versions)
        ]
        if missing:
            raise SchemaError(f"columns: there is no field {', '.join(missing)}")
        return [self.named_version(fields) for fields in versions]

    def named_version(self, fields: Sequence[Field]) -> list[Field]:
        """Returns the fields of one version under the names of their columns.

        Raises SchemaError where these can't be.
        """
        return named_columns(fields, self.names, taken_names())

    def to_json(self) -> str:
        """Returns the declaration that `parse_payload_schema` reads back."""
        declared = {
            "format": self.format,
            "fields": declare_fields(self.fields) or None,
            "schema_text": self.text,
            "message": self.message,
            "registry": self.registry,
            "subject": self.subject,
            "columns": dict(self.columns) or None,
            "changed_types": self.changed_types,
            "event_time": self.event_time and self.event_time.to_json(),
        }
        return json.dumps({name: value for name, value in declared.items() if value is not None})


def table_schema(payload: PayloadSchema | None) -> pa.Schema:
    """Returns the columns of a table: the envelope, then the declared ones."""
    return pa.schema([*ENVELOPE_FIELDS, *payload.arrow]) if payload else ENVELOPE_SCHEMA


def declared_schema(path: str | None, columns: Mapping[str, str]) -> PayloadSchema | None:
    """Returns the declaration in a file with further names of columns; None where no file is given.

    Raises SchemaError where it can't be used, and where columns have names but there is no file.
    """
    if path is None and columns:
        raise SchemaError("names of columns are given together with a schema file, which the table keeps")
    return None if path is None else read_payload_schema(path, columns)


def read_payload_schema(path: str, columns: Mapping[str, str] = MappingProxyType({})) -> PayloadSchema:
    """Reads the declaration in a file; paths in it begin at its directory. Raises SchemaError where it can't be used.

    Args:
        path: The file.
        columns: Names of columns by the paths of their fields, which go before those of the file.
    """
    text = read_text(path)
    try:
        return parse_payload_schema(text, directory=os.path.dirname(os.path.abspath(path)), columns=columns)
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from error


def parse_payload_schema(
    text: str, *, directory: str | None = None, columns: Mapping[str, str] = MappingProxyType({})
) -> PayloadSchema:
    """Parses a declaration; raises SchemaError, which names what can't be used.

    Args:
        text: JSON.
        directory: Where its paths begin; None for a table's own declaration, which has no paths.
        columns: Names of columns, which go before those of the text.
    """
    try:
        declared = json.loads(text)
    except ValueError as error:
        raise SchemaError(f"a schema is a JSON object: {error}") from error
    if not isinstance(declared, dict):
        raise SchemaError('a schema is a JSON object {"fields": [{"name": …, "type": …}, …]}')
    if unknown := declared.keys() - KEYS:
        raise SchemaError(f"{', '.join(sorted(unknown))} is not known")
    schema = _parse(declared, directory)
    schema = replace(schema, columns=_columns({**dict(schema.columns), **columns}))
    _check(schema)
    return schema


def _parse(declared: Mapping[str, object], directory: str | None) -> PayloadSchema:
    texts = {name: _text(declared, name) for name in ("schema", "schema_text", "message", "registry", "subject")}
    event_time, registry = declared.get("event_time"), texts["registry"]
    if registry is not None and directory is not None and "://" not in registry:
        registry = os.path.join(directory, registry)
    payload_format = _choice(declared, "format", Format.JSON)
    return PayloadSchema(
        format=payload_format,
        fields=tuple(parse_fields(declared["fields"])) if "fields" in declared else (),
        text=texts["schema_text"]
        if texts["schema"] is None
        else _schema_text(texts["schema"], directory, payload_format),
        message=texts["message"],
        registry=registry,
        subject=texts["subject"],
        columns=_columns(declared.get("columns", {})),
        changed_types=_choice(declared, "changed_types", ChangedTypes.STOP),
        event_time=None if event_time is None else parse_event_time(event_time),
    )


def _text(declared: Mapping[str, object], name: str) -> str | None:
    """Returns a text of the declaration, None where it is not there."""
    text = declared.get(name, "")
    if not isinstance(text, str):
        raise SchemaError(f"{name} is {text!r}, not a text")
    return text if name in declared else None


def _choice(declared: Mapping[str, object], name: str, default: Choice) -> Choice:
    chosen = declared.get(name, default)
    for choice in type(default):
        if choice == chosen:
            return choice
    raise SchemaError(f"{name} {chosen!r} is not one of {', '.join(type(default))}")


def _columns(declared: object) -> tuple[tuple[str, str], ...]:
    """Returns the paths of fields with the names of their columns, in one order, which makes equal ones the same."""
    if not isinstance(declared, dict) or not all(isinstance(name, str) and name for name in declared.values()):
        raise SchemaError('columns are an object {"path/of/the/field": "name of its column", …}')
    return tuple(sorted(declared.items()))


def taken_names() -> dict[str, str]:
    """Returns the names, in lower case, that no payload's column can have, and what has them."""
    names = {name.casefold(): f"the envelope's column {name}" for name in ENVELOPE_COLUMNS}
    return names | {name: f"the partition column {name}" for name in PARTITION_COLUMNS}


def _schema_text(name: str, directory: str | None, payload_format: Format) -> str:
    """Returns the schema in a file: Avro's text, or the descriptor set of Protobuf in base64."""
    path = os.path.join(directory or "", name)
    if payload_format is not Format.PROTOBUF:
        return read_text(path)
    return base64.b64encode(_descriptor_set(path)).decode()


def _descriptor_set(path: str) -> bytes:
    if not path.endswith(PROTO_SUFFIX):
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise SchemaError(f"{path}: {error.strerror}") from error
    directory = os.path.dirname(path)
    files = {
        name: read_text(os.path.join(directory, name)) for name in os.listdir(directory) if name.endswith(PROTO_SUFFIX)
    }
    return compile_proto(os.path.basename(path), files)


def _check(schema: PayloadSchema) -> None:
    if schema.format is Format.RAW:
        if schema.fields or schema.text or schema.registry or schema.columns:
            raise SchemaError("raw values have no fields, no columns and no schema")
        if schema.event_time is None or schema.event_time.column != "timestamp":
            raise SchemaError("a schema of raw values declares an event_time of the column timestamp")
    elif schema.format is Format.JSON:
        if schema.text is not None:
            raise SchemaError("JSON values have declared fields, or a registry")
        if not schema.fields and schema.registry is None:
            raise SchemaError("a schema declares at least one field")
    elif (schema.text is None) == (schema.registry is None):
        raise SchemaError(f"{schema.format} values have either a schema or a registry")
    if schema.fields:
        schema.named([schema.fields])
    _check_event_time(schema)


def _check_event_time(schema: PayloadSchema) -> None:
    if schema.event_time is None or not schema.fields or schema.event_time.column == "timestamp":
        return
    check_event_column(schema.event_time, schema.arrow)


def check_event_column(event_time: EventTime, columns: pa.Schema) -> None:
    """Raises SchemaError unless the event time's column is there, a timestamp or a date."""
    index = columns.get_field_index(event_time.column)
    if event_time.column != "timestamp" and (index < 0 or not pa.types.is_temporal(columns.field(index).type)):
        raise SchemaError(f"event_time: {event_time.column} is no column of timestamps or dates")
