"""JSON Schema to columns: the properties of an object, as far as columns can express them.

    string → string, with format date-time → timestamp, date → date     object with properties → struct
    integer → long    number → double    boolean → boolean              object with additionalProperties → map
    array with items → array                                            type [X, "null"], or oneOf X and null → X

A property is required where `required` names it and null is not among its types. References inside the text are
followed (`#/definitions/…`, `#/$defs/…`). Values must have the columns' types; further rules of the schema (patterns,
bounds) are not checked. A property without a column type stops the load unless the declared fields leave it out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pyarrow as pa

from millrace.json_values import Json
from millrace.records.arrow import TIMESTAMP_TYPE
from millrace_pipelines.arrow import Field
from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.payload.types import MAX_DEPTH, check_names, list_of, map_of

FORMATS: Mapping[str, pa.DataType] = {"date-time": TIMESTAMP_TYPE, "date": pa.date32()}
PRIMITIVES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}


def json_schema_fields(text: str) -> list[Field]:
    """Returns the columns of a JSON Schema; SchemaError names a property that has none."""
    try:
        root: Json = json.loads(text)
    except ValueError as error:
        raise SchemaError(f"the JSON Schema is no JSON: {error}") from error
    if not isinstance(root, dict):
        raise SchemaError("the JSON Schema is not that of an object")
    document = _Document(root)
    fields = document.fields(document.resolved(root), 0)
    check_names([field.name for field in fields], {})
    return fields


class _Document:
    """One JSON Schema, whose parts may refer to one another."""

    def __init__(self, root: dict[str, Json]) -> None:
        self._root = root

    def resolved(self, schema: Json) -> dict[str, Json]:
        """Returns the schema itself, or the one that its references lead to."""
        for _ in range(MAX_DEPTH):
            if not isinstance(schema, dict):
                break
            if not isinstance(pointer := schema.get("$ref"), str):
                return schema
            schema = self._at(pointer)
        raise SchemaError(f"JSON Schema {str(schema)[:100]}: neither a type nor a reference to one")

    def _at(self, pointer: str) -> Json:
        if not pointer.startswith("#/"):
            raise SchemaError(f"JSON Schema: reference {pointer} leads out of the text")
        found: Json = self._root
        for part in pointer[2:].split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise SchemaError(f"JSON Schema: there is no {pointer}")
            found = found[name]
        return found

    def fields(self, schema: dict[str, Json], depth: int) -> list[Field]:
        """Returns the columns of an object's properties; SchemaError where it has none."""
        properties, listed = schema.get("properties"), schema.get("required")
        required = listed if isinstance(listed, list) else []
        if not isinstance(properties, dict) or not properties:
            raise SchemaError("the JSON Schema is not that of an object with properties")
        if depth > MAX_DEPTH:
            raise SchemaError(f"JSON Schema: types are nested deeper than {MAX_DEPTH}")
        return [self._field(name, part, name in required, depth) for name, part in properties.items()]

    def _field(self, name: str, part: Json, required: bool, depth: int) -> Field:
        try:
            data_type, nullable = self._type(part, depth + 1)
        except SchemaError as error:
            raise SchemaError(f"field {name}: {error}") from None
        return pa.field(name, data_type, nullable or not required)

    def _type(self, part: Json, depth: int) -> tuple[pa.DataType, bool]:
        """Returns the type, and whether null is one of its values."""
        schema = self.resolved(part)
        choices = schema.get("oneOf") or schema.get("anyOf")
        if isinstance(choices, list):
            return self._one_of([self.resolved(choice) for choice in choices], depth)
        kinds = schema.get("type")
        listed: Sequence[Json] = kinds if isinstance(kinds, list) else [kinds]
        present = [kind for kind in listed if kind != "null"]
        if len(present) != 1:
            raise SchemaError(f"JSON Schema type {kinds!r} has no column type")
        return self._of_kind(present[0], schema, depth), len(present) < len(listed)

    def _one_of(self, choices: Sequence[dict[str, Json]], depth: int) -> tuple[pa.DataType, bool]:
        present = [choice for choice in choices if choice.get("type") != "null"]
        if len(present) != 1:
            raise SchemaError("a choice of several JSON Schema types has no column type")
        data_type, nullable = self._type(present[0], depth)
        return data_type, nullable or len(present) < len(choices)

    def _of_kind(self, kind: Json, schema: dict[str, Json], depth: int) -> pa.DataType:
        text_format = schema.get("format")
        if kind == "string" and isinstance(text_format, str) and text_format in FORMATS:
            return FORMATS[text_format]
        if isinstance(kind, str) and kind in PRIMITIVES:
            return PRIMITIVES[kind]
        if kind == "array":
            element, nullable = self._type(schema.get("items"), depth + 1)
            return list_of(element, nullable=nullable)
        if kind == "object" and schema.get("properties"):
            return pa.struct(self.fields(schema, depth))
        if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
            value, nullable = self._type(schema["additionalProperties"], depth + 1)
            return map_of(pa.string(), value, nullable=nullable)
        raise SchemaError(f"JSON Schema type {kind!r} has no column type")
