"""The properties of brokers, topics and groups that Apache Kafka 3.9 or 4.1 knows, read from `kafka_properties.tsv`.

    scope     broker, topic or group
    name
    type      the protocol's (KIP-569)
    in 3.9    the default there; `null` where there is none, `!` where one must be given, "" for the empty text,
    in 4.1    and `-` where that version does not know the property
    values    MINIMUM..MAXIMUM, A|B|C, or ~ and a pattern; empty where Kafka takes every value of the type
    changed   live, by broker (live, for one broker at a time), or at the start

A test compares the table with Kafka's own definitions. The properties that this broker obeys are declared in
`broker_config`, `coordinator_config`, `security_config`, `storage.config` and for ZooKeeper `millrace.zk.security`;
`restrictions` declares all others. A declaration of `known_rules` says its default and its meaning. Its type, its
bounds, and whether it can be changed while the broker runs are those of the table, unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from millrace.config import MAX_INT, MAX_LONG, ConfigKey, ConfigType, Rules, Value

VERSIONS = ("3.9", "4.1")
BROKER, TOPIC, GROUP = "broker", "topic", "group"
UNKNOWN, NULL, REQUIRED, EMPTY = "-", "null", "!", '""'
LIVE, BY_BROKER = "live", "by broker"
MAX_SHORT = 2**15 - 1
TOPS = {ConfigType.SHORT: MAX_SHORT, ConfigType.INT: MAX_INT, ConfigType.LONG: MAX_LONG}


class KafkaProperty(NamedTuple):
    """A property that Kafka knows, one row of `kafka_properties.tsv`; the module describes its columns."""

    scope: str
    name: str
    type: ConfigType
    defaults: tuple[str, ...]
    values: str
    changed: str

    @property
    def default(self) -> str:
        """Returns the default in Kafka 3.9 as text, or else that of the first later version that has the property."""
        return next(text for text in self.defaults if text != UNKNOWN)

    def is_default(self, text: str) -> bool:
        """Returns whether a value is the property's default in one of the Kafka versions of the table."""
        return text.strip() in {"" if one in (EMPTY, NULL, REQUIRED) else one for one in self.defaults}


@cache
def kafka_properties() -> dict[tuple[str, str], KafkaProperty]:
    """Returns the properties in `kafka_properties.tsv`, by (scope, name), such as ("broker", "log.dirs")."""
    text = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    return {
        (scope, name): KafkaProperty(scope, name, ConfigType[kind], (older, newer), values, changed)
        for scope, name, kind, older, newer, values, changed in rows
    }


@cache
def known_rules(scope: str) -> Mapping[str, Rules]:
    """Returns the types, bounds and other rules of a scope's properties, by name, from `kafka_properties.tsv`."""
    return {name: _rules(row) for (area, name), row in kafka_properties().items() if area == scope}


def key_without_effect(row: KafkaProperty, doc: str) -> ConfigKey:
    """Returns the declaration of a Kafka property that is checked, kept and described, but that changes nothing."""
    rules = _rules(row)
    if row.type in TOPS and "pattern" not in rules:
        rules.setdefault("minimum", -TOPS[row.type] - 1)
    choices = rules.get("choices")
    rules["ignores_case"] = choices is not None and choices == tuple(map(str.upper, choices))
    rules["has_effect"] = False
    return ConfigKey(name=row.name, default=_typed(row), doc=doc, **rules)


def _rules(row: KafkaProperty) -> Rules:
    """Returns the type, bounds and flags that a row gives; a number is at most the largest of its type."""
    rules: Rules = {
        "is_list": row.type is ConfigType.LIST,
        "is_secret": row.type is ConfigType.PASSWORD,
        "is_dynamic": row.changed in (LIVE, BY_BROKER) and row.scope != TOPIC,
        "has_default": row.default not in (NULL, REQUIRED),
        "kind": row.type,
    }
    if row.type in TOPS:
        rules["maximum"] = TOPS[row.type]
    if row.values.startswith("~"):
        rules["pattern"] = row.values[1:]
    elif ".." in row.values:
        low, _, high = row.values.partition("..")
        rules["minimum"] = int(low)
        if high:
            rules["maximum"] = _number(high)
    elif row.values:
        rules["choices"] = tuple(row.values.split("|"))
    return rules


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
