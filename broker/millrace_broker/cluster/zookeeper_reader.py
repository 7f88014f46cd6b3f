"""Reads the view of a cluster out of ZooKeeper's nodes, and sets the watches that tell of the next change.

The topics of the last view are kept, and only those whose nodes changed are read again; after a reconnect everything
is. All nodes are watched, and so are Kafka's notifications of changed configuration, which also tell of a configuration
node that was not there before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from millrace.errors import ZooKeeperError
from millrace.zk import codec, paths
from millrace.zk.session import ZooKeeperSession
from millrace_broker.cluster.view import BrokerInfo, ClusterView, PartitionInfo, TopicInfo

logger = logging.getLogger(__name__)


class Stateless(NamedTuple):
    """A topic, and the indexes of those of its partitions that have no state node yet."""

    topic: TopicInfo
    indexes: tuple[int, ...]


class ZooKeeperReader:
    """Reads one view after the other; for one thread at a time."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._last_notification = ""

    def read(
        self, last: ClusterView, brokers: Mapping[int, BrokerInfo], changed: frozenset[str] | None
    ) -> tuple[ClusterView, list[Stateless]]:
        """Returns the newest view, and the topics with partitions whose first states are to be written.

        `changed` are the paths of nodes that changed since the last view; None stands for all of them.
        """
        notified = self._read_notifications()
        topics, stateless = self._read_topics(last.topics, None if changed is None else changed | notified)
        configs = self._read_configs(paths.BROKER_CONFIGS)
        groups = self._read_configs(paths.GROUP_CONFIGS)
        return ClusterView(last.cluster_id, min(brokers, default=-1), brokers, topics, configs, groups), stateless

    def read_brokers(self) -> dict[int, BrokerInfo]:
        """Returns the live brokers by id."""
        ids = sorted(int(name) for name in self._session.children(paths.BROKER_IDS, watch=True))
        brokers = {}
        for broker_id, data in zip(ids, self._read(paths.broker(one) for one in ids), strict=True):
            if data is not None:
                fields = codec.decode_broker(data)
                brokers[broker_id] = BrokerInfo(broker_id, fields.host, fields.port, fields.rack)
        return brokers

    def _read_notifications(self) -> frozenset[str]:
        """Returns the configuration nodes that notifications name, of the notifications that were not read before."""
        names = sorted(self._session.children(paths.CONFIG_CHANGES, watch=True))
        fresh = [name for name in names if name > self._last_notification]
        self._last_notification = max(fresh, default=self._last_notification)
        nodes = self._session.get_many([f"{paths.CONFIG_CHANGES}/{name}" for name in fresh])
        changed = set()
        for data in nodes:
            if data is not None:
                try:
                    changed.add(f"{paths.CONFIGS}/{codec.decode_config_change(data)}")
                except ZooKeeperError:
                    logger.exception("a notification can't be read and is left out")
        return frozenset(changed)

    def _read_configs(self, parent: str) -> dict[str, Mapping[str, str]]:
        """Returns the configurations of brokers or groups by name; one that can't be read is logged and left out."""
        entities = sorted(self._session.children(parent, watch=True))
        configs: dict[str, Mapping[str, str]] = {}
        for entity, data in zip(entities, self._read(f"{parent}/{one}" for one in entities), strict=True):
            if data is not None:
                try:
                    configs[entity] = codec.decode_config(data)
                except ZooKeeperError:
                    logger.exception("%s/%s can't be read and is left out", parent, entity)
        return configs

    def _read_topics(
        self, last: Mapping[str, TopicInfo], changed: frozenset[str] | None
    ) -> tuple[dict[str, TopicInfo], list[Stateless]]:
        names = sorted(self._session.children(paths.TOPICS, watch=True))
        if changed is None:
            known: Mapping[str, TopicInfo] = {}
        else:
            dirty = {paths.topic_of(path) for path in changed}
            known = {name: topic for name, topic in last.items() if name not in dirty}
        missing = [name for name in names if name not in known]
        fresh, stateless = self._read_topics_named(missing, {} if changed is None else last)
        topics = {name: known.get(name) or fresh.get(name) for name in names}
        return {name: topic for name, topic in topics.items() if topic is not None}, stateless

    def _read_topics_named(
        self, names: Sequence[str], last: Mapping[str, TopicInfo]
    ) -> tuple[dict[str, TopicInfo], list[Stateless]]:
        assignments = self._read_assignments(names)
        configs = self._read(paths.topic_config(name) for name in assignments)
        wanted = [(name, index) for name, topic in assignments.items() for index in range(len(topic.replicas))]
        states = self._read(paths.partition_state(name, index) for name, index in wanted)
        state_of = dict(zip(wanted, states, strict=True))
        topics, stateless = {}, []
        for (name, assignment), config in zip(assignments.items(), configs, strict=True):
            partitions = [state_of[name, index] for index in range(len(assignment.replicas))]
            topics[name] = _topic_info(name, assignment, partitions, config)
            # A partition of the last view that has lost its state is being deleted: the state must not be written.
            first = len(last[name].partitions) if name in last else 0
            indexes = tuple(index for index in range(first, len(partitions)) if partitions[index] is None)
            if indexes:
                stateless.append(Stateless(topics[name], indexes))
        return topics, stateless

    def _read_assignments(self, names: Sequence[str]) -> dict[str, codec.TopicAssignment]:
        assignments = {}
        for name, data in zip(names, self._read(paths.topic(name) for name in names), strict=True):
            if data is not None:
                try:
                    assignments[name] = codec.decode_topic(data)
                except ZooKeeperError:
                    logger.exception("topic %s can't be read and is left out", name)
        return assignments

    def _read(self, nodes: Iterable[str]) -> list[bytes | None]:
        return self._session.get_many(list(nodes), watch=True)


def _topic_info(
    name: str, assignment: codec.TopicAssignment, states: Sequence[bytes | None], config: bytes | None
) -> TopicInfo:
    partitions = []
    for index, (replicas, data) in enumerate(zip(assignment.replicas, states, strict=True)):
        state = codec.PartitionState.initial(replicas) if data is None else codec.decode_partition_state(data)
        partitions.append(PartitionInfo(index, state.leader, state.leader_epoch, replicas, state.isr))
    properties = {} if config is None else codec.decode_config(config)
    return TopicInfo(name, assignment.topic_id, tuple(partitions), properties)
