"""The declared schema of a topic's values; docs/warehouse-schemas.md has the whole format.

    {"format": "json",                                        or "avro", "protobuf", "raw"
     "fields": [{"name": "carrier", "type": "string", "nullable": false}, …],
     "schema": "flight.avsc", "message": "flights.Flight",     for values that are not framed
     "registry": "http://127.0.0.1:8081", "subject": "flights-value",
     "columns": {"timestamp": "sent_at", …}, "changed_types": "stop", "event_time": {…}}

`nullable` (default true) says whether a record may lack the field. A column is nullable in any case, for a tombstone
(a null value) has no fields at all. A table keeps its declaration, with the schema's text in it.

The names of columns are those of the payload's fields, unless the declaration gives others:

    {"columns": {"timestamp": "sent_at", "address/zip code": "zip_code", "legs/[]/from": "origin"}}

A field is named by its path, as messages name it: the fields around it, `[]` for the elements of a list, `value` and
`key` for those of a map. Its column has another name and is elsewhere the same. Decoders know only fields; what they
return is renamed without a copy.

Every name, at the top and inside of types, has to be one that Delta Lake takes and that Spark and DuckDB, to which case
makes no difference, can tell from its neighbours.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

import pyarrow as pa

from millrace_pipelines.arrow import ENVELOPE_COLUMNS, Field, combined
from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.payload.event_time import EventTime, parse_event_time
from millrace_pipelines.warehouse.payload.protobuf import compile_proto
from millrace_pipelines.warehouse.payload.registry import Format, read_text
from millrace_pipelines.warehouse.payload.types import (
    children,
    column_of,
    declare_fields,
    list_of,
    map_of,
    parse_fields,
)

FORBIDDEN_IN_NAMES = re.compile(r"[ ,;{}()\n\t=]")
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


class ColumnNames:
    """The declared names of columns that differ from their fields' names, by the fields' paths."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = dict(given)
        self._paths = {(path.rpartition("/")[0], name): path for path, name in self._given.items()}

    def columns(self, fields: Iterable[Field]) -> list[Field]:
        """Returns the fields renamed to the names of their columns."""
        return [self._column(field, "") for field in fields]

    def fields(self, columns: Iterable[Field]) -> list[Field]:
        """Returns the columns renamed to the names of their fields."""
        return [self._field(column, "") for column in columns]

    def renamed(self, table: pa.Table) -> pa.Table:
        """Returns a table of decoded fields with its columns renamed to the names of columns."""
        if not self._given:
            return table
        columns = self.columns(table.schema)
        arrays = [combined(column).view(field.type) for column, field in zip(table.columns, columns, strict=True)]
        return pa.Table.from_arrays(arrays, schema=pa.schema(columns))

    def without_field(self, fields: Iterable[Field]) -> list[str]:
        """Returns the declared paths that lead to none of these fields, and to no field inside of them."""
        there = {path for path, _ in _inside(fields, "")}
        return [path for path in self._given if path not in there]

    def _column(self, field: Field, within: str) -> Field:
        path = _below(within, field.name)
        return pa.field(self._given.get(path, field.name), _named(field.type, path, self._column), field.nullable)

    def _field(self, column: Field, within: str) -> Field:
        path = self._paths.get((within, column.name)) or _below(within, column.name)
        name = path[len(within) + 1 :] if within else path
        return pa.field(name, _named(column.type, path, self._field), column.nullable)


def _below(within: str, name: str) -> str:
    return f"{within}/{name}" if within else name


def _named(data_type: pa.DataType, path: str, named: Callable[[Field, str], Field]) -> pa.DataType:
    """Returns a type with the fields in it renamed; `named` takes a field and the path around it."""
    if pa.types.is_struct(data_type):
        return pa.struct([named(field, path) for field in children(data_type)])
    if pa.types.is_list(data_type):
        element = data_type.value_field
        return list_of(_named(element.type, f"{path}/[]", named), nullable=element.nullable)
    if pa.types.is_map(data_type):
        key, value = data_type.key_field, data_type.item_field
        keys, values = (_named(one.type, f"{path}/{one.name}", named) for one in (key, value))
        return map_of(keys, values, nullable=value.nullable)
    return data_type


def _check_names(fields: Iterable[Field], columns: Iterable[Field], taken: Mapping[str, str], within: str) -> None:
    """Raises SchemaError where names of columns side by side, or inside of them, are not valid or not unique."""
    seen = dict(taken)
    for field, column in zip(fields, columns, strict=True):
        path, name = f"{within}{field.name}", column.name
        if not name:
            raise SchemaError(f"field {path!r} has no name; {_way_on(path, 'name')}")
        if FORBIDDEN_IN_NAMES.search(name):
            free = FORBIDDEN_IN_NAMES.sub("_", name)
            raise SchemaError(
                f"field {path!r}: a column's name has no space and none of ,;{{}}()=; {_way_on(path, free)}"
            )
        if (other := seen.get(name.casefold())) is not None:
            raise SchemaError(f"field {path} has the name of {other}; {_way_on(path, f'{name}_2')}")
        seen[name.casefold()] = f"field {path}"
        for (inside, one), (_, other_one) in zip(_structs(field.type, path), _structs(column.type, path), strict=True):
            _check_names(children(one), children(other_one), {}, f"{inside}/")


def _way_on(path: str, name: str) -> str:
    return f'"columns": {{"{path}": "{name}"}} in the schema file gives its column another name'


def _structs(data_type: pa.DataType, path: str) -> Iterator[tuple[str, pa.StructType]]:
    """Yields the outermost structs in a type, with their paths."""
    if pa.types.is_struct(data_type):
        yield path, data_type
    elif pa.types.is_list(data_type):
        yield from _structs(data_type.value_type, f"{path}/[]")
    elif pa.types.is_map(data_type):
        yield from _structs(data_type.key_type, f"{path}/key")
        yield from _structs(data_type.item_type, f"{path}/value")


def _inside(fields: Iterable[Field], within: str) -> Iterator[tuple[str, Field]]:
    for field in fields:
        path = f"{within}{field.name}"
        yield path, field
        for inside, struct in _structs(field.type, path):
            yield from _inside(children(struct), f"{inside}/")


class ChangedTypes(StrEnum):
    """The choices for a load where a field's new type and its column's type each have values that the other lacks."""

    STOP = "stop"
    DEAD_LETTER = "dead-letter"


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadSchema:
    """A declaration of how values become columns.

    Attributes:
        format: The format of values, such as `avro`.
        fields: The declared columns; empty where they are those of the schema.
        text: The Avro schema, or the Protobuf descriptor set in base64, of values that are not framed.
        message: Full name of the Protobuf message type.
        registry: A registry's URL or directory; values then have Confluent's frame.
        subject: The registry's subject; None for `<topic>-value`.
        columns: Pairs of a field's path and its column's name, where the names differ.
        changed_types: What to do about fields whose types don't fit their columns.
        event_time: How rows are assigned to partitions; None for a table without partitions.
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
        """Returns the Arrow schema of the declared fields' columns."""
        return pa.schema([column_of(field) for field in self.names.columns(self.fields)])

    @property
    def names(self) -> ColumnNames:
        """Returns the names of columns that differ from their fields'."""
        return ColumnNames(dict(self.columns))

    def named(self, versions: Sequence[Sequence[Field]]) -> list[list[Field]]:
        """Returns the fields of each version of a schema, renamed to the names of their columns.

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
        """Returns the fields of one version of a schema, renamed to the names of their columns.

        Raises SchemaError for a name that no column can have, with the field's path and what to do.
        """
        columns = self.names.columns(fields)
        _check_names(fields, columns, _taken_names(), "")
        return columns

    def to_json(self) -> str:
        """Returns the declaration as JSON, which `parse_payload_schema` reads back."""
        declared = {
            "format": self.format,
            "fields": declare_fields(self.fields) or None,
            "schema_text": self.text,
            "message": self.message,
            "registry": self.registry,
            "subject": self.subject,
            "columns": dict(self.columns) or None,
            "changed_types": self.changed_types,
            "event_time": self.event_time and asdict(self.event_time),
        }
        return json.dumps({name: value for name, value in declared.items() if value is not None})


def declared_schema(path: str | None, columns: Mapping[str, str]) -> PayloadSchema | None:
    """Returns the declaration in a file, with `columns` as further names of columns; None where no file is given.

    Raises SchemaError where the file can't be used, and where `columns` is given without a file.
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
    """Parses a declaration in JSON; raises SchemaError, which names what is wrong.

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
    """Returns a text in the declaration; None where it is missing."""
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
    """Returns pairs of a field's path and its column's name, sorted, so that equal declarations are equal."""
    if not isinstance(declared, dict) or not all(isinstance(name, str) and name for name in declared.values()):
        raise SchemaError('columns are an object {"path/of/the/field": "name of its column", …}')
    return tuple(sorted(declared.items()))


def _taken_names() -> dict[str, str]:
    """Returns, in lower case, the names that payload columns must not have, each with the column that has it."""
    names = {name.casefold(): f"the envelope's column {name}" for name in ENVELOPE_COLUMNS}
    return names | {name: f"the partition column {name}" for name in PARTITION_COLUMNS}


def _schema_text(name: str, directory: str | None, payload_format: Format) -> str:
    """Returns the schema in a file: the text of Avro, or Protobuf's descriptor set in base64."""
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
        if schema.event_time is not None:
            check_event_column(schema.event_time, schema.arrow)


def check_event_column(event_time: EventTime, columns: pa.Schema) -> None:
    """Raises SchemaError unless the event time's column exists and is a timestamp or a date."""
    index = columns.get_field_index(event_time.column)
    if event_time.column != "timestamp" and (index < 0 or not pa.types.is_temporal(columns.field(index).type)):
        raise SchemaError(f"event_time: {event_time.column} is no column of timestamps or dates")
