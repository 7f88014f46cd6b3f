"""Describes and changes the configuration of topics, brokers, groups and clients while the broker runs.

The store blocks, so it is called from a worker thread. When a change returns, this broker obeys it: the new
configuration is in the image of its `MetadataCache`, which takes an image only after it has been acted upon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from millrace.config import MAX_INT, whole_number
from millrace.errors import InvalidConfigError, InvalidRequestError, MetadataTimeoutError, UnknownTopicError
from millrace.zk import paths
from millrace_broker.cluster.config_changes import Operation, apply_operations
from millrace_broker.cluster.config_sources import (
    BROKER_KEYS,
    BrokerLayers,
    ConfigEntry,
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
from millrace_broker.cluster.group_configs import GROUP_KEYS, check_group_config, check_group_name, group_entries
from millrace_broker.cluster.logger_configs import change_loggers, logger_entries
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.metadata_image import ALL_BROKERS, MetadataImage
from millrace_broker.cluster.store import MetadataStore
from millrace_broker.cluster.topics import check_topic_name
from millrace_broker.log_lines.levels import LoggerLevels
from millrace_broker.properties.listeners import override
from millrace_broker.properties.restrictions import check_not_of_listeners, check_unrestricted
from millrace_broker.storage.config import TOPIC_CONFIG

logger = logging.getLogger(__name__)

CHANGE_TIMEOUT_S = 15.0
KEPT_CONFIGURATIONS = 100


def layers_of(image: MetadataImage, broker_id: int, static: Properties) -> BrokerLayers:
    """Returns the layers of a broker; live properties that it does not know are logged and left out."""
    layers = []
    for entity in (ALL_BROKERS, str(broker_id)):
        known, wrong = split_known(image.broker_configs.get(entity, {}))
        if wrong:
            logger.warning("configuration of broker %s, left out: %s", entity, "; ".join(wrong))
        layers.append(known)
    return BrokerLayers(static, *layers)


def check_stored_restrictions(image: MetadataImage, broker_id: int) -> None:
    """Raises InvalidConfigError where the cluster has stored a restriction that this broker would not enforce."""
    for entity in (ALL_BROKERS, str(broker_id)):
        for name, text in image.broker_configs.get(entity, {}).items():
            try:
                check_unrestricted(name, text)
                check_not_of_listeners(name, text)
            except InvalidConfigError as error:
                raise InvalidConfigError(f"{paths.broker_config(entity)} of the cluster: {error}") from None


class ConfigManager:
    """Describes and changes the configuration of all topics and groups, and of this broker in its layers."""

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
        """The layers of this broker, which hold where a topic has no value."""
        return self._layers

    def set_layers(self, layers: BrokerLayers) -> None:
        """Replaces the layers, and forgets the entries that were made of the old ones."""
        self._layers = layers
        self.connection_limits = layers.connection_limits()
        self._consumer_groups = layers.consumer_group_config()
        self._entries_of: dict[tuple[tuple[str, str], ...], list[ConfigEntry]] = {}

    def check_topic_config(self, config: Properties) -> None:
        """Raises InvalidConfigError for a property that a topic may not have, or a value that does not fit."""
        check_topic_config(self.layers, config)

    def topic_entries(self, config: Properties) -> list[ConfigEntry]:
        """Returns every property of a topic that has this configuration.

        Most topics have one of a few configurations, so the entries are kept for the next of them.
        """
        key = tuple(sorted(config.items()))
        if key not in self._entries_of:
            if len(self._entries_of) >= KEPT_CONFIGURATIONS:
                self._entries_of.clear()
            self._entries_of[key] = list(topic_entries(config, self._layers))
        return self._entries_of[key]

    def describe_topic(self, name: str) -> list[ConfigEntry]:
        """Returns every property of a topic. Raises InvalidTopicError or UnknownTopicError."""
        return self.topic_entries(self._topic_config(name))

    def describe_broker(self, name: str) -> list[ConfigEntry]:
        """Returns every property of this broker, or, for the empty name, the live ones of all.

        Raises InvalidRequestError.
        """
        entity = self._entity(name)
        return list(cluster_entries(self.layers) if entity == ALL_BROKERS else broker_entries(self.layers))

    async def replace_topic(self, name: str, config: Properties, *, validate_only: bool) -> None:
        """Gives a topic this configuration alone (AlterConfigs); all other properties return to the broker's value."""
        async with self._changing:
            self._topic_config(_named(name))
            await self._set_topic(name, config, validate_only=validate_only)

    async def change_topic(self, name: str, operations: Iterable[Operation], *, validate_only: bool) -> None:
        """Applies operations to the configuration of a topic (IncrementalAlterConfigs)."""
        async with self._changing:
            config = apply_operations(self._topic_config(_named(name)), operations, TOPIC_CONFIG.keys)
            await self._set_topic(name, config, validate_only=validate_only)

    async def replace_broker(self, name: str, config: Properties, *, validate_only: bool) -> None:
        """Gives this broker or, by the empty name, all brokers this live configuration alone (AlterConfigs)."""
        async with self._changing:
            await self._set_broker(self._entity(name), config, validate_only=validate_only)

    async def change_broker(self, name: str, operations: Iterable[Operation], *, validate_only: bool) -> None:
        """Applies operations to the live configuration of this broker or, by the empty name, of all brokers."""
        entity = self._entity(name)
        async with self._changing:
            before = self._metadata.image.broker_configs.get(entity, {})
            config = apply_operations(before, operations, BROKER_KEYS)
            await self._set_broker(entity, config, validate_only=validate_only)

    def describe_loggers(self, name: str) -> list[ConfigEntry]:
        """Returns the level of each of this broker's loggers. Raises InvalidRequestError."""
        self._check_is_this_broker(name)
        return logger_entries(self._loggers)

    def change_loggers(self, name: str, operations: Iterable[Operation], *, validate_only: bool) -> None:
        """Changes the levels of this broker's loggers, until it stops."""
        self._check_is_this_broker(name)
        change_loggers(self._loggers, operations, validate_only=validate_only)

    def describe_group(self, name: str) -> list[ConfigEntry]:
        """Returns every property of a group, whether the group exists or not. Raises InvalidRequestError."""
        check_group_name(name)
        return group_entries(self._metadata.image.group_configs.get(name, {}), self._consumer_groups)

    async def replace_group(self, name: str, config: Properties, *, validate_only: bool) -> None:
        """Gives a group this configuration alone (AlterConfigs)."""
        check_group_name(name)
        async with self._changing:
            await self._set_group(name, config, validate_only=validate_only)

    async def change_group(self, name: str, operations: Iterable[Operation], *, validate_only: bool) -> None:
        """Applies operations to the configuration of a group (IncrementalAlterConfigs)."""
        check_group_name(name)
        async with self._changing:
            before = self._metadata.image.group_configs.get(name, {})
            config = apply_operations(before, operations, GROUP_KEYS)
            await self._set_group(name, config, validate_only=validate_only)

    async def change_client(
        self, entity: str, change: Callable[[Properties], Properties], *, validate_only: bool
    ) -> None:
        """Gives a user, client or address the properties that `change` returns for those that it has.

        `entity` is its key in `MetadataImage.client_configs`.
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

    async def _set_topic(self, name: str, config: Properties, *, validate_only: bool) -> None:
        self.check_topic_config(config)
        if not validate_only:
            await asyncio.to_thread(self._store.set_topic_config, name, config)
            await self._until(lambda image: name not in image.topics or image.topics[name].config == config, name)

    async def _set_group(self, name: str, config: Properties, *, validate_only: bool) -> None:
        check_group_config(config, self._consumer_groups)
        if not validate_only:
            await asyncio.to_thread(self._store.set_group_config, name, config)
            await self._until(lambda image: image.group_configs.get(name) == config, f"group {name}")

    async def _set_broker(self, entity: str, config: Properties, *, validate_only: bool) -> None:
        kept = self._metadata.image.broker_configs.get(entity, {})
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
        if not validate_only:
            await asyncio.to_thread(self._store.set_broker_config, entity, config)
            await self._until(lambda image: image.broker_configs.get(entity) == config, f"broker {entity}")

    async def _until(self, holds: Callable[[MetadataImage], bool], subject: str) -> None:
        try:
            await self._metadata.until(holds, CHANGE_TIMEOUT_S)
        except TimeoutError:
            raise MetadataTimeoutError(f"the configuration of {subject} was changed but is not seen yet") from None


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
