"""Configuration by named properties, with Kafka's names where Kafka has the property.

A `ConfigKey` declares one property; a table of them parses text into typed values. Unknown names and values
out of range raise InvalidConfigError, which names the property. Values from a file (Java properties format)
and from `NAME=VALUE` arguments are both text; defaults are typed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import javaproperties

from millrace.errors import InvalidConfigError

Value = int | float | bool | str
MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One property: its name, default (which fixes its type), bounds and meaning."""

    name: str
    default: Value
    doc: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] | None = None

    def parse(self, text: str) -> Value:
        """The typed value of a text; InvalidConfigError where it does not fit."""
        value = self._typed(text.strip())
        if isinstance(value, int | float) and not isinstance(value, bool):
            self._check_bounds(value)
        if self.choices is not None and not set(str(value).split(",")) <= set(self.choices):
            raise InvalidConfigError(f"{self.name}={text}: expected one of {', '.join(self.choices)}")
        return value

    def _typed(self, text: str) -> Value:
        kind = type(self.default)
        try:
            if kind is bool:
                return {"true": True, "false": False}[text.lower()]
            value = kind(text)
        except (ValueError, KeyError):
            raise InvalidConfigError(f"{self.name}={text}: not a {kind.__name__}") from None
        if value != value:  # noqa: PLR0124 -- NaN alone is not equal to itself, and no bound holds it
            raise InvalidConfigError(f"{self.name}={text}: not a number")
        return value

    def _check_bounds(self, value: float) -> None:
        if self.minimum is not None and value < self.minimum:
            raise InvalidConfigError(f"{self.name}={value}: below the minimum {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise InvalidConfigError(f"{self.name}={value}: above the maximum {self.maximum}")


class ConfigTable:
    """The properties that a component knows."""

    def __init__(self, keys: Iterable[ConfigKey]) -> None:
        self.keys = {key.name: key for key in keys}

    def parse(self, properties: Mapping[str, str]) -> dict[str, Value]:
        """Typed values of the given properties only; InvalidConfigError for an unknown name or a bad value."""
        return {name: self._key(name).parse(text) for name, text in properties.items()}

    def parse_with_defaults(self, properties: Mapping[str, str]) -> dict[str, Value]:
        """Typed values of every property of the table."""
        return {name: key.default for name, key in self.keys.items()} | self.parse(properties)

    def _key(self, name: str) -> ConfigKey:
        try:
            return self.keys[name]
        except KeyError:
            raise InvalidConfigError(f"unknown property {name}") from None


def read_properties(path: Path) -> dict[str, str]:
    """The properties of a file in Java's format; InvalidConfigError where it can't be read."""
    try:
        with path.open(encoding="utf-8") as file:
            return javaproperties.load(file)
    except (OSError, ValueError) as error:
        raise InvalidConfigError(f"{path}: {error}") from error


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE` arguments as properties; InvalidConfigError for one without `=`."""
    properties: dict[str, str] = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator or not name:
            raise InvalidConfigError(f"{assignment!r}: expected NAME=VALUE")
        properties[name.strip()] = value
    return properties
