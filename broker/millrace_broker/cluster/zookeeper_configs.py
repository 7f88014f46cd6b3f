"""Reads the configurations of topics, brokers and groups from ZooKeeper, and sets watches that tell of the next change.

The configurations of topics that were read before are kept, and only those whose nodes changed are read again; after a
reconnect all are. Their nodes are watched, and so are Kafka's notifications of changed configuration.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from millrace.errors import ZooKeeperError
from millrace.zk import codec, paths
from millrace.zk.session import ZooKeeperSession

logger = logging.getLogger(__name__)

Configs = Mapping[str, Mapping[str, str]]


class StoredConfigs(NamedTuple):
    """All configurations: by topic, by broker id as text or `<default>`, and by group."""

    topics: Configs
    brokers: Configs
    groups: Configs


class ZooKeeperConfigs:
    """Reads all configurations, one time after the other; for one thread at a time."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._last_notification = ""
        self._topics: dict[str, Mapping[str, str]] = {}

    def read(self, changed: frozenset[str] | None) -> StoredConfigs:
        """Returns the newest configurations; `changed` are the paths of nodes that changed, None stands for all."""
        notified = self._read_notifications()
        if changed is None:
            self._topics = {}
        else:
            dirty = {paths.topic_of(path) for path in changed | notified}
            self._topics = {name: config for name, config in self._topics.items() if name not in dirty}
        return StoredConfigs(
            self._read_topics(), self._read_all(paths.BROKER_CONFIGS), self._read_all(paths.GROUP_CONFIGS)
        )

    def _read_topics(self) -> Configs:
        names = sorted(self._session.children(paths.TOPIC_CONFIGS, watch=True))
        fresh = self._read_entities(paths.TOPIC_CONFIGS, [name for name in names if name not in self._topics])
        known = {**self._topics, **fresh}
        self._topics = {name: known[name] for name in names if name in known}
        return self._topics

    def _read_all(self, parent: str) -> Configs:
        return self._read_entities(parent, sorted(self._session.children(parent, watch=True)))

    def _read_entities(self, parent: str, entities: Sequence[str]) -> dict[str, Mapping[str, str]]:
        """Returns configurations by name; one that can't be read is logged and left out."""
        configs: dict[str, Mapping[str, str]] = {}
        for entity, data in zip(entities, self._read(f"{parent}/{one}" for one in entities), strict=True):
            if data is not None:
                try:
                    configs[entity] = codec.decode_config(data)
                except ZooKeeperError:
                    logger.exception("%s/%s can't be read and is left out", parent, entity)
        return configs

    def _read_notifications(self) -> frozenset[str]:
        """Returns the configuration nodes that notifications name, of the notifications that were not read before."""
        names = sorted(self._session.children(paths.CONFIG_CHANGES, watch=True))
        fresh = [name for name in names if name > self._last_notification]
        self._last_notification = max(fresh, default=self._last_notification)
        changed = set()
        for data in self._session.get_many([f"{paths.CONFIG_CHANGES}/{name}" for name in fresh]):
            if data is not None:
                try:
                    changed.add(f"{paths.CONFIGS}/{codec.decode_config_change(data)}")
                except ZooKeeperError:
                    logger.exception("a notification can't be read and is left out")
        return frozenset(changed)

    def _read(self, nodes: Iterable[str]) -> list[bytes | None]:
        return self._session.get_many(list(nodes), watch=True)
