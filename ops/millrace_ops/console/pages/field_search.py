"""Search by the fields of values: conditions on the decoded value of a record, all of which must hold.

    city=Wien               a field is a text, a number, true, false or null
    amount>10 amount<=20    two conditions; numbers are compared as numbers, all else as text
    station.id!=3           a field of a field
    items.price>=5          … or of any element of a list
    name="Bad Ischl"        a text with a space in it

A text that is anything else is no such search, and is looked for as it stands.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from millrace.json_values import JsonValue

MAX_CONDITIONS = 8
MAX_PARTS = 16
CONDITION = re.compile(
    r"""\s*(?P<path>[^\W\d][\w.\-]*)\s*(?P<operator><=|>=|!=|=|<|>)\s*(?:"(?P<quoted>[^"]*)"|(?P<bare>[^\s"=<>!]+))(?=\s|$)"""
)
OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Number: TypeAlias = "int | float"


class Condition(NamedTuple):
    """A comparison of a field, given by its path, with a text."""

    path: tuple[str, ...]
    operator: str
    text: str

    def holds(self, value: JsonValue) -> bool:
        """Returns whether the field, or one of those that the path leads to, compares as asked."""
        return any(_compares(one, self.operator, self.text) for one in fields_at(value, self.path))


def all_hold(conditions: Sequence[Condition], value: JsonValue) -> bool:
    """Returns whether a decoded value fits all conditions; None, for a value that is not decoded, fits none."""
    return value is not None and all(one.holds(value) for one in conditions)


def parse_conditions(text: str) -> Sequence[Condition] | None:
    """Returns the conditions that a search text consists of; None for any other text."""
    found: list[Condition] = []
    at, text = 0, text.rstrip()
    while at < len(text):
        match = CONDITION.match(text, at)
        if match is None or len(found) == MAX_CONDITIONS:
            return None
        path = tuple(match["path"].split("."))
        wanted = match["bare"] if match["quoted"] is None else match["quoted"]
        if len(path) > MAX_PARTS or "" in path:
            return None
        found.append(Condition(path, match["operator"], wanted))
        at = match.end()
    return found or None


def fields_at(value: JsonValue, path: Sequence[str]) -> Iterator[JsonValue]:
    """Yields what a path leads to in a decoded value: through each element of a list, and to a field with dots, too."""
    if isinstance(value, list):
        for one in value:
            yield from fields_at(one, path)
    elif not path:
        yield value
    elif isinstance(value, dict):
        if len(path) > 1 and (whole := ".".join(path)) in value:
            yield from fields_at(value[whole], ())
        elif path[0] in value:
            yield from fields_at(value[path[0]], path[1:])


def _compares(field: JsonValue, symbol: str, text: str) -> bool:
    compare = OPERATORS[symbol]
    if isinstance(field, dict):
        return False
    if isinstance(field, bool) or field is None:
        shown = {True: "true", False: "false", None: "null"}[field]
        return symbol in ("=", "!=") and compare(shown, text)
    if isinstance(field, str):
        return compare(field, text)
    number = _number(text)
    return symbol == "!=" if number is None else compare(field, number)


def _number(text: str) -> Number | None:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None
