"""Configuration by named properties, with Kafka's names where Kafka has the property.

A `ConfigKey` declares one property; a table of them parses text into typed values. Unknown names and values
out of range raise InvalidConfigError, which names the property. Values from a file (Java properties format)
and from `NAME=VALUE` arguments are both text; defaults are typed.

A dataclass whose fields are `setting`s is such a table and its typed values in one; the field `num_partitions` is the
property `num.partitions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, TypedDict, TypeVar, Unpack

import javaproperties

from millrace.errors import InvalidConfigError, MalformedValueError
from millrace.suggestions import did_you_mean

Value = int | float | bool | str
Given = TypeVar("Given")
Default = TypeVar("Default", bound=Value)
MAX_PORT = 65_535
MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1


class ConfigType(IntEnum):
    """The types of properties' values, with their numbers in the protocol (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Synonym(NamedTuple):
    """A broker property whose value times `factor` is the default of another property."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One property: its name, default (which fixes its type), bounds and meaning.

    A whole number whose maximum is 2³¹ - 1 is Kafka's INT, any other its LONG. A list is text with commas, each element
    of which is one of `choices` or matches `pattern`. `has_default` is False where Kafka's default is null, since
    another property decides. `kind` is the type where default and bounds don't tell it: SHORT and CLASS. A property
    without effect is accepted, since Kafka's files and tools name it, and ignored. One that `is_shown_if_set` is left
    out of descriptions otherwise, as Kafka does not have it.
    """

    name: str
    default: Value
    doc: str
    minimum: int | None = None
    maximum: float | None = None
    choices: tuple[str, ...] | None = None
    pattern: str | None = None
    is_list: bool = False
    is_secret: bool = False
    is_dynamic: bool = False
    has_default: bool = True
    has_effect: bool = True
    is_shown_if_set: bool = False
    ignores_case: bool = False
    kind: ConfigType | None = None
    synonyms: tuple[Synonym, ...] = ()

    @property
    def type(self) -> ConfigType:
        """The type of the property's values, as DescribeConfigs responses name it."""
        if self.kind is not None:
            return self.kind
        match self.default:
            case bool():
                return ConfigType.BOOLEAN
            case float():
                return ConfigType.DOUBLE
            case int():
                return ConfigType.INT if self.maximum is not None and self.maximum <= MAX_INT else ConfigType.LONG
        if self.is_list:
            return ConfigType.LIST
        return ConfigType.PASSWORD if self.is_secret else ConfigType.STRING

    def parse(self, text: str) -> Value:
        """Returns a property's value from its text, by type; raises InvalidConfigError for an invalid one."""
        value = self._typed(text.strip())
        if isinstance(value, int | float) and not isinstance(value, bool):
            self._check_bounds(value)
        elements = [str(value)]
        if self.is_list:
            elements = [one.strip() for one in text.split(",")] if text.strip() else []
        if self.choices is not None and not set(map(self._folded, elements)) <= set(map(self._folded, self.choices)):
            raise self._invalid(text, f"String must be one of: {', '.join(self.choices)}")
        if self.pattern is not None and not all(re.fullmatch(self.pattern, one) for one in elements):
            raise self._invalid(text, f"does not have the form {self.pattern}")
        return ",".join(elements) if self.is_list else value

    def _folded(self, text: str) -> str:
        return text.lower() if self.ignores_case else text

    def _typed(self, text: str) -> Value:
        kind = type(self.default)
        try:
            if kind is bool:
                return {"true": True, "false": False}[text.lower()]
            value = kind(text if kind is str else text.replace("_", "?"))  # Python alone takes 1_000 for a number
        except (ValueError, KeyError):
            expected = "Expected value to be either true or false" if kind is bool else self._not_a_number
            raise self._invalid(text, expected) from None
        if value != value:  # noqa: PLR0124 -- NaN alone is not equal to itself, and no bound holds it
            raise self._invalid(text, self._not_a_number)
        return value

    @property
    def _not_a_number(self) -> str:
        return f"Not a number of type {self.type.name}"

    def _check_bounds(self, value: float) -> None:
        if self.minimum is not None and value < self.minimum:
            raise self._invalid(value, f"Value must be at least {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise self._invalid(value, f"Value must be no more than {self.maximum}")

    def _invalid(self, value: object, reason: str) -> InvalidConfigError:
        """Returns the error for a bad value, with Kafka's wording, which scripts search for; omits a secret value."""
        said = "" if self.is_secret else f" {value}"
        return InvalidConfigError(f"Invalid value{said} for configuration {self.name}: {reason}")


class Rules(TypedDict, total=False):
    """Optional arguments of `setting` that describe its property further; `ConfigKey` has the same fields."""

    minimum: int | None
    maximum: float
    choices: tuple[str, ...]
    pattern: str
    is_list: bool
    is_secret: bool
    is_dynamic: bool
    has_default: bool
    has_effect: bool
    is_shown_if_set: bool
    ignores_case: bool
    kind: ConfigType


NO_RULES: Mapping[str, Rules] = {}


class Settings(Protocol):
    """A dataclass whose fields declare properties by `setting`."""

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]

    def __init__(self, **values: Value) -> None: ...


AnySettings = TypeVar("AnySettings", bound=Settings)


def setting(default: Default, doc: str, *, synonyms: tuple[Synonym, ...] = (), **rules: Unpack[Rules]) -> Default:
    """Returns a dataclass field that declares a property, with this default and documentation; for `Settings` classes.

    Whole numbers have 64 bits unless the rules set narrower bounds.
    """
    widest: Rules = {"maximum": MAX_LONG} if isinstance(default, int) and not isinstance(default, bool) else {}
    key = partial(ConfigKey, default=default, doc=doc, synonyms=synonyms)
    return field(default=default, metadata={"key": key, "widest": widest, "rules": rules})


def declared_keys(settings: type[Settings], known: Mapping[str, Rules] = NO_RULES) -> tuple[ConfigKey, ...]:
    """Returns the properties that a settings dataclass declares by those of its fields that `setting` made.

    `known` are rules by property name, which hold unless the field's own `setting` says otherwise.
    """
    names = {one.name.replace("_", "."): one.metadata for one in fields(settings) if one.metadata}
    return tuple(
        told["key"](name=name, **{**told["widest"], **known.get(name, {}), **told["rules"]})
        for name, told in names.items()
    )


def build(settings: type[AnySettings], values: Mapping[str, Value]) -> AnySettings:
    """Returns an instance of a settings dataclass with these typed values by property name; others have defaults."""
    return settings(**_by_field(values))


def changed(settings: AnySettings, values: Mapping[str, Value]) -> AnySettings:
    """Returns a copy of `settings` in which the properties in `values` have these values."""
    return replace(settings, **_by_field(values))


def _by_field(values: Mapping[str, Value]) -> dict[str, Value]:
    return {name.replace(".", "_"): value for name, value in values.items()}


def value_text(value: Value) -> str:
    """Returns a value as text in Kafka's notation: `true`, `42`, `1.0E10`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value).upper().replace("E+", "E") if isinstance(value, float) else str(value)


class ConfigTable:
    """The properties that a component knows, by name; converts their values from text."""

    def __init__(self, keys: Iterable[ConfigKey]) -> None:
        self.keys = {key.name: key for key in keys}

    def parse(self, properties: Mapping[str, str]) -> dict[str, Value]:
        """Returns typed values of only these properties; raises InvalidConfigError for an unknown name or bad value."""
        return {name: self._key(name).parse(text) for name, text in properties.items()}

    def known(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Returns those of the given properties whose names the table knows."""
        return {name: text for name, text in properties.items() if name in self.keys}

    def _key(self, name: str) -> ConfigKey:
        try:
            return self.keys[name]
        except KeyError:
            raise InvalidConfigError(f"unknown property {name}{did_you_mean(name, self.keys)}") from None


class PropertyLine(NamedTuple):
    """A property's value in a file, and the number of the line on which the property starts."""

    value: str
    line: int


def read_properties(path: Path) -> dict[str, PropertyLine]:
    """Returns the properties in a Java properties file; the last of a repeated one. Raises InvalidConfigError."""
    found, line = {}, 1
    try:
        with path.open(encoding="utf-8") as file:
            for element in javaproperties.parse(file):
                if isinstance(element, javaproperties.KeyValue):
                    found[element.key] = PropertyLine(element.value, line)
                line += element.source.count("\n")
    except (OSError, ValueError) as error:
        raise InvalidConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return found


def under_one_name(given: Iterable[tuple[str, Given]], synonyms: Mapping[str, str]) -> dict[str, Given]:
    """Returns properties under their main names, to which `synonyms` maps each other name.

    Raises InvalidConfigError where a property is given twice with different values.
    """
    properties: dict[str, Given] = {}
    for written, value in given:
        name = synonyms.get(written, written)
        if properties.setdefault(name, value) != value:
            raise InvalidConfigError(f"{written}: {name} is given twice, with different values")
    return properties


def whole_number(text: str, maximum: int) -> int | None:
    """Returns the number in a text of ASCII digits; None for other text or a number above the maximum."""
    digits = text.lstrip("0")
    if not (text.isascii() and text.isdecimal()) or len(digits) > len(str(maximum)):
        return None
    number = int(digits or "0")
    return number if number <= maximum else None


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """Returns `NAME=VALUE` arguments as properties; raises MalformedValueError for one without `=`."""
    properties: dict[str, str] = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator or not name:
            raise MalformedValueError(f"{assignment!r}: expected NAME=VALUE")
        properties[name.strip()] = value
    return properties
