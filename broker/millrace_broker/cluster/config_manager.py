"""Describes and changes the configuration of topics, brokers, groups and clients while the broker runs.

The store blocks, so it is called from a worker thread. When a change returns, this broker obeys it: the new
configuration is in the image of its `MetadataCache`, which takes an image only after it has been acted upon.

The levels of this broker's loggers are the configuration of a resource, too (KIP-412). The properties that one group
may have for itself (KIP-848) come before the broker's:

    group             /config/groups/[group], or `group_configs` of a standalone broker
    the broker's      group.consumer.*

Those of consumer groups are obeyed with the next heartbeat. Those of share and streams groups are stored, and have no
effect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from millrace.config import MAX_INT, ConfigKey, ConfigTable, value_text, whole_number
from millrace.errors import InvalidConfigError, InvalidRequestError, UnknownTopicError
from millrace.zk import paths
from millrace_broker.cluster.config_sources import (
    BROKER_KEYS,
    BrokerLayers,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    Operation,
    OperationType,
    Properties,
    broker_entries,
    check_keeps_no_secret,
    check_live,
    check_topic_config,
    cluster_entries,
    is_of_one_broker,
    split_known,
    topic_entries,
)
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.metadata_image import ALL_BROKERS, MetadataImage
from millrace_broker.cluster.store import MetadataStore
from millrace_broker.cluster.topics import check_topic_name
from millrace_broker.log_lines.levels import LoggerLevels
from millrace_broker.properties.coordinator_config import OWN_CONFIG, ConsumerGroupConfig
from millrace_broker.properties.kafka_properties import GROUP
from millrace_broker.properties.listeners import ConnectionLimits, override
from millrace_broker.properties.restrictions import check_not_of_listeners, check_unrestricted, keys_without_effect
from millrace_broker.storage.config import TOPIC_CONFIG

logger = logging.getLogger(__name__)

KEPT_CONFIGURATIONS = 100
Alter = Callable[[Properties, Mapping[str, ConfigKey]], Properties]
"""Returns the configuration that a resource gets for its own one, given the declarations of its properties."""


DOC = "How much this logger says: FATAL, ERROR, WARN, INFO, DEBUG or TRACE."


GROUP_KEYS: Mapping[str, ConfigKey] = {
    **OWN_CONFIG.keys,
    **{key.name: key for key in keys_without_effect(GROUP, OWN_CONFIG.keys)},
}


def group_entries(own: Properties, config: ConsumerGroupConfig) -> list[ConfigEntry]:
    """Returns an entry for each property of a group, whose value in `own` replaces the broker's (`config`)."""
    defaults = {
        "consumer.session.timeout.ms": config.group_consumer_session_timeout_ms,
        "consumer.heartbeat.interval.ms": config.group_consumer_heartbeat_interval_ms,
    }
    entries = []
    for name, key in GROUP_KEYS.items():
        default = value_text(defaults.get(name, key.default))
        value, source = (own[name], ConfigSource.GROUP) if name in own else (default, ConfigSource.DEFAULT)
        entries.append(ConfigEntry(key, value, source, (ConfigSynonym(name, value, source),)))
    return entries


def check_group_name(name: str) -> None:
    """Raises InvalidRequestError where the name can't be that of a node in ZooKeeper, which keeps the configuration."""
    if not paths.is_name(name):
        raise InvalidRequestError(f"group name {name!r} is invalid: it must be the name of a node of ZooKeeper")


def layers_of(image: MetadataImage, broker_id: int, static: Properties) -> BrokerLayers:
    """Returns a broker's properties in layers: `static` of its start, and those that the cluster keeps for brokers.

    Of the latter, those that this broker does not know are logged and left out.
    """
    layers = []
    for entity in (ALL_BROKERS, str(broker_id)):
        known, wrong = split_known(image.broker_configs.get(entity, {}))
        if wrong:
            logger.warning("configuration of broker %s, left out: %s", entity, "; ".join(wrong))
        layers.append(known)
    return BrokerLayers(static, *layers)


def check_stored_restrictions(image: MetadataImage, broker_id: int) -> None:
    """Raises InvalidConfigError where the cluster keeps a property of brokers that this broker would not enforce."""
    for entity in (ALL_BROKERS, str(broker_id)):
        for name, text in image.broker_configs.get(entity, {}).items():
            try:
                check_unrestricted(name, text)
                check_not_of_listeners(name, text)
            except InvalidConfigError as error:
                raise InvalidConfigError(f"{paths.broker_config(entity)} of the cluster: {error}") from None


class ConfigManager:
    """Describes and changes the configurations of topics, of groups, of client quotas, and of this broker."""

    def __init__(self, broker_id: int, layers: BrokerLayers, store: MetadataStore, metadata: MetadataCache) -> None:
        self._broker_id = broker_id
        self._store = store
        self._metadata = metadata
        self.check_certificates: Callable[[Properties], None] = lambda _: None
        """Raises InvalidConfigError where a listener can't use these properties of the broker."""
        self._loggers = LoggerLevels()
        self._changing = asyncio.Lock()  # a change builds on the configuration that it reads
        self.set_layers(layers)

    @property
    def layers(self) -> BrokerLayers:
        """Returns this broker's properties, in layers; they hold where a topic has none of its own."""
        return self._layers

    def set_layers(self, layers: BrokerLayers) -> None:
        """Replaces this broker's properties, and drops the cached entries of topics that were made of the old ones."""
        self._layers = layers
        effective = layers.effective()
        self.connection_limits = ConnectionLimits.from_properties(effective)
        self._consumer_groups = ConsumerGroupConfig.from_properties(effective)
        self._entries_of: dict[tuple[tuple[str, str], ...], list[ConfigEntry]] = {}

    def check_topic_config(self, config: Properties) -> None:
        """Raises InvalidConfigError for a property that a topic may not have, a bad value, or two that conflict."""
        check_topic_config(self.layers, config)

    def topic_entries(self, config: Properties) -> list[ConfigEntry]:
        """Returns an entry for every property of a topic whose own properties are `config`; the result is cached."""
        key = tuple(sorted(config.items()))
        if key not in self._entries_of:
            if len(self._entries_of) >= KEPT_CONFIGURATIONS:
                self._entries_of.clear()
            self._entries_of[key] = list(topic_entries(config, self._layers))
        return self._entries_of[key]

    def describe_topic(self, name: str) -> list[ConfigEntry]:
        """Returns an entry for every property of a topic. Raises InvalidTopicError or UnknownTopicError."""
        return self.topic_entries(self._topic_config(name))

    def describe_broker(self, name: str) -> list[ConfigEntry]:
        """Returns an entry for every property of this broker (`name` is its id), or "" for those set for all brokers.

        Raises InvalidRequestError for the id of another broker.
        """
        entity = self._entity(name)
        return list(cluster_entries(self.layers) if entity == ALL_BROKERS else broker_entries(self.layers))

    async def alter_topic(self, name: str, alter: Alter, *, validate_only: bool) -> None:
        """Replaces a topic's own properties by what `alter` returns for them; `validate_only` only checks these."""
        async with self._changing:
            config = alter(self._topic_config(_named(name)), TOPIC_CONFIG.keys)
            self.check_topic_config(config)
            if not validate_only:
                await asyncio.to_thread(self._store.set_topic_config, name, config)
                await self._until(lambda image: name not in image.topics or image.topics[name].config == config, name)

    async def alter_broker(self, name: str, alter: Alter, *, validate_only: bool) -> None:
        """Replaces the live properties of this broker, or for the name "" of all, by what `alter` returns for them."""
        entity = self._entity(name)
        async with self._changing:
            kept = self._metadata.image.broker_configs.get(entity, {})
            config = alter(kept, BROKER_KEYS)
            await self._check_broker_config(entity, kept, config)
            if not validate_only:
                await asyncio.to_thread(self._store.set_broker_config, entity, config)
                await self._until(lambda image: image.broker_configs.get(entity) == config, f"broker {entity}")

    def describe_loggers(self, name: str) -> list[ConfigEntry]:
        """Returns an entry with the level of each logger. Raises InvalidRequestError for another broker's id."""
        self._check_is_this_broker(name)
        source = ConfigSource.DYNAMIC_BROKER_LOGGER
        return [
            ConfigEntry(ConfigKey(name=name, default=level, doc=DOC, is_dynamic=True), level, source, ())
            for name, level in self._loggers.levels().items()
        ]

    def change_loggers(self, name: str, operations: Iterable[Operation], *, validate_only: bool) -> None:
        """Sets and removes levels of this broker's loggers, until it stops: all of them, or none.

        Raises InvalidRequestError for another broker's id, for an operation on lists, and for one that removes the
        level of the root logger, InvalidConfigError for an unknown logger or level.
        """
        self._check_is_this_broker(name)
        changes: dict[str, str | None] = {}
        for logger_name, number, value in operations:
            if number not in (OperationType.SET, OperationType.DELETE):
                raise InvalidRequestError(f"{logger_name}: the level of a logger can only be set or deleted")
            changes[logger_name] = value if number == OperationType.SET else None
        self._loggers.check(changes)
        if not validate_only:
            self._loggers.change(changes)

    def describe_group(self, name: str) -> list[ConfigEntry]:
        """Returns an entry for every property of a group, existing or not. Raises InvalidRequestError for a bad id."""
        check_group_name(name)
        return group_entries(self._metadata.image.group_configs.get(name, {}), self._consumer_groups)

    async def alter_group(self, name: str, alter: Alter, *, validate_only: bool) -> None:
        """Replaces a group's own properties by what `alter` returns for them; `validate_only` only checks these."""
        check_group_name(name)
        async with self._changing:
            config = alter(self._metadata.image.group_configs.get(name, {}), GROUP_KEYS)
            unknown = next((one for one in config if one not in GROUP_KEYS), None)
            if unknown is not None:
                raise InvalidConfigError(f"Unknown group config name: {unknown}")
            ConfigTable(GROUP_KEYS.values()).parse(config)
            self._consumer_groups.of_group(config)
            if not validate_only:
                await asyncio.to_thread(self._store.set_group_config, name, config)
                await self._until(lambda image: image.group_configs.get(name) == config, f"group {name}")

    async def change_client(
        self, entity: str, change: Callable[[Properties], Properties], *, validate_only: bool
    ) -> None:
        """Replaces the properties of a user, a client or an address by what `change` returns for them.

        `entity` is the key in `MetadataImage.client_configs`; with `validate_only` nothing is replaced.
        """
        async with self._changing:
            config = change(self._metadata.image.client_configs.get(entity, {}))
            if not validate_only:
                await asyncio.to_thread(self._store.set_client_config, entity, config)
                await self._until(lambda image: image.client_configs.get(entity, {}) == config, entity)

    def _topic_config(self, name: str) -> Mapping[str, str]:
        check_topic_name(name)
        topic = self._metadata.image.topics.get(name)
        if topic is None:
            raise UnknownTopicError(f"The topic '{name}' does not exist.")
        return topic.config

    def _entity(self, name: str) -> str:
        if not name:
            return ALL_BROKERS
        number = whole_number(name, MAX_INT)
        if number is None:
            raise InvalidRequestError(f"broker id must be an integer from 0 to {MAX_INT}, not {name!r}")
        if number != self._broker_id:
            raise InvalidRequestError(f"unexpected broker id, expected {self._broker_id} or an empty name: {name}")
        return str(self._broker_id)

    def _check_is_this_broker(self, name: str) -> None:
        if self._entity(name) == ALL_BROKERS:
            raise InvalidRequestError("broker id must not be empty: loggers belong to one broker")

    async def _check_broker_config(self, entity: str, kept: Properties, config: Properties) -> None:
        changed = {name: value for name, value in config.items() if kept.get(name) != value}
        with _as_invalid_request():
            if entity == ALL_BROKERS:
                _check_may_be_of_all(config)
        for name in changed:
            check_keeps_no_secret(name)
        with _as_invalid_request():
            for name, value in changed.items():
                check_live(name, value)
            if any(own.secures for own in map(override, config) if own is not None):
                after = replace(self.layers, broker=config).effective()
                await asyncio.to_thread(self.check_certificates, after)

    async def _until(self, holds: Callable[[MetadataImage], bool], subject: str) -> None:
        message = f"the configuration of {subject} was changed but is not seen yet"
        await self._metadata.until_seen(holds, message)


@contextmanager
def _as_invalid_request() -> Iterator[None]:
    try:
        yield
    except InvalidConfigError as error:
        raise InvalidRequestError(str(error)) from error


def _check_may_be_of_all(names: Iterable[str]) -> None:
    found = next(filter(is_of_one_broker, names), None)
    if found is not None:
        raise InvalidConfigError(f"{found}: cannot update these configs at default cluster level, name a broker")


def _named(topic: str) -> str:
    if not topic:
        raise InvalidRequestError("default topic resources are not allowed: a topic must be named")
    return topic
