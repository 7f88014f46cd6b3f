"""Reads all configurations from ZooKeeper, and sets watches that tell of the next change.

The configurations of topics that were read before are kept, and only those whose nodes changed are read again; after a
reconnect all are. Their nodes are watched, and so are Kafka's notifications of changed configuration. Those of users,
clients and addresses are read again as a whole when one of them has changed. The first configuration of a user's client
is found by its notification alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from millrace.errors import ZooKeeperError
from millrace.zk import codec, paths
from millrace.zk.session import ZooKeeperSession

logger = logging.getLogger(__name__)

Configs = Mapping[str, Mapping[str, str]]


class StoredConfigs(NamedTuple):
    """All configurations: by topic, by broker id as text or `<default>`, by group, and by a client's entity."""

    topics: Configs
    brokers: Configs
    groups: Configs
    clients: Configs


class ZooKeeperConfigs:
    """Reads all configurations, again and again; for one thread at a time."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._last_notification = ""
        self._topics: dict[str, Mapping[str, str]] = {}
        self._clients: Configs = {}

    def read(self, changed: frozenset[str] | None) -> StoredConfigs:
        """Returns the newest configurations; `changed` are the paths of nodes that changed, None stands for all."""
        notified = self._read_notifications()
        if changed is None:
            self._topics = {}
        else:
            dirty = {paths.topic_of(path) for path in changed | notified}
            self._topics = {name: config for name, config in self._topics.items() if name not in dirty}
        if changed is None or any(map(paths.is_of_clients, changed | notified)):
            self._clients = self._read_clients()
        return StoredConfigs(
            self._read_topics(),
            self._read_all(paths.BROKER_CONFIGS),
            self._read_all(paths.GROUP_CONFIGS),
            self._clients,
        )

    def _read_topics(self) -> Configs:
        names = sorted(self._session.children(paths.TOPIC_CONFIGS, watch=True))
        fresh = self._read_entities(paths.TOPIC_CONFIGS, [name for name in names if name not in self._topics])
        known = {**self._topics, **fresh}
        self._topics = {name: known[name] for name in names if name in known}
        return self._topics

    def _read_clients(self) -> Configs:
        users = self._entities("users")
        clients_of_users = [one for user in users for one in self._entities(f"{user}/clients")]
        entities = [*users, *clients_of_users, *self._entities("clients"), *self._entities("ips")]
        return self._read_entities(paths.CONFIGS, entities)

    def _entities(self, parent: str) -> list[str]:
        return [f"{parent}/{one}" for one in sorted(self._session.children(f"{paths.CONFIGS}/{parent}", watch=True))]

    def _read_all(self, parent: str) -> Configs:
        return self._read_entities(parent, sorted(self._session.children(parent, watch=True)))

    def _read_entities(self, parent: str, entities: Sequence[str]) -> dict[str, Mapping[str, str]]:
        """Returns configurations by name; one that can't be read is logged and left out."""
        configs: dict[str, Mapping[str, str]] = {}
        nodes = self._session.get_many([f"{parent}/{one}" for one in entities], watch=True)
        for entity, data in zip(entities, nodes, strict=True):
            if data:  # a user who has only properties of clients has a node without data
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
