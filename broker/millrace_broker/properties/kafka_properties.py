"""The properties of brokers, topics and groups that Apache Kafka 3.9 or 4.1 knows, read from `kafka_properties.tsv`.

    scope     broker, topic or group
    name
    type      the protocol's (KIP-569)
    in 3.9    the default there; `null` where there is none, `!` where one must be given, "" for the empty text,
    in 4.1    and `-` where that version does not know the property
    values    MINIMUM..MAXIMUM, A|B|C, or ~ and a pattern; empty where Kafka takes every value of the type
    changed   live, by broker (live, for one broker at a time), or at the start

A test compares the table with Kafka's own definitions. The properties that this broker obeys are declared in
`broker_config`, `group_config`, `token_config`, `transaction_config`, `storage.config` and for ZooKeeper
`millrace.zk.security`; `without_effect` declares all others.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from millrace.config import MAX_INT, MAX_LONG, ConfigKey, ConfigType, Value

VERSIONS = ("3.9", "4.1")
BROKER, TOPIC, GROUP = "broker", "topic", "group"
UNKNOWN, NULL, REQUIRED, EMPTY = "-", "null", "!", '""'
LIVE, BY_BROKER = "live", "by broker"
MAX_SHORT = 2**15 - 1


class KafkaProperty(NamedTuple):
    """One row of the table."""

    scope: str
    name: str
    type: ConfigType
    defaults: tuple[str, ...]
    values: str
    changed: str

    @property
    def default(self) -> str:
        """The text of the default in Kafka 3.9, or else in the first later version that knows the property."""
        return next(text for text in self.defaults if text != UNKNOWN)

    def is_default(self, text: str) -> bool:
        """Returns whether a value is the default of one of the versions."""
        return text.strip() in {"" if one in (EMPTY, NULL, REQUIRED) else one for one in self.defaults}


@cache
def kafka_properties() -> dict[tuple[str, str], KafkaProperty]:
    """Returns the rows of the table, by scope and name."""
    text = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    return {
        (scope, name): KafkaProperty(scope, name, ConfigType[kind], (older, newer), values, changed)
        for scope, name, kind, older, newer, values, changed in rows
    }


def key_without_effect(row: KafkaProperty, doc: str) -> ConfigKey:
    """Returns the declaration of a property that is checked, stored and described, but not obeyed."""
    minimum, maximum, choices, pattern = _rules(row)
    return ConfigKey(
        name=row.name,
        default=_typed(row),
        doc=doc,
        minimum=minimum,
        maximum=maximum,
        choices=choices,
        pattern=pattern,
        is_list=row.type is ConfigType.LIST,
        is_secret=row.type is ConfigType.PASSWORD,
        is_dynamic=row.changed in (LIVE, BY_BROKER),
        has_default=row.default not in (NULL, REQUIRED),
        has_effect=False,
        ignores_case=choices is not None and choices == tuple(map(str.upper, choices)),
        kind=row.type,
    )


def _rules(row: KafkaProperty) -> tuple[int | None, float | None, tuple[str, ...] | None, str | None]:
    """Returns (minimum, maximum, choices, pattern); a number has at least the bounds of its type."""
    top = {ConfigType.SHORT: MAX_SHORT, ConfigType.INT: MAX_INT, ConfigType.LONG: MAX_LONG}.get(row.type)
    if row.values.startswith("~"):
        return None, top, None, row.values[1:]
    if ".." in row.values:
        low, _, high = row.values.partition("..")
        return int(low), _number(high) if high else top, None, None
    return None if top is None else -top - 1, top, tuple(row.values.split("|")) if row.values else None, None


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


def _typed(row: KafkaProperty) -> Value:
    text = "" if row.default in (NULL, REQUIRED, EMPTY) else row.default
    match row.type:
        case ConfigType.BOOLEAN:
            return text == "true"
        case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
            return int(text or "0")
        case ConfigType.DOUBLE:
            return float(text or "0")
    return text
