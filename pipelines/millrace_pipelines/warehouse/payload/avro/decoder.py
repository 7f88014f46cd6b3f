"""Avro values: one record of a schema each, with nothing before or behind it.

The schema's tree becomes a tree of readers (`avro.values`), each of which reads one field of all values
at once. A union of several types beside null has no column; a schema that holds one is used only where the declared
fields leave it out. A recursive schema can't be used at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeAlias, TypedDict, cast

import numpy as np
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType, parse_schema
from fastavro.types import NamedSchemas

from millrace_pipelines.arrow import Field
from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.payload.avro import values
from millrace_pipelines.warehouse.payload.outcome import Decoded, Part, joined
from millrace_pipelines.warehouse.payload.types import MAX_DECIMAL_PRECISION, MAX_DEPTH

AvroSchema: TypeAlias = "str | list[AvroSchema] | ComplexSchema"
"""A parsed schema: the name of a type, a union, or a type with its parts."""


class AvroField(TypedDict):
    """A field of an Avro record's schema."""

    name: str
    type: AvroSchema


class ComplexSchema(TypedDict, total=False):
    """An Avro type with parts; `type` says which of the parts it has."""

    type: AvroSchema
    name: str
    fields: list[AvroField]
    items: AvroSchema
    values: AvroSchema
    symbols: list[str]
    size: int
    logicalType: str
    precision: int
    scale: int


PRIMITIVES: Mapping[str, Callable[[], values.Node]] = {
    "null": values.Null,
    "boolean": values.Boolean,
    "int": values.Int,
    "long": values.Long,
    "float": lambda: values.Floating(pa.float32(), "<f4"),
    "double": lambda: values.Floating(pa.float64(), "<f8"),
    "bytes": values.Binary,
    "string": values.Text,
}
TIMESTAMPS = {"timestamp-millis": 1000, "timestamp-micros": 1_000_000, "timestamp-nanos": 1_000_000_000}
MAX_CACHED_SCHEMAS = 256


class AvroDecoder:
    """Decodes values of one Avro schema.

    Attributes:
        fields: A field for each of the schema's that has a column type; its `nullable` says whether it may be null.
        without_column: Names of the fields that have none.
    """

    def __init__(self, root: values.Record) -> None:
        self._root = root
        self.fields: list[Field] = list(root.columns)
        self.without_column = [name for name, node in root.fields if node.type is None]

    def decode(self, binary: pa.BinaryArray) -> Decoded:
        """Decodes each value of a binary array without nulls into columns; one that does not fit becomes a refusal."""
        block = values.Block(binary)
        arrays = self._root.arrays(block, np.arange(len(block)), "")
        refusals = list(block.finish())
        table = pa.Table.from_arrays(arrays, schema=pa.schema(self.fields))
        if refusals:
            table = table.filter(pa.array(~block.failed, pa.bool_()))
        return joined([Part(np.flatnonzero(~block.failed), table), *refusals], table.schema)


@lru_cache(maxsize=MAX_CACHED_SCHEMAS)
def avro_decoder(text: str, references: tuple[str, ...] = ()) -> AvroDecoder:
    """Returns the decoder of an Avro schema.

    Args:
        text: The schema in JSON.
        references: Schemas of the types that `text` refers to, each after those that it refers to itself.

    Raises:
        SchemaError: The schema is not valid, not a record's, or recursive.
    """
    named: NamedSchemas = {}
    try:
        for reference in references:
            parse_schema(json.loads(reference), named)
        parsed = parse_schema(json.loads(text), named)
    except (ValueError, KeyError, TypeError, AttributeError, SchemaParseException, UnknownType) as error:
        raise SchemaError(f"the Avro schema is not valid: {error}") from error
    tree = _Tree(cast("Mapping[str, AvroSchema]", named))  # fastavro checks schemas, its types say only `dict`
    root = tree.node(cast("AvroSchema", parsed), ())
    if not isinstance(root, values.Record):
        raise SchemaError("the Avro schema is not that of a record")
    return AvroDecoder(root)


class _Tree:
    """Makes readers (nodes) of parsed Avro schemas, which may refer to types by name."""

    def __init__(self, named: Mapping[str, AvroSchema]) -> None:
        self._named = named

    def node(self, schema: AvroSchema, within: tuple[str, ...]) -> values.Node:
        """Returns the reader of a schema; `within` names the types around it, as many as they are deep."""
        if len(within) > MAX_DEPTH:
            raise SchemaError(f"types are nested deeper than {MAX_DEPTH}")
        if isinstance(schema, list):
            return values.Union([self.node(branch, (*within, "")) for branch in schema])
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return PRIMITIVES[schema]()
            return self.node(self._named[schema], within)
        return self._complex(schema, within)

    def _complex(self, schema: ComplexSchema, within: tuple[str, ...]) -> values.Node:
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, within)
        if kind == "array":
            return values.Array(self.node(schema["items"], (*within, "")))
        if kind == "map":
            return values.Map(self.node(schema["values"], (*within, "")))
        if kind == "enum":
            return values.Enum(schema["symbols"])
        plain = values.Fixed(schema["size"]) if kind == "fixed" else self.node(kind, (*within, ""))
        return _logical(schema, plain)

    def _record(self, schema: ComplexSchema, within: tuple[str, ...]) -> values.Record:
        name = schema["name"]
        if name in within:
            raise SchemaError(f"the Avro record {name} holds itself, which no column can")
        return values.Record([(field["name"], self.node(field["type"], (*within, name))) for field in schema["fields"]])


def _logical(schema: ComplexSchema, plain: values.Node) -> values.Node:
    """Returns the reader of a logical type, or `plain` where the logical type has no column, as Avro asks."""
    logical = schema.get("logicalType")
    if logical == "date" and isinstance(plain, values.Int):
        return values.Date()
    if logical in TIMESTAMPS and isinstance(plain, values.Long):
        return values.Timestamp(TIMESTAMPS[logical])
    if logical == "decimal" and isinstance(plain, values.Binary | values.Fixed):
        precision, scale = schema.get("precision", 0), schema.get("scale", 0)
        if 1 <= precision <= MAX_DECIMAL_PRECISION and 0 <= scale <= precision:
            return values.DecimalNumber(plain, precision, scale)
    return plain
