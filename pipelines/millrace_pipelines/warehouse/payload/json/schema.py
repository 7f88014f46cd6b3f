"""JSON Schema to columns: the properties of an object, as far as columns can express them.

    string → string, with format date-time → timestamp, date → date     object with properties → struct
    integer → long    number → double    boolean → boolean              object with additionalProperties → map
    array with items → array                                            type [X, "null"], or oneOf X and null → X

A property is required where `required` names it and null is not among its types. What a schema refers to (`$ref`, in
the text itself) and its `allOf` count as its own. Values must have the columns' types; further rules
of the schema (patterns, bounds) are not checked. A property without a column type, also one that an alternative alone
has (`anyOf`, `oneOf`, `then` and others), stops the load unless the declared fields leave it out.

    {"$ref": A, "allOf": [B], "properties": …}    parts: itself, A, B, and what these refer to in turn
    {"oneOf": [A, null], …}                       parts: itself and A, which null need not obey
    {"oneOf": [A, B]}, "if" with "then": A, …     alternatives: A and B, under the keyword

Columns come of parts, which hold for a value at once. An alternative may say more of what the parts have; what it alone
has, has no column. Keywords of which neither is known are refused, so that nothing is left out without a word.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from millrace.json_values import Json
from millrace.records.arrow_columns import TIMESTAMP_TYPE
from millrace_pipelines.arrow import Field
from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.payload.types import MAX_DEPTH, list_of, map_of, named_field

MAX_PARTS = 10_000
REFUSED = ("$dynamicRef", "$recursiveRef", "patternProperties", "prefixItems", "additionalItems", "extends")
REFUSED_SCHEMAS = ("unevaluatedProperties", "unevaluatedItems")
CHOICES = ("oneOf", "anyOf")
CONDITIONS = ("then", "else")
DEPENDENT = ("dependentSchemas", "dependencies")

Schema = dict[str, Json]
FORMATS: Mapping[str, pa.DataType] = {"date-time": TIMESTAMP_TYPE, "date": pa.date32()}
PRIMITIVES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}
KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", list: "array"}


class Part(NamedTuple):
    """A JSON Schema that a value has to obey, by its own keywords; with `null_passes`, null need not."""

    schema: Schema
    null_passes: bool


@dataclass(slots=True)
class Parts:
    """The schemas that hold for a value: all of `parts`, and in some cases `alternatives`, each with its keyword."""

    parts: list[Part] = field(default_factory=list)
    alternatives: list[tuple[str, Json]] = field(default_factory=list)

    def values(self, keyword: str) -> Iterator[Json]:
        """Yields the value of a keyword in each of the parts that has it."""
        return (part.schema[keyword] for part in self.parts if keyword in part.schema)


class Document:
    """One JSON Schema document, whose parts may refer to one another by `$ref`."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._opened = 0

    def parts(self, schemas: Sequence[Json]) -> Parts:
        """Returns the parts of schemas that all hold for one value; raises SchemaError, which names a wrong one."""
        found = Parts()
        for schema in schemas:
            self._add(schema, found, (), null_passes=False)
        return found

    def _add(self, schema: Json, found: Parts, met: tuple[str, ...], *, null_passes: bool) -> None:
        self._opened += 1
        if self._opened > MAX_PARTS:
            raise SchemaError(f"the JSON Schema has more than {MAX_PARTS} parts, those that are referred to each time")
        if schema is True:  # lets everything through
            return
        if not isinstance(schema, dict):
            raise SchemaError(f"JSON Schema {str(schema)[:100]}: neither a type nor a reference to one")
        _check_known(schema)
        found.parts.append(Part(schema, null_passes))
        if "$ref" in schema:
            pointer = schema["$ref"]
            self._add(self._at(pointer, met), found, (*met, str(pointer)), null_passes=null_passes)
        for part in _list(schema, "allOf"):
            self._add(part, found, met, null_passes=null_passes)
        for keyword in CHOICES:
            self._add_choice(keyword, _list(schema, keyword), found, met, null_passes=null_passes)
        found.alternatives += _conditional(schema)

    def _add_choice(
        self, keyword: str, choices: Sequence[Json], found: Parts, met: tuple[str, ...], *, null_passes: bool
    ) -> None:
        present = [choice for choice in choices if not self._is_null(choice, met)]
        if len(present) == 1:
            self._add(present[0], found, met, null_passes=null_passes or len(choices) > 1)
        else:
            found.alternatives += [(keyword, choice) for choice in present]

    def _is_null(self, schema: Json, met: tuple[str, ...]) -> bool:
        while isinstance(schema, dict) and "$ref" in schema:
            pointer = schema["$ref"]
            schema, met = self._at(pointer, met), (*met, str(pointer))
        return isinstance(schema, dict) and schema.get("type") in ("null", ["null"])

    def _at(self, pointer: Json, met: tuple[str, ...]) -> Json:
        """Returns the schema that a `$ref` points to; `met` has the references followed so far."""
        if not isinstance(pointer, str) or (pointer != "#" and not pointer.startswith("#/")):
            raise SchemaError(f"JSON Schema: reference {pointer} leads out of the text")
        if pointer in met:
            raise SchemaError(f"JSON Schema: reference {pointer} leads to itself")
        found: Json = self._root
        for part in unquote(pointer).split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, dict) and name in found:
                found = found[name]
            else:
                raise SchemaError(f"JSON Schema: there is no {pointer}")
        return found


def _check_known(schema: Schema) -> None:
    refused = [name for name in REFUSED if schema.get(name)]
    refused += [name for name in REFUSED_SCHEMAS if isinstance(schema.get(name), dict)]
    if isinstance(schema.get("items"), list):
        refused.append("items as a list")
    if refused:
        raise SchemaError(f"JSON Schema: {refused[0]} has no columns")


def _list(schema: Schema, keyword: str) -> Sequence[Json]:
    found = schema.get(keyword, [])
    if not isinstance(found, list):
        raise SchemaError(f"JSON Schema: {keyword} is no list")
    return found


def _conditional(schema: Schema) -> Iterator[tuple[str, Json]]:
    """Yields the subschemas, with their keywords, that hold only under a condition (`if`, dependent schemas)."""
    if "if" in schema:
        yield from ((keyword, schema[keyword]) for keyword in CONDITIONS if keyword in schema)
    for keyword in DEPENDENT:
        dependent = schema.get(keyword)
        if isinstance(dependent, dict):
            yield from ((keyword, one) for one in dependent.values() if not isinstance(one, list))


def json_schema_fields(text: str) -> list[Field]:
    """Returns the columns for a JSON Schema; raises SchemaError, which names a property without a column type."""
    try:
        root: Json = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the JSON Schema is no JSON: {error}") from error
    if not isinstance(root, dict):
        raise SchemaError("the JSON Schema is not that of an object")
    try:
        return _Columns(Document(root)).of_root(root)
    except RecursionError:
        raise SchemaError("the JSON Schema is nested too deep, or holds itself") from None


class _Columns:
    """Derives table columns from the parts of one JSON Schema."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def of_root(self, root: Schema) -> list[Field]:
        """Returns the columns of the document's whole schema."""
        found = self._document.parts([root])
        fields = self.fields(found, 0)
        self.check_alternatives(found)
        return fields

    def fields(self, found: Parts, depth: int) -> list[Field]:
        """Returns the columns of an object's properties; raises SchemaError where it has none."""
        properties = _properties(found)
        required = {name for names in found.values("required") if isinstance(names, list) for name in names}
        if not properties:
            raise SchemaError("the JSON Schema is not that of an object with properties")
        if any(isinstance(one, dict) for one in found.values("additionalProperties")):
            raise SchemaError("JSON Schema: additionalProperties with a schema beside properties has no columns")
        if depth > MAX_DEPTH:
            raise SchemaError(f"JSON Schema: types are nested deeper than {MAX_DEPTH}")
        return [self._field(name, schemas, name in required, depth) for name, schemas in properties.items()]

    def _field(self, name: str, schemas: Sequence[Json], required: bool, depth: int) -> Field:
        try:
            data_type, nullable = self._type(schemas, depth + 1)
        except SchemaError as error:
            raise SchemaError(f"field {name}: {error}") from None
        return named_field(name, data_type, nullable or not required)

    def _type(self, schemas: Sequence[Json], depth: int) -> tuple[pa.DataType, bool]:
        """Returns the column type of values that obey all these schemas, and whether they allow null."""
        found = self._document.parts(schemas)
        kinds = [kinds for part in found.parts if (kinds := _kinds(part.schema)) is not None]
        present = _common(kinds) - {"null"}
        if len(present) != 1:
            raise SchemaError(_why_no_type(found, present))
        data_type = self._of_kind(present.pop(), found, depth)
        self.check_alternatives(found)
        nullable = all(part.null_passes or "null" in (_kinds(part.schema) or ("null",)) for part in found.parts)
        return data_type, nullable

    def _of_kind(self, kind: str, found: Parts, depth: int) -> pa.DataType:
        if kind == "string":
            return _of_format({name for name in found.values("format") if isinstance(name, str) and name in FORMATS})
        if kind in PRIMITIVES:
            return PRIMITIVES[kind]
        if kind == "array" and (items := list(found.values("items"))):
            element, nullable = self._type(items, depth + 1)
            return list_of(element, nullable=nullable)
        if kind == "object" and _properties(found):
            return pa.struct(self.fields(found, depth))
        entries = [one for one in found.values("additionalProperties") if isinstance(one, dict)]
        if kind == "object" and entries:
            value, nullable = self._type(entries, depth + 1)
            return map_of(pa.string(), value, nullable=nullable)
        raise SchemaError(f"JSON Schema type {kind!r} has no column type")

    def check_alternatives(self, found: Parts) -> None:
        """Raises SchemaError where an alternative has a property that the unconditional parts lack."""
        for keyword, schema in found.alternatives:
            for path in self._only_in(self._document.parts(_objects([schema])), found):
                raise SchemaError(f"JSON Schema: {keyword} has {path}, which values of one kind alone have")

    def _only_in(self, alternative: Parts, base: Parts) -> Iterator[str]:
        """Yields the paths of properties that an alternative has, at any depth, and the base lacks."""
        known = _properties(base)
        for name, schemas in _properties(alternative).items():
            if name not in known:
                yield f"property {name}"
            else:
                inside = self._only_in(self._document.parts(_objects(schemas)), self._document.parts(known[name]))
                yield from (f"{path} in {name}" for path in inside)
        if any(isinstance(one, dict) for one in alternative.values("additionalProperties")) and known:
            yield "additionalProperties"
        if items := _objects(alternative.values("items")):
            base_items = self._document.parts(list(base.values("items")))
            yield from self._only_in(self._document.parts(items), base_items)
        for schema in _objects(schema for _, schema in alternative.alternatives):
            yield from self._only_in(self._document.parts([schema]), base)


def _objects(schemas: Iterable[Json]) -> list[Json]:
    """Returns the schemas without `true` and `false`, which have no properties."""
    return [schema for schema in schemas if isinstance(schema, dict)]


def _properties(found: Parts) -> dict[str, list[Json]]:
    """Returns, by property, the schemas that a value of the property has to obey."""
    properties: dict[str, list[Json]] = {}
    for one in found.values("properties"):
        if not isinstance(one, dict):
            raise SchemaError("JSON Schema: properties is no object")
        for name, schema in one.items():
            properties.setdefault(name, []).append(schema)
    return properties


def _kinds(schema: Schema) -> set[str] | None:
    """Returns the JSON types that a schema allows; None where it does not restrict them."""
    kinds = schema.get("type")
    if isinstance(kinds, str):
        return {kinds}
    if isinstance(kinds, list):
        return {str(kind) for kind in kinds}
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list):
        return {"null" if value is None else KINDS[type(value)] for value in values}
    if "properties" in schema:
        return {"object", "null"}
    return {"array", "null"} if "items" in schema else None


def _common(kinds: Iterable[set[str]]) -> set[str]:
    """Returns the types that are in all sets; `number` includes `integer`."""
    common: set[str] | None = None
    for some in kinds:
        wide = some | ({"integer"} if "number" in some else set())
        common = wide if common is None else common & wide
    found = common or set()
    return found - {"integer"} if "number" in found else found


def _why_no_type(found: Parts, present: set[str]) -> str:
    choices = sorted({keyword for keyword, _ in found.alternatives})
    if choices:
        return f"{choices[0]}: a choice of several JSON Schema types has no column type"
    return f"JSON Schema type {sorted(present)} has no column type" if present else "a JSON Schema without a type"


def _of_format(formats: set[str]) -> pa.DataType:
    if len(formats) > 1:
        raise SchemaError(f"JSON Schema: format is {' and '.join(sorted(formats))} at once")
    return FORMATS[formats.pop()] if formats else pa.string()
