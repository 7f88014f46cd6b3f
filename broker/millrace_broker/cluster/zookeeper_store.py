"""Metadata of a cluster, in ZooKeeper, in Apache Kafka's own nodes (spec F).

A topic exists as long as its assignment, `/brokers/topics/[topic]`, does. Creating writes configuration,
assignment and the first partition states in one transaction; deleting removes all nodes in one, those of a large
topic in several, the assignment in the last. A partition without a state node has the initial one (its first replica
leads, epoch 0, all are in sync), and that first replica's broker writes it as soon as it sees the topic.
So a crash leaves, at most, a topic that is there and whole, with some states back at their initial value.

Views: the topics of the last view are kept, and only those whose nodes changed are read again; after a
reconnect everything is. Nodes are watched, and so are Kafka's notifications of changed configuration, which also tell
of a node that was not there before. Who changes a configuration notifies, and removes notifications that are old. The
controller deletes the topics that other tools name in `/admin/delete_topics`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

from millrace.addresses import Address
from millrace.clock import Clock
from millrace.errors import (
    BrokerIdTakenError,
    InvalidPartitionsError,
    TopicExistsError,
    UnknownTopicError,
    ZooKeeperError,
)
from millrace.uuids import encode_id
from millrace.zk import codec, paths
from millrace.zk.session import Create, Delete, Operation, SetData, ZooKeeperSession
from millrace_broker.cluster.producer_ids import encode_block, next_block
from millrace_broker.cluster.store import OnChange
from millrace_broker.cluster.view import BrokerInfo, ClusterView, PartitionInfo, TopicInfo
from millrace_broker.storage import TopicPartition

logger = logging.getLogger(__name__)

SESSION_TIMEOUT_MS = 18_000
CONNECTION_TIMEOUT_MS = 18_000
REGISTRATION_MARGIN_MS = 3_000  # ZooKeeper expires sessions on its next tick only
NODES_PER_TRANSACTION = 500  # far below ZooKeeper's limit of 1 MiB a request
PARTITIONS_PER_TRANSACTION = NODES_PER_TRANSACTION // 2
DELETE_ATTEMPTS = 3
RAISE_ATTEMPTS = 10
NOTIFICATION_LIFE_MS = 15 * 60_000
RESERVE_ATTEMPTS = 10


class ZooKeeperStore:
    """A `MetadataStore` shared by the brokers of a cluster.

    Args:
        connect: `HOST:PORT[,…][/chroot]`.
        clock: the time of the registration.
        session_timeout_ms: how long a dead broker stays registered.
        connection_timeout_ms: how long `start` waits for ZooKeeper.
        deletes_topics: whether the controller deletes the topics named in `/admin/delete_topics`.
    """

    def __init__(
        self,
        connect: str,
        clock: Clock,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        connection_timeout_ms: int = CONNECTION_TIMEOUT_MS,
        deletes_topics: bool = True,
    ) -> None:
        self.session = ZooKeeperSession(
            connect,
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=connection_timeout_ms,
            on_change=self._refresh,
        )
        self._registration_wait_ms = session_timeout_ms + REGISTRATION_MARGIN_MS
        self._clock = clock
        self._refreshing = threading.Lock()  # views are made one at a time, so they come in order
        self._broker_id: int | None = None
        self._deletes_topics = deletes_topics
        self._view = ClusterView("", -1, {}, {})
        self._last_notification = ""
        self._listener: OnChange = lambda _: None

    def start(self, on_change: OnChange) -> None:
        """Connect and read the cluster. ZooKeeperError where no ZooKeeper answers."""
        self._listener = on_change
        self.session.start()
        for path in paths.PERSISTENT:
            self.session.ensure(path)
        cluster_id = self._cluster_id()
        with self._refreshing:
            self._view = ClusterView(cluster_id, -1, {}, {})
        self._refresh(None)

    def new_broker_id(self, highest_told: int) -> int:
        """The next of `/brokers/seqid`, whose version counts, as Kafka takes it. ZooKeeperError."""
        return highest_told + self.session.next_version(paths.BROKER_SEQUENCE)

    def register_broker(self, broker: BrokerInfo) -> None:
        """Hold `/brokers/ids/[id]`; waits for the session of a killed process to expire. BrokerIdTakenError else."""
        registration = codec.BrokerRegistration(
            host=broker.host, port=broker.port, rack=broker.rack, timestamp_ms=self._clock.now_ms()
        )
        path = paths.broker(broker.id)
        data = codec.encode_broker(registration)
        taken_by = self.session.register(path, data, wait_ms=self._registration_wait_ms)
        if taken_by is not None:
            holder = codec.decode_broker(taken_by)
            raise BrokerIdTakenError(
                f"broker id {broker.id} is held by a live broker at {Address(holder.host, holder.port)}"
            )
        self._broker_id = broker.id
        self._refresh(None)

    def view(self) -> ClusterView:
        """The newest view."""
        return self._view

    def trouble(self) -> str | None:
        """What is wrong with the session that holds the registration."""
        return self.session.trouble

    def create_topic(self, topic: TopicInfo) -> None:
        """Add a topic in one transaction. TopicExistsError if its name is taken."""
        assignment = codec.TopicAssignment(
            topic_id=topic.topic_id, replicas=tuple(partition.replicas for partition in topic.partitions)
        )
        config_path = paths.topic_config(topic.name)
        config = codec.encode_config(topic.config)
        left_over = self.session.get(config_path) is not None
        operations: list[Operation] = [
            SetData(config_path, config) if left_over else Create(config_path, config),
            Create(paths.topic(topic.name), codec.encode_topic(assignment)),
            Create(paths.partitions(topic.name)),
        ]
        for partition in topic.partitions[:PARTITIONS_PER_TRANSACTION]:
            operations += _initial_state(topic.name, partition)
        refused = self.session.transact(operations)
        if refused == paths.topic(topic.name):
            raise TopicExistsError(f"topic {topic.name} already exists")
        if refused is not None:
            raise ZooKeeperError(f"topic {topic.name} is not created: {refused} was changed by another broker")
        self._refresh(frozenset({paths.topic(topic.name)}))

    def delete_topic(self, name: str) -> None:
        """Remove all nodes of a topic. UnknownTopicError if there is none."""
        if not self._delete_nodes_of(name):
            raise UnknownTopicError(f"topic {name} does not exist")
        self._refresh(frozenset({paths.topic(name)}))

    def add_partitions(self, name: str, partitions: Sequence[PartitionInfo]) -> None:
        """Write the longer assignment and the first states in one transaction, the states of many in those after it."""
        path = paths.topic(name)
        data = self.session.get(path)
        if data is None:
            raise UnknownTopicError(f"topic {name} does not exist")
        assignment = codec.decode_topic(data)
        if partitions[0].index != len(assignment.replicas):
            raise InvalidPartitionsError(f"topic {name} has {len(assignment.replicas)} partitions by now")
        longer = codec.TopicAssignment(
            topic_id=assignment.topic_id, replicas=(*assignment.replicas, *(each.replicas for each in partitions))
        )
        operations: list[Operation] = [SetData(path, codec.encode_topic(longer))]
        for partition in partitions[:PARTITIONS_PER_TRANSACTION]:
            operations += _initial_state(name, partition)
        refused = self.session.transact(operations)
        if refused is not None:
            raise ZooKeeperError(f"partitions of topic {name} are not added: {refused} was changed by another broker")
        self._refresh(frozenset({path}))

    def raise_leader_epochs(self, leader_epochs: Mapping[TopicPartition, int]) -> None:
        """Replace partitions' states, many in a transaction, each as it was read. ZooKeeperError.

        Each of the changes is also heard of; they are read again together, once all are made.
        """
        wanted = list(leader_epochs)
        with self._refreshing:
            states: dict[TopicPartition, codec.PartitionState] = {}
            for begin in range(0, len(wanted), NODES_PER_TRANSACTION):
                chunk = wanted[begin : begin + NODES_PER_TRANSACTION]
                states |= self._raise_some({key: leader_epochs[key] for key in chunk})
            self._view = _with_states(self._view, states)
            self._listener(self._view)

    def _raise_some(self, leader_epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, codec.PartitionState]:
        """The states of those that are there, as they are then."""
        nodes = {key: paths.partition_state(key.topic, key.partition) for key in leader_epochs}
        for _ in range(RAISE_ATTEMPTS):
            states: dict[TopicPartition, codec.PartitionState] = {}
            changes: list[SetData] = []
            for key, node in zip(nodes, self.session.nodes(list(nodes.values())), strict=True):
                if node is not None:
                    state = codec.decode_partition_state(node.data)
                    states[key] = replace(state, leader_epoch=max(state.leader_epoch, leader_epochs[key]))
                    if states[key] != state:
                        changes.append(SetData(nodes[key], codec.encode_partition_state(states[key]), node.version))
            refused = self.session.transact(changes) if changes else None
            if refused is None:
                return states
        raise ZooKeeperError(f"leader epochs are not raised: {refused} was changed by another broker")

    def set_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        """Replace `/config/topics/[topic]` and notify."""
        if self.session.get(paths.topic(name)) is None:
            raise UnknownTopicError(f"topic {name} does not exist")
        self._set_config(paths.topic_config(name), f"topics/{name}", config)
        self._refresh(frozenset({paths.topic_config(name)}))

    def set_broker_config(self, entity: str, config: Mapping[str, str]) -> None:
        """Replace `/config/brokers/[entity]` and notify."""
        self._set_config(paths.broker_config(entity), f"brokers/{entity}", config)
        self._refresh(frozenset())

    def set_group_config(self, group_id: str, config: Mapping[str, str]) -> None:
        """Replace `/config/groups/[group]`, which Kafka knows nothing of: brokers see it without a notification."""
        self.session.put(paths.group_config(group_id), codec.encode_config(config))
        self._refresh(frozenset())

    def reserve_producer_ids(self, broker_id: int, at_least: int) -> range:
        """Take the next block of producer ids; another broker may be faster, then the one after. ZooKeeperError."""
        for _ in range(RESERVE_ATTEMPTS):
            found = self.session.get_with_version(paths.PRODUCER_IDS)
            block = next_block(found[0] if found is not None else None, at_least)
            data = encode_block(broker_id, block)
            if found is None:
                reserved = self.session.create(paths.PRODUCER_IDS, data)
            else:
                reserved = self.session.replace(paths.PRODUCER_IDS, data, found[1])
            if reserved:
                return block
        raise ZooKeeperError(f"{paths.PRODUCER_IDS} was changed by other brokers {RESERVE_ATTEMPTS} times in a row")

    def close(self) -> None:
        """Give up the registration."""
        self.session.close()

    def _cluster_id(self) -> str:
        data = self.session.get(paths.CLUSTER_ID)
        if data is None:
            self.session.create(paths.CLUSTER_ID, codec.encode_cluster_id(encode_id(uuid4())))
            data = self.session.get(paths.CLUSTER_ID)  # ours, or that of whoever was faster
        if data is None:
            raise ZooKeeperError(f"{paths.CLUSTER_ID} was made and is gone")
        return codec.decode_cluster_id(data)

    def _set_config(self, path: str, entity_path: str, config: Mapping[str, str]) -> None:
        data = codec.encode_config(config)
        change = Create(paths.config_change(), codec.encode_config_change(entity_path), sequential=True)
        there = self.session.get(path) is not None
        refused = self.session.transact([SetData(path, data) if there else Create(path, data), change])
        if refused is not None:
            raise ZooKeeperError(f"{path} is not changed: {refused} was changed by another broker")
        for name in sorted(self.session.children(paths.CONFIG_CHANGES)):
            notification = f"{paths.CONFIG_CHANGES}/{name}"
            age_ms = self.session.age_ms(notification)
            if age_ms is not None and age_ms < NOTIFICATION_LIFE_MS:
                break
            self.session.transact([Delete(notification)])

    def _delete_nodes_of(self, name: str) -> bool:
        """False where there is no such topic."""
        for _ in range(DELETE_ATTEMPTS):
            nodes = self.session.tree(paths.topic(name))
            if not nodes:
                return False
            refused = self._delete([*nodes[:-1], *self.session.tree(paths.topic_config(name)), nodes[-1]])
            if refused is None:
                return True
        raise ZooKeeperError(f"topic {name} is not deleted: {refused} was changed by another broker")

    def _delete_wanted(self) -> None:
        """Delete the topics that another tool wants gone, or only its requests where topics may not be deleted."""
        for name in self.session.children(paths.DELETE_TOPICS, watch=True):
            if self._deletes_topics:
                self._delete_nodes_of(name)
            self.session.transact([Delete(paths.delete_topic(name))])

    def _delete(self, nodes: Sequence[str]) -> str | None:
        """Children come before their parents and the assignment last, so the last transaction ends the topic."""
        for begin in range(0, len(nodes), NODES_PER_TRANSACTION):
            chunk = nodes[begin : begin + NODES_PER_TRANSACTION]
            refused = self.session.transact([Delete(path) for path in chunk])
            if refused is not None:
                return refused
        return None

    def _refresh(self, changed: frozenset[str] | None) -> None:
        with self._refreshing:
            brokers = self._read_brokers()
            if self._broker_id is not None and self._broker_id == min(brokers, default=None):
                self._delete_wanted()
            notified = self._read_notifications()
            topics = self._read_topics(None if changed is None else changed | notified)
            configs = self._read_configs(paths.BROKER_CONFIGS)
            groups = self._read_configs(paths.GROUP_CONFIGS)
            view = ClusterView(self._view.cluster_id, min(brokers, default=-1), brokers, topics, configs, groups)
            if view != self._view:
                self._view = view
                self._listener(view)

    def _read_brokers(self) -> dict[int, BrokerInfo]:
        ids = sorted(int(name) for name in self.session.children(paths.BROKER_IDS, watch=True))
        brokers = {}
        for broker_id, data in zip(ids, self._read(paths.broker(one) for one in ids), strict=True):
            if data is not None:
                fields = codec.decode_broker(data)
                brokers[broker_id] = BrokerInfo(broker_id, fields.host, fields.port, fields.rack)
        return brokers

    def _read_notifications(self) -> frozenset[str]:
        """The configuration nodes that notifications name which were not read before."""
        names = sorted(self.session.children(paths.CONFIG_CHANGES, watch=True))
        fresh = [name for name in names if name > self._last_notification]
        self._last_notification = max(fresh, default=self._last_notification)
        nodes = self.session.get_many([f"{paths.CONFIG_CHANGES}/{name}" for name in fresh])
        changed = set()
        for data in nodes:
            if data is not None:
                try:
                    changed.add(f"{paths.CONFIGS}/{codec.decode_config_change(data)}")
                except ZooKeeperError:
                    logger.exception("a notification is passed over")
        return frozenset(changed)

    def _read_configs(self, parent: str) -> dict[str, Mapping[str, str]]:
        """The configurations of brokers or groups by name."""
        entities = sorted(self.session.children(parent, watch=True))
        configs: dict[str, Mapping[str, str]] = {}
        for entity, data in zip(entities, self._read(f"{parent}/{one}" for one in entities), strict=True):
            if data is not None:
                try:
                    configs[entity] = codec.decode_config(data)
                except ZooKeeperError:
                    logger.exception("%s/%s is passed over", parent, entity)
        return configs

    def _read_topics(self, changed: frozenset[str] | None) -> dict[str, TopicInfo]:
        names = sorted(self.session.children(paths.TOPICS, watch=True))
        if changed is None:
            known: Mapping[str, TopicInfo] = {}
        else:
            dirty = {paths.topic_of(path) for path in changed}
            known = {name: topic for name, topic in self._view.topics.items() if name not in dirty}
        fresh = self._read_topics_named([name for name in names if name not in known], complete_all=changed is None)
        topics = {name: known.get(name) or fresh.get(name) for name in names}
        return {name: topic for name, topic in topics.items() if topic is not None}

    def _read_topics_named(self, names: Sequence[str], *, complete_all: bool) -> dict[str, TopicInfo]:
        assignments = self._read_assignments(names)
        configs = self._read(paths.topic_config(name) for name in assignments)
        wanted = [(name, index) for name, topic in assignments.items() for index in range(len(topic.replicas))]
        states = self._read(paths.partition_state(name, index) for name, index in wanted)
        state_of = dict(zip(wanted, states, strict=True))
        topics = {}
        for (name, assignment), config in zip(assignments.items(), configs, strict=True):
            partitions = [state_of[name, index] for index in range(len(assignment.replicas))]
            topics[name] = _topic_info(name, assignment, partitions, config)
            # Known partitions that lost their states are being deleted; writing them again would be in the way.
            known = self._view.topics.get(name)
            first = 0 if complete_all or known is None else len(known.partitions)
            self._complete(
                topics[name], [index for index in range(first, len(partitions)) if partitions[index] is None]
            )
        return topics

    def _read_assignments(self, names: Sequence[str]) -> dict[str, codec.TopicAssignment]:
        assignments = {}
        for name, data in zip(names, self._read(paths.topic(name) for name in names), strict=True):
            if data is not None:
                try:
                    assignments[name] = codec.decode_topic(data)
                except ZooKeeperError:
                    logger.exception("topic %s is passed over", name)
        return assignments

    def _complete(self, topic: TopicInfo, missing: Sequence[int]) -> None:
        ours = [index for index in missing if topic.partitions[index].replicas[0] == self._broker_id]
        if not ours:
            return
        logger.info("topic %s: the first state of %d partitions is written", topic.name, len(ours))
        self.session.create(paths.partitions(topic.name), b"")
        for begin in range(0, len(ours), PARTITIONS_PER_TRANSACTION):
            chunk = [topic.partitions[index] for index in ours[begin : begin + PARTITIONS_PER_TRANSACTION]]
            nodes = [node for partition in chunk for node in _initial_state(topic.name, partition)]
            if self.session.transact(nodes) is not None:
                for node in nodes:  # some are there already
                    self.session.create(node.path, node.data)

    def _read(self, nodes: Iterable[str]) -> list[bytes | None]:
        return self.session.get_many(list(nodes), watch=True)


def _initial_state(topic: str, partition: PartitionInfo) -> tuple[Create, Create]:
    state = codec.PartitionState.initial(partition.replicas)
    return (
        Create(paths.partition(topic, partition.index)),
        Create(paths.partition_state(topic, partition.index), codec.encode_partition_state(state)),
    )


def _with_states(view: ClusterView, states: Mapping[TopicPartition, codec.PartitionState]) -> ClusterView:
    """The view with other states of some partitions."""
    topics = dict(view.topics)
    for name in {key.topic for key in states} & view.topics.keys():
        partitions = tuple(
            one if (state := states.get(TopicPartition(name, one.index))) is None else _with_state(one, state)
            for one in topics[name].partitions
        )
        topics[name] = replace(topics[name], partitions=partitions)
    return replace(view, topics=topics)


def _with_state(partition: PartitionInfo, state: codec.PartitionState) -> PartitionInfo:
    return PartitionInfo(partition.index, state.leader, state.leader_epoch, partition.replicas, state.isr)


def _topic_info(
    name: str, assignment: codec.TopicAssignment, states: Sequence[bytes | None], config: bytes | None
) -> TopicInfo:
    partitions = []
    for index, (replicas, data) in enumerate(zip(assignment.replicas, states, strict=True)):
        state = codec.PartitionState.initial(replicas) if data is None else codec.decode_partition_state(data)
        partitions.append(PartitionInfo(index, state.leader, state.leader_epoch, replicas, state.isr))
    properties = {} if config is None else codec.decode_config(config)
    return TopicInfo(name, assignment.topic_id, tuple(partitions), properties)
