"""Finds where the value of a property comes from, in Kafka's order of precedence, as DescribeConfigs shows it.

    topic                    /config/topics/[topic]
    group                    /config/groups/[group]
    broker, live             /config/brokers/[id]
    all brokers, live        /config/brokers/<default>
    broker, at its start     its file and arguments
    default                  the tables of `properties` and `storage.config`

The synonyms of a property are its values in all layers, the one that holds first; each would hold if those before it
were not there. As in Kafka (ConfigHelper), they begin with the broker's property of the finest unit. So a value that
only `log.retention.hours` gives is obeyed, but has no entry.

IncrementalAlterConfigs changes a configuration by operations (KIP-339):

    SET        gives the property this value
    DELETE     removes the property, so that the layer below holds
    APPEND     adds the elements that the list does not have yet
    SUBTRACT   removes elements from the list

APPEND and SUBTRACT begin with the property's default where the configuration does not have the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from millrace.config import ConfigKey, ConfigType, value_text
from millrace.errors import InvalidConfigError, InvalidRequestError
from millrace.suggestions import did_you_mean
from millrace.zk.security import ZOOKEEPER_SECURITY
from millrace_broker.properties.broker_config import BROKER_CONFIG, BrokerConfig
from millrace_broker.properties.coordinator_config import (
    CONSUMER_GROUP_CONFIG,
    GROUP_CONFIG,
    TRANSACTION_CONFIG,
    TransactionConfig,
)
from millrace_broker.properties.kafka_properties import BROKER, BY_BROKER, kafka_properties
from millrace_broker.properties.listeners import CREATION_RATE, MAX_CONNECTIONS, SECURING, override
from millrace_broker.properties.restrictions import check_unrestricted, keys_without_effect, shown
from millrace_broker.properties.security_config import SASL_CONFIG, TLS_CONFIG, TOKEN_CONFIG
from millrace_broker.storage.config import BROKER_CONFIG as LOG_CONFIG
from millrace_broker.storage.config import BROKER_SYNONYMS, TOPIC_CONFIG, LogConfig
from millrace_broker.storage.retention import PROPERTY as POLICIES
from millrace_broker.storage.retention import check_policies

Properties = Mapping[str, str]
OBEYED_KEYS: Mapping[str, ConfigKey] = {
    **BROKER_CONFIG.keys,
    **GROUP_CONFIG.keys,
    **CONSUMER_GROUP_CONFIG.keys,
    **TRANSACTION_CONFIG.keys,
    **SASL_CONFIG.keys,
    **TLS_CONFIG.keys,
    **TOKEN_CONFIG.keys,
    **ZOOKEEPER_SECURITY.keys,
    **LOG_CONFIG.keys,
}
BROKER_KEYS: Mapping[str, ConfigKey] = {
    **OBEYED_KEYS,
    **{key.name: key for key in keys_without_effect(BROKER, OBEYED_KEYS)},
}
_UNITS = {synonym.name: synonyms for synonyms in BROKER_SYNONYMS.values() for synonym in synonyms}


class OperationType(IntEnum):
    """The protocol's numbers for what IncrementalAlterConfigs does to a property (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Operation(NamedTuple):
    """A change of one property; `type` is a number of `OperationType`, or one that must be refused."""

    name: str
    type: int
    value: str | None


def apply_operations(
    properties: Mapping[str, str], keys: Mapping[str, ConfigKey], operations: Iterable[Operation]
) -> dict[str, str]:
    """Returns the properties after the operations; names and values of the result are not checked.

    `keys` declares the properties. Raises InvalidRequestError for an unknown operation or a missing value,
    InvalidConfigError where a list operation names a property that is not a list.
    """
    changed = dict(properties)
    for name, number, value in operations:
        operation = _type_of(name, number)
        if operation is OperationType.DELETE:
            changed.pop(name, None)
        elif value is None:
            raise InvalidRequestError(f"{name}: null value not supported")
        elif operation is OperationType.SET:
            changed[name] = value
        else:
            changed[name] = _changed_list(_list_key(keys, name, operation), changed.get(name), operation, value)
    return changed


def _type_of(name: str, number: int) -> OperationType:
    try:
        return OperationType(number)
    except ValueError:
        raise InvalidRequestError(f"{name}: operation {number} is not known") from None


def _list_key(keys: Mapping[str, ConfigKey], name: str, operation: OperationType) -> ConfigKey:
    key = keys.get(name)
    if key is None:
        raise InvalidConfigError(f"Unknown config name: {name}")
    if key.type is not ConfigType.LIST:
        raise InvalidConfigError(f"{name}: {operation.name.lower()} is not allowed, as it is not a list")
    return key


def _changed_list(key: ConfigKey, text: str | None, operation: OperationType, value: str) -> str:
    before = _elements(str(key.default) if text is None else text)
    given = _elements(value)
    if operation is OperationType.APPEND:
        return ",".join([*before, *(one for one in given if one not in before)])
    return ",".join(one for one in before if one not in given)


def _elements(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


@cache
def broker_key(name: str) -> ConfigKey | None:
    """Returns the declaration of a broker's property, also of `listener.name.NAME.PROPERTY`; None if it is unknown."""
    own = override(name)
    if own is None:
        return BROKER_KEYS.get(name)
    return replace(BROKER_KEYS[own.name], name=name) if own.is_known else None


def known_key(name: str) -> ConfigKey:
    """Returns the declaration of a broker's property, which must exist."""
    key = broker_key(name)
    assert key is not None, "checked before"
    return key


class ConfigSource(IntEnum):
    """The protocol's numbers for where a property's value comes from (KIP-226)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    GROUP = 8


class ConfigSynonym(NamedTuple):
    """One of the values of a property, which may have another name, and its source; the value of a secret is None."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A property as DescribeConfigs responds it: declaration, value, source, and the values that others hide."""

    key: ConfigKey
    value: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]
    is_read_only: bool = False

    @property
    def type(self) -> ConfigType:
        """Returns the type of the property's value."""
        return self.key.type


@dataclass(frozen=True, slots=True)
class BrokerLayers:
    """A broker's properties in layers: those of its start, the live ones of all brokers, and its own live ones.

    A later layer replaces values of an earlier one. Live layers have only known properties, with values that fit.
    """

    static: Properties = field(default_factory=dict)
    cluster: Properties = field(default_factory=dict)
    broker: Properties = field(default_factory=dict)

    def effective(self) -> dict[str, str]:
        """Returns the properties that hold, of all layers; a live one replaces the same property in other units."""
        properties = dict(self.static)
        for layer in (self.cluster, self.broker):
            for name, value in layer.items():
                for synonym in _UNITS.get(name, ()):
                    properties.pop(synonym.name, None)
                properties[name] = value
        return properties

    def log_defaults(self) -> dict[str, str]:
        """Returns those effective properties that are defaults of topics' logs, by the broker's names."""
        return LOG_CONFIG.known(self.effective())

    def broker_config(self) -> BrokerConfig:
        """Returns the configuration that the broker itself obeys."""
        return BrokerConfig.from_properties(self.effective())

    def transaction_config(self) -> TransactionConfig:
        """Returns the configuration that transactions obey."""
        return TransactionConfig.from_properties(self.effective())

    def synonyms(self, name: str) -> tuple[ConfigSynonym, ...]:
        """Returns the values of a broker's property in all layers and units (hours, ms); the first one holds."""
        own = override(name)
        names = [one.name for one in _UNITS.get(name, ())] or ([name] if own is None else [name, own.name])
        said = [one for source, layer in self._layers() for one in _said(layer, source, names)]
        said += [
            ConfigSynonym(one, _shown(BROKER_KEYS[one], value_text(BROKER_KEYS[one].default)), ConfigSource.DEFAULT)
            for one in names
            if one in BROKER_KEYS and BROKER_KEYS[one].has_default
        ]
        first = next((index for index, one in enumerate(said) if one.name == name), len(said))
        return tuple(said[first:])

    def _layers(self) -> tuple[tuple[ConfigSource, Properties], ...]:
        return (
            (ConfigSource.DYNAMIC_BROKER, self.broker),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.cluster),
            (ConfigSource.STATIC_BROKER, self.static),
        )


def topic_entries(topic: Properties, layers: BrokerLayers) -> Iterator[ConfigEntry]:
    """Yields an entry for every known property of a topic, whose own properties are `topic`."""
    known = TOPIC_CONFIG.known(topic)
    config = LogConfig.from_properties(layers.log_defaults(), known)
    for key in TOPIC_CONFIG.keys.values():
        if key.is_shown_if_set and key.name not in known:
            continue
        is_given = key.has_default or key.name in known
        value = value_text(getattr(config, key.name.replace(".", "_"))) if is_given else None
        synonyms = layers.synonyms(key.synonyms[0].name) if key.synonyms else ()
        if key.name in known:
            synonyms = (ConfigSynonym(key.name, value, ConfigSource.TOPIC), *synonyms)
        yield ConfigEntry(key, value, synonyms[0].source if synonyms else ConfigSource.DEFAULT, synonyms)


def broker_entries(layers: BrokerLayers) -> Iterator[ConfigEntry]:
    """Yields an entry for every property of a broker, also for those that are given for one listener."""
    effective = layers.effective()
    of_listeners = (key for name in effective if override(name) is not None and (key := broker_key(name)) is not None)
    for key in (*BROKER_KEYS.values(), *of_listeners):
        text = effective.get(key.name, value_text(key.default) if key.has_default else None)
        synonyms = layers.synonyms(key.name)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        yield ConfigEntry(key, _shown(key, text), source, synonyms, not key.is_dynamic)


def cluster_entries(layers: BrokerLayers) -> Iterator[ConfigEntry]:
    """Yields an entry for each live property that is set for all brokers."""
    for name, text in layers.cluster.items():
        key = known_key(name)
        synonyms = tuple(one for one in layers.synonyms(name) if one.source == ConfigSource.DYNAMIC_DEFAULT_BROKER)
        yield ConfigEntry(key, _shown(key, text), ConfigSource.DYNAMIC_DEFAULT_BROKER, synonyms, not key.is_dynamic)


def split_known(properties: Properties) -> tuple[dict[str, str], list[str]]:
    """Returns the properties that a broker may have live, and for each of the others a sentence on what is wrong."""
    known, wrong = {}, []
    for name, text in properties.items():
        try:
            check_live(name, text)
        except InvalidConfigError as error:
            wrong.append(str(error))
        else:
            known[name] = text
    return known, wrong


def check_live(name: str, text: str) -> None:
    """Raises InvalidConfigError for a broker's property that is unknown, has a bad value, or can't be changed live."""
    check_unrestricted(name, text)
    key = broker_key(name)
    if key is None:
        raise InvalidConfigError(
            f"{shown(name, text)}: this broker has no property of this name{did_you_mean(name, BROKER_KEYS)}"
        )
    if not key.is_dynamic:
        raise InvalidConfigError(f"Cannot update these configs dynamically: Set({name}), they are read at the start")
    if name in SECURING:
        raise InvalidConfigError(
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"listener.name.NAME.{name}"
        )
    check_keeps_no_secret(name)
    own = override(name)
    if key.parse(text) == 0 and (name if own is None else own.name) in (MAX_CONNECTIONS, CREATION_RATE):
        raise InvalidConfigError(f"{name}={text}: Invalid value, nobody could connect and change it again")
    if name == POLICIES:
        check_policies(LogConfig.from_properties({name: text}, {}))


def check_keeps_no_secret(name: str) -> None:
    """Raises InvalidConfigError for a live property whose value is a secret, as the cluster does not keep these."""
    own = override(name)
    key = BROKER_KEYS.get(name if own is None else own.name)
    is_refused_otherwise = own is None and name in SECURING
    if key is not None and key.is_secret and key.is_dynamic and not is_refused_otherwise:
        raise InvalidConfigError(f"{name}: the cluster keeps no secrets of brokers; change it in the broker's file")


def is_of_one_broker(name: str) -> bool:
    """Returns whether a live property is set for each broker by its id, and can't be set for all brokers at once."""
    own = override(name)
    if own is not None:
        return own.secures
    row = kafka_properties().get((BROKER, name))
    return row is not None and row.changed == BY_BROKER


def check_topic_config(layers: BrokerLayers, topic: Properties) -> None:
    """Raises InvalidConfigError for an unknown topic property, a bad value, or two values that conflict."""
    unknown = next((name for name in topic if name not in TOPIC_CONFIG.keys), None)
    if unknown is not None:
        raise InvalidConfigError(f"Unknown topic config name: {unknown}")
    config = LogConfig.from_properties(layers.log_defaults(), topic)
    config.check()
    if POLICIES in topic:
        check_policies(config)


def _said(layer: Properties, source: ConfigSource, names: list[str]) -> list[ConfigSynonym]:
    return [ConfigSynonym(name, _shown(known_key(name), layer[name]), source) for name in names if name in layer]


def _shown(key: ConfigKey, text: str | None) -> str | None:
    return None if key.is_secret else text
