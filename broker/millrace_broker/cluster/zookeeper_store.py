"""Keeps the metadata of a cluster in ZooKeeper, in Apache Kafka's own nodes (docs/formats/metadata.md).

A topic exists as long as its assignment, `/brokers/topics/[topic]`, does. It is created with its configuration, its
assignment and the first partition states in one transaction. Its nodes are deleted in one transaction, those of a large
topic in several, the assignment in the last. A partition without a state node has the initial state: its first replica
leads in epoch 0, and all replicas are in sync. The broker of that first replica writes the state as soon as it sees the
topic. So a crash leaves, at most, a topic that is whole, with the initial state for some of its partitions.

A broker that changes a configuration writes a notification too, and removes the notifications that are old. The
controller deletes the topics that other tools name in `/admin/delete_topics`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
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
from millrace.zk.operations import Create, Delete, Operation, SetData
from millrace.zk.session import ZooKeeperSession
from millrace_broker.cluster.producer_ids import encode_block, next_block
from millrace_broker.cluster.store import OnChange
from millrace_broker.cluster.view import BrokerInfo, ClusterView, PartitionInfo, TopicInfo
from millrace_broker.cluster.zookeeper_reader import ZooKeeperReader
from millrace_broker.storage import TopicPartition

logger = logging.getLogger(__name__)

SESSION_TIMEOUT_MS = 18_000
CONNECTION_TIMEOUT_MS = 18_000
REGISTRATION_MARGIN_MS = 3_000  # as ZooKeeper expires a session only on its next tick
NODES_PER_TRANSACTION = 500  # far below ZooKeeper's limit of 1 MiB per request
PARTITIONS_PER_TRANSACTION = NODES_PER_TRANSACTION // 2
DELETE_ATTEMPTS = 3
RAISE_ATTEMPTS = 10
NOTIFICATION_LIFE_MS = 15 * 60_000
RESERVE_ATTEMPTS = 10


class ZooKeeperStore:
    """A `MetadataStore` that the brokers of a cluster share.

    Args:
        connect: `HOST:PORT[,…][/chroot]`.
        clock: gives the timestamp of the registration.
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
            clock=clock,
        )
        self._registration_wait_ms = session_timeout_ms + REGISTRATION_MARGIN_MS
        self._clock = clock
        self._refreshing = threading.Lock()  # views are read one at a time, so the listener gets them in order
        self._broker_id: int | None = None
        self._deletes_topics = deletes_topics
        self._view = ClusterView("", -1, {}, {})
        self._reader = ZooKeeperReader(self.session)
        self._listener: OnChange = lambda _: None

    def start(self, on_change: OnChange) -> None:
        """Connects and reads the cluster. ZooKeeperError where no ZooKeeper answers."""
        self._listener = on_change
        self.session.start()
        for path in paths.PERSISTENT:
            self.session.ensure(path)
        cluster_id = self._cluster_id()
        with self._refreshing:
            self._view = ClusterView(cluster_id, -1, {}, {})
        self._refresh(None)

    def new_broker_id(self, highest_told: int) -> int:
        """Returns `highest_told` plus the next version of `/brokers/seqid`, as Kafka does. ZooKeeperError."""
        return highest_told + self.session.next_version(paths.BROKER_SEQUENCE)

    def register_broker(self, broker: BrokerInfo) -> None:
        """Creates `/brokers/ids/[id]`, and waits where the session of a killed process still holds it.

        BrokerIdTakenError where it does not expire: another live broker has the id.
        """
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
        """Returns the newest view."""
        return self._view

    def trouble(self) -> str | None:
        """Returns a sentence on what is wrong with the session that holds the registration; None where it is whole."""
        return self.session.trouble

    def create_topic(self, topic: TopicInfo) -> None:
        """Adds a topic in one transaction, the states of many partitions afterwards. TopicExistsError."""
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
        """Deletes all nodes of a topic. UnknownTopicError if there is none."""
        if not self._delete_nodes_of(name):
            raise UnknownTopicError(f"topic {name} does not exist")
        self._refresh(frozenset({paths.topic(name)}))

    def add_partitions(self, name: str, partitions: Sequence[PartitionInfo]) -> None:
        """Writes the longer assignment with the first states in one transaction, the states of many afterwards."""
        path = paths.topic(name)
        found = self.session.get_with_version(path)
        if found is None:
            raise UnknownTopicError(f"topic {name} does not exist")
        assignment = codec.decode_topic(found[0])
        if partitions[0].index != len(assignment.replicas):
            raise InvalidPartitionsError(f"topic {name} has {len(assignment.replicas)} partitions by now")
        longer = replace(assignment, replicas=(*assignment.replicas, *(each.replicas for each in partitions)))
        operations: list[Operation] = [SetData(path, codec.encode_topic(longer), found[1])]
        for partition in partitions[:PARTITIONS_PER_TRANSACTION]:
            operations += _initial_state(name, partition)
        refused = self.session.transact(operations)
        if refused is not None:
            raise ZooKeeperError(f"partitions of topic {name} are not added: {refused} was changed by another broker")
        self._refresh(frozenset({path}))

    def raise_leader_epochs(self, leader_epochs: Mapping[TopicPartition, int]) -> None:
        """Replaces partitions' states, many in one transaction, provided that none changed since it was read.

        The view takes the new states at once, before the watches tell of them. ZooKeeperError.
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
        """Raises the epochs of the partitions that exist, and returns their states."""
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
        """Replaces `/config/topics/[topic]` and notifies the other brokers."""
        if self.session.get(paths.topic(name)) is None:
            raise UnknownTopicError(f"topic {name} does not exist")
        self._set_config(paths.topic_config(name), f"topics/{name}", config)
        self._refresh(frozenset({paths.topic_config(name)}))

    def set_broker_config(self, entity: str, config: Mapping[str, str]) -> None:
        """Replaces `/config/brokers/[entity]` and notifies the other brokers."""
        self._set_config(paths.broker_config(entity), f"brokers/{entity}", config)
        self._refresh(frozenset())

    def set_group_config(self, group_id: str, config: Mapping[str, str]) -> None:
        """Replaces `/config/groups/[group]`, which Kafka does not have and brokers watch without a notification."""
        self.session.put(paths.group_config(group_id), codec.encode_config(config))
        self._refresh(frozenset())

    def reserve_producer_ids(self, broker_id: int, at_least: int) -> range:
        """Reserves and returns the next block of producer ids; where another broker took it, the one after.

        ZooKeeperError.
        """
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
        """Closes the session, and gives up the registration with it."""
        self.session.close()

    def _cluster_id(self) -> str:
        data = self.session.get(paths.CLUSTER_ID)
        if data is None:
            self.session.create(paths.CLUSTER_ID, codec.encode_cluster_id(encode_id(uuid4())))
            data = self.session.get(paths.CLUSTER_ID)  # ours, or that of a broker that was faster
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
        """Deletes the nodes of a topic, and returns whether there were any."""
        for _ in range(DELETE_ATTEMPTS):
            nodes = self.session.tree(paths.topic(name))
            if not nodes:
                return False
            refused = self._delete([*nodes[:-1], *self.session.tree(paths.topic_config(name)), nodes[-1]])
            if refused is None:
                return True
        raise ZooKeeperError(f"topic {name} is not deleted: {refused} was changed by another broker")

    def _delete_wanted(self) -> None:
        """Deletes the topics that other tools asked to delete; only their requests where topics may not be deleted."""
        for name in self.session.children(paths.DELETE_TOPICS, watch=True):
            if self._deletes_topics:
                self._delete_nodes_of(name)
            self.session.transact([Delete(paths.delete_topic(name))])

    def _delete(self, nodes: Sequence[str]) -> str | None:
        """Deletes nodes in their order and returns the one that was refused, None where all are gone.

        Children come before their parents and the assignment last, so the last transaction ends the topic.
        """
        for begin in range(0, len(nodes), NODES_PER_TRANSACTION):
            chunk = nodes[begin : begin + NODES_PER_TRANSACTION]
            refused = self.session.transact([Delete(path) for path in chunk])
            if refused is not None:
                return refused
        return None

    def _refresh(self, changed: frozenset[str] | None) -> None:
        with self._refreshing:
            brokers = self._reader.read_brokers()
            if self._broker_id is not None and self._broker_id == min(brokers, default=None):
                self._delete_wanted()
            view, stateless = self._reader.read(self._view, brokers, changed)
            for topic, indexes in stateless:
                self._write_first_states(topic, indexes)
            if view != self._view:
                self._view = view
                self._listener(view)

    def _write_first_states(self, topic: TopicInfo, missing: Sequence[int]) -> None:
        """Writes the states that these partitions do not have yet, where this broker is their first replica."""
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


def _initial_state(topic: str, partition: PartitionInfo) -> tuple[Create, Create]:
    state = codec.PartitionState.initial(partition.replicas)
    return (
        Create(paths.partition(topic, partition.index)),
        Create(paths.partition_state(topic, partition.index), codec.encode_partition_state(state)),
    )


def _with_states(view: ClusterView, states: Mapping[TopicPartition, codec.PartitionState]) -> ClusterView:
    """Returns the view with other states of some partitions."""
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
