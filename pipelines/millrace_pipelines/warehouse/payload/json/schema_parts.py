"""The parts of a JSON Schema that hold for a value at once, and those that hold for some values only.

    {"$ref": A, "allOf": [B], "properties": …}    parts: itself, A, B, and what these refer to in turn
    {"oneOf": [A, null], …}                       parts: itself and A, which null need not obey
    {"oneOf": [A, B]}, "if" with "then": A, …     alternatives: A and B, under the keyword

Columns come of parts. An alternative may say more of what the parts have; what it alone has, has no column. Keywords of
which neither is known are refused, so that nothing is left out without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote

from millrace.json_values import Json
from millrace_pipelines.warehouse.errors import SchemaError

MAX_PARTS = 10_000
REFUSED = ("$dynamicRef", "$recursiveRef", "patternProperties", "prefixItems", "additionalItems", "extends")
REFUSED_SCHEMAS = ("unevaluatedProperties", "unevaluatedItems")
CHOICES = ("oneOf", "anyOf")
CONDITIONS = ("then", "else")
DEPENDENT = ("dependentSchemas", "dependencies")

Schema = dict[str, Json]


class Part(NamedTuple):
    """A schema that a value obeys, unless it is null and `null_passes`; only its own keywords count."""

    schema: Schema
    null_passes: bool


@dataclass(slots=True)
class Parts:
    """What holds for a value: all of `parts`; and for some values `alternatives`, each under its keyword."""

    parts: list[Part] = field(default_factory=list)
    alternatives: list[tuple[str, Json]] = field(default_factory=list)

    def values(self, keyword: str) -> Iterator[Json]:
        """Yields what the parts have under a keyword."""
        return (part.schema[keyword] for part in self.parts if keyword in part.schema)


class Document:
    """One JSON Schema, whose parts may refer to one another."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._opened = 0

    def parts(self, schemas: Sequence[Json]) -> Parts:
        """Returns the parts of schemas that hold at once; raises SchemaError, which names what can't be used."""
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
        """Returns what a reference leads to."""
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
    """Yields what holds for values that have a property, or that another schema fits."""
    if "if" in schema:
        yield from ((keyword, schema[keyword]) for keyword in CONDITIONS if keyword in schema)
    for keyword in DEPENDENT:
        dependent = schema.get(keyword)
        if isinstance(dependent, dict):
            yield from ((keyword, one) for one in dependent.values() if not isinstance(one, list))
