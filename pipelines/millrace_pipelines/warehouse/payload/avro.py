"""Avro values: one record of a schema each, with nothing before or behind it.

The schema's tree becomes a tree of readers (`avro_nodes`), each of which reads one field of all values at once.
A union of several types beside null has no column; a schema that holds one is used only where the declared fields
leave it out. A recursive schema can't be used at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.payload import avro_nodes as nodes
from millrace_pipelines.warehouse.payload.avro_block import Block
from millrace_pipelines.warehouse.payload.outcome import Decoded, Part, joined
from millrace_pipelines.warehouse.payload.types import MAX_DECIMAL_PRECISION, MAX_DEPTH, Field, check_names

PRIMITIVES: Mapping[str, Any] = {
    "null": nodes.Null,
    "boolean": nodes.Boolean,
    "int": nodes.Int,
    "long": nodes.Long,
    "float": lambda: nodes.Floating(pa.float32(), "<f4"),
    "double": lambda: nodes.Floating(pa.float64(), "<f8"),
    "bytes": nodes.Binary,
    "string": nodes.Text,
}
TIMESTAMPS = {"timestamp-millis": 1000, "timestamp-micros": 1_000_000, "timestamp-nanos": 1_000_000_000}
MAX_CACHED_SCHEMAS = 256


class AvroDecoder:
    """Decodes values of one schema.

    Attributes:
        fields: A field for each of the schema's that has a column type; its `nullable` says whether it may be null.
        without_column: Names of the others.
    """

    def __init__(self, root: nodes.Record) -> None:
        self._root = root
        self.fields: list[Field] = list(root.columns)
        self.without_column = [name for name, node in root.fields if node.type is None]
        check_names([field.name for field in self.fields], {})

    def decode(self, values: Any) -> Decoded:
        """Columns of a binary array without nulls."""
        block = Block(values)
        arrays = self._root.arrays(block, np.arange(len(block)), "")
        refusals = list(block.finish())
        table = pa.Table.from_arrays(arrays, schema=pa.schema(self.fields))
        if refusals:
            table = table.filter(pa.array(~block.failed))
        return joined([Part(np.flatnonzero(~block.failed), table)], refusals, table.schema)


@lru_cache(maxsize=MAX_CACHED_SCHEMAS)
def avro_decoder(text: str, references: tuple[str, ...] = ()) -> AvroDecoder:
    """A decoder for a schema in JSON; `references` are schemas of types that it names, those they need before them.

    Raises:
        SchemaError: The schema is not valid, not a record's, or recursive.
    """
    named: dict[str, Any] = {}
    try:
        for reference in references:
            parse_schema(json.loads(reference), named)
        parsed = parse_schema(json.loads(text), named)
    except (ValueError, KeyError, TypeError, AttributeError, SchemaParseException, UnknownType) as error:
        raise SchemaError(f"the Avro schema is not valid: {error}") from error
    root = _Tree(named).node(parsed, ())
    if not isinstance(root, nodes.Record):
        raise SchemaError("the Avro schema is not that of a record")
    return AvroDecoder(root)


class _Tree:
    """Readers for parsed schemas; names stand for what is defined elsewhere."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def node(self, schema: Any, within: tuple[str, ...]) -> nodes.Node:
        if len(within) > MAX_DEPTH:
            raise SchemaError(f"types are nested deeper than {MAX_DEPTH}")
        if isinstance(schema, list):
            return nodes.Union([self.node(branch, (*within, "")) for branch in schema])
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                primitive: nodes.Node = PRIMITIVES[schema]()
                return primitive
            return self.node(self._named[schema], within)
        return self._complex(schema, within)

    def _complex(self, schema: Mapping[str, Any], within: tuple[str, ...]) -> nodes.Node:
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, within)
        if kind == "array":
            return nodes.Array(self.node(schema["items"], (*within, "")))
        if kind == "map":
            return nodes.Map(self.node(schema["values"], (*within, "")))
        if kind == "enum":
            return nodes.Enum(schema["symbols"])
        plain = nodes.Fixed(schema["size"]) if kind == "fixed" else self.node(kind, (*within, ""))
        return _logical(schema, plain)

    def _record(self, schema: Mapping[str, Any], within: tuple[str, ...]) -> nodes.Record:
        name = schema["name"]
        if name in within:
            raise SchemaError(f"the Avro record {name} holds itself, which no column can")
        fields: Sequence[Mapping[str, Any]] = schema["fields"]
        return nodes.Record([(field["name"], self.node(field["type"], (*within, name))) for field in fields])


def _logical(schema: Mapping[str, Any], plain: nodes.Node) -> nodes.Node:
    """The reader of a logical type; the plain one for those that have no column type of their own, as Avro asks."""
    logical = schema.get("logicalType")
    if logical == "date" and isinstance(plain, nodes.Int):
        return nodes.Date()
    if logical in TIMESTAMPS and isinstance(plain, nodes.Long):
        return nodes.Timestamp(TIMESTAMPS[logical])
    if logical == "decimal" and isinstance(plain, nodes.Binary | nodes.Fixed):
        precision, scale = schema.get("precision", 0), schema.get("scale", 0)
        if 1 <= precision <= MAX_DECIMAL_PRECISION and 0 <= scale <= precision:
            return nodes.DecimalNumber(plain, precision, scale)
    return plain
