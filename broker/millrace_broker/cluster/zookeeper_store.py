"""Keeps the metadata of a cluster in ZooKeeper, in Apache Kafka's own nodes (docs/formats/metadata.md).

    a creator     writes a topic's configuration and its assignment, `/brokers/topics/[topic]`, in one transaction
    an adopter    writes with them the states of partitions whose logs are there (`adopted_states`)
    the controller elects the leaders of new partitions and writes the states of partitions
    a deleter     names the topic in `/admin/delete_topics`; the controller has its logs deleted and then its nodes

What a broker does at its start is done again where the connection to ZooKeeper breaks meanwhile.

A topic exists as long as its assignment does. A broker learns of topics and leaders from the controller
(`metadata_update`), and reads only configurations from ZooKeeper itself. One that changes a configuration writes a
notification too, and removes the notifications that are old.

The states of an adopted topic's partitions begin with what the logs say, not with epoch 0. A creator of a topic leaves
the states to the controller, which lets the first replica lead in epoch 0 with all replicas in sync. Where the logs are
there already, that would cut logs, and let old epochs pass for new ones. So an adopter writes the states: the broker
with the longest log leads, is alone in sync, in an epoch above those of all logs. The controller takes over a state
that it finds; the others follow, cut off what the leader lacks, and come into sync.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from uuid import UUID

from millrace.clock import Clock
from millrace.errors import (
    BrokerIdTakenError,
    InvalidPartitionsError,
    TopicBeingDeletedError,
    TopicExistsError,
    UnknownTopicError,
    ZooKeeperError,
)
from millrace.security.acls import ResourcePattern
from millrace.wire.controller_apis import NO_BROKER_EPOCH
from millrace.zk import codec, paths
from millrace.zk.connects import patiently
from millrace.zk.operations import Check, Create, Operation, SetData
from millrace.zk.security import UNSECURED, ZooKeeperSecurity
from millrace.zk.session import Node, ZooKeeperSession
from millrace.zk.session import OnChange as OnNodesChanged
from millrace_broker.cluster.eligible_leaders import eligible_leaders
from millrace_broker.cluster.loss_reports import confirm_losses, write_damage, write_losses
from millrace_broker.cluster.metadata_image import (
    BrokerInfo,
    MetadataImage,
    PartitionInfo,
    SupportedFeatures,
    TopicInfo,
    offered_features,
)
from millrace_broker.cluster.metadata_update import MetadataUpdate, configured_image, updated_image
from millrace_broker.cluster.producer_ids import encode_block, next_block
from millrace_broker.cluster.store import UNNAMED, Losses, NamedCluster, OnChange
from millrace_broker.cluster.zookeeper_nodes import (
    Change,
    ZooKeeperAcls,
    ZooKeeperConfigs,
    ZooKeeperTokens,
    remove_old_notifications,
)
from millrace_broker.security.tokens import DelegationToken
from millrace_broker.storage import TopicPartition

logger = logging.getLogger(__name__)

SESSION_TIMEOUT_MS = 18_000
CONNECTION_TIMEOUT_MS = 18_000
REGISTRATION_MARGIN_MS = 3_000  # as ZooKeeper expires a session only on its next tick
ATTEMPTS = 10  # of a write whose node another broker changes between the look at it and the write


class ZooKeeperStore:
    """The metadata of a cluster in ZooKeeper, which its brokers share (a `MetadataStore`).

    Args:
        connect: `HOST:PORT[,…][/chroot]`.
        clock: gives the timestamp of the registration.
        session_timeout_ms: how long a dead broker stays registered.
        connection_timeout_ms: how long a start waits for ZooKeeper.
        named: says which id the cluster gets in an empty ZooKeeper.
        security: how the session is secured, and whether nodes belong to who makes them.
        has_acls: whether the access control lists are read, which a broker without an authorizer does not need.
        keeps_tokens: whether there are delegation tokens.
        min_insync_replicas: the broker's own default for topics, which the controller has to know.

    Attributes:
        session: the session that holds the registration.
        broker_epoch: the id of the transaction that made the registration (its czxid), -1 before; it is another one
            after the session has expired.
    """

    def __init__(
        self,
        connect: str,
        clock: Clock,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        connection_timeout_ms: int = CONNECTION_TIMEOUT_MS,
        named: NamedCluster = UNNAMED,
        security: ZooKeeperSecurity = UNSECURED,
        has_acls: bool = False,
        keeps_tokens: bool = False,
        min_insync_replicas: int = 1,
    ) -> None:
        self.session = ZooKeeperSession(
            connect,
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=connection_timeout_ms,
            on_change=self._nodes_changed,
            clock=clock,
            security=security,
        )
        self.broker_epoch = NO_BROKER_EPOCH
        self._connection_timeout_s = connection_timeout_ms / 1000
        self._registration_wait_ms = session_timeout_ms + REGISTRATION_MARGIN_MS
        self._clock = clock
        self._named = named
        self._min_insync_replicas = min_insync_replicas
        self._reading = threading.Lock()  # configurations are read one at a time, so that the newest comes last
        self._showing = threading.Lock()  # held while the image is replaced, so the listener gets images in order
        self._image = MetadataImage("", -1, {}, {})
        self._configs = ZooKeeperConfigs(self.session)
        self._acls = ZooKeeperAcls(self.session) if has_acls else None
        self._tokens = ZooKeeperTokens(self.session) if keeps_tokens else None
        self._listener: OnChange = lambda _: None
        self._followers: list[OnNodesChanged] = []

    def start(self, on_change: OnChange) -> None:
        """Connects, reads the configurations, and makes the cluster's id if there is none.

        Raises ZooKeeperError where nothing answers, InvalidConfigError or InconsistentClusterIdError for another
        cluster's id.
        """
        self._listener = on_change
        self.session.start()
        patiently(self._read_all, self._connection_timeout_s)

    def _read_all(self) -> None:
        for path in paths.PERSISTENT:
            self.session.ensure(path)
        if not self._image.cluster_id:
            self._image = MetadataImage(self._cluster_id(), -1, {}, {})
        self._read_configs(None)
        if self._acls is not None:
            self._acls.make_folders()
        self._read_acls(None)
        self._read_features()
        if self._tokens is not None:
            self._tokens.start()
            self._read_tokens()

    def follow_nodes(self, follower: OnNodesChanged) -> None:
        """Makes the session call `follower` with the paths of watched nodes that change; None where all may have."""
        self._followers.append(follower)

    def update(self, update: MetadataUpdate) -> None:
        """Updates the image by an UpdateMetadata request of the controller; any thread may call it."""
        with self._showing:
            self._show(updated_image(self._image, update))

    def new_broker_id(self, highest_told: int) -> int:
        """Returns `highest_told` plus the next version of `/brokers/seqid`, as Kafka does. Raises ZooKeeperError."""
        version = patiently(partial(self.session.next_version, paths.BROKER_SEQUENCE), self._connection_timeout_s)
        return highest_told + version

    def note_losses(self, broker_id: int, losses: Losses) -> None:
        """Writes `/brokers/new_disks/[id]` and `/brokers/power_losses/[id]`, where the broker has lost anything."""
        patiently(partial(write_losses, self.session, broker_id, losses), self._connection_timeout_s)

    def note_damage(self, broker_id: int, partitions: Collection[TopicPartition]) -> None:
        """Writes `/brokers/damage/[id]`, and deletes it where no log is damaged."""
        patiently(partial(write_damage, self.session, broker_id, partitions), self._connection_timeout_s)

    def eligible_leaders(self, partition: TopicPartition) -> tuple[int, ...]:
        """Returns the replicas outside a partition's ISR that have every committed record. Raises ZooKeeperError."""
        return eligible_leaders(self.session, partition)

    def register_broker(self, broker: BrokerInfo) -> None:
        """Creates `/brokers/ids/[id]`, and waits where the session of a killed process still holds it.

        Raises BrokerIdTakenError where it stays, as another live broker has the id.
        """
        registration = codec.BrokerRegistration(
            endpoints=broker.endpoints,
            rack=broker.rack,
            timestamp_ms=self._clock.now_ms(),
            registers_again=True,
            min_insync_replicas=self._min_insync_replicas,
        )
        data = codec.encode_broker(registration)  # the same each time: the node of a session that has expired has it
        patiently(partial(self._register, broker, data), self._connection_timeout_s)

    def _register(self, broker: BrokerInfo, data: bytes) -> None:
        path = paths.broker(broker.id)
        taken_by = self.session.register(
            path, data, wait_ms=self._registration_wait_ms, on_registered=self._note_broker_epoch
        )
        if taken_by is not None:
            holder = codec.decode_broker(taken_by)
            raise BrokerIdTakenError(f"broker id {broker.id} is held by a live broker at {holder.endpoints[0].address}")
        confirm_losses(self.session, broker.id, self.broker_epoch)

    def deregister_broker(self, broker_id: int) -> None:
        """Deletes the broker's registration; if ZooKeeper does not answer, it ends with the session."""
        if self.session.trouble is None:
            try:
                self.session.deregister(paths.broker(broker_id))
            except ZooKeeperError as error:
                logger.warning("the registration of broker %d ends with its session only: %s", broker_id, error)

    def image(self) -> MetadataImage:
        """Returns the newest metadata image."""
        return self._image

    def trouble(self) -> str | None:
        """Returns a sentence on what is wrong with the ZooKeeper session that holds the registration, else None."""
        return self.session.trouble

    def topics(self) -> AbstractSet[str]:
        """Returns the names of the topics that exist, can be read, and are not being deleted."""
        return patiently(self._topics, self._connection_timeout_s)

    def _topics(self) -> AbstractSet[str]:
        names = sorted(set(self.session.children(paths.TOPICS)) - set(self.session.children(paths.DELETE_TOPICS)))
        nodes = self.session.get_many([paths.topic(name) for name in names])
        return {name for name, data in zip(names, nodes, strict=True) if data is not None and _is_topic(data)}

    def create_topic(self, topic: TopicInfo) -> None:
        """Adds a topic in one transaction.

        Raises TopicExistsError; raises TopicBeingDeletedError while its name is not free yet.
        """
        self._create(topic, ())

    def adopt_topic(self, topic: TopicInfo) -> None:
        """Adds a topic with its leaders in one transaction. Raises TopicExistsError or TopicBeingDeletedError."""
        (controller_epoch,) = self.session.nodes([paths.CONTROLLER_EPOCH])
        if controller_epoch is None:
            raise ZooKeeperError(f"topic {topic.name} is not adopted: no broker has been the controller yet")
        self._create(topic, adopted_states(topic, controller_epoch))

    def topic_id(self, name: str) -> UUID | None:
        """Returns the id in a topic's node, which exists until a deleted topic's logs are gone; None without it."""
        data = self.session.get(paths.topic(name))
        return None if data is None else codec.decode_topic(data).topic_id

    def _create(self, topic: TopicInfo, states: Sequence[Operation]) -> None:
        """Writes a topic's properties, its assignment and the `states` below it in one transaction.

        Tries again where properties of this name appear or go between the look at them and the write: another broker
        creates the topic, or the controller removes the nodes of a deleted one.
        """
        config_path = paths.topic_config(topic.name)
        for _ in range(ATTEMPTS):
            refused = self.session.transact([*self._creation(topic), *states])
            if refused is None:
                self._read_configs(frozenset({config_path}))
                return
            if refused == paths.topic(topic.name):
                if self.session.exists(paths.delete_topic(topic.name)):
                    sentence = f"topic {topic.name} is being deleted; its replicas have not all gone yet"
                    raise TopicBeingDeletedError(sentence)
                raise TopicExistsError(f"Topic '{topic.name}' already exists.")
            if refused != config_path:
                break
        raise ZooKeeperError(f"topic {topic.name} is not created: {refused} was changed by another broker")

    def _creation(self, topic: TopicInfo) -> tuple[Operation, Operation]:
        """Returns the operations that write a topic's properties and its assignment, whether nodes exist or not."""
        config_path = paths.topic_config(topic.name)
        config = codec.encode_config(topic.config)
        left_over = self.session.get(config_path) is not None
        assignment = codec.TopicAssignment(
            topic_id=topic.topic_id, replicas=tuple(partition.replicas for partition in topic.partitions)
        )
        return (
            SetData(config_path, config) if left_over else Create(config_path, config),
            Create(paths.topic(topic.name), codec.encode_topic(assignment)),
        )

    def delete_topic(self, name: str) -> None:
        """Asks the controller to delete a topic. Raises UnknownTopicError if there is none."""
        if self.session.get(paths.topic(name)) is None:
            raise UnknownTopicError(f"The topic '{name}' does not exist.")
        self.session.create(paths.delete_topic(name), b"")

    def add_partitions(self, name: str, partitions: Sequence[PartitionInfo]) -> None:
        """Replaces a topic's assignment of replicas by a longer one.

        Raises UnknownTopicError; raises InvalidPartitionsError or ZooKeeperError where another broker has changed it.
        """
        path = paths.topic(name)
        found = self.session.get_with_version(path)
        if found is None:
            raise UnknownTopicError(f"The topic '{name}' does not exist.")
        assignment = codec.decode_topic(found[0])
        if partitions[0].index != len(assignment.replicas):
            raise InvalidPartitionsError(f"topic {name} has {len(assignment.replicas)} partitions by now")
        longer = replace(assignment, replicas=(*assignment.replicas, *(each.replicas for each in partitions)))
        if not self.session.replace(path, codec.encode_topic(longer), found[1]):
            raise ZooKeeperError(f"partitions of topic {name} are not added: {path} was changed by another broker")

    def has_partition(self, name: str, index: int) -> bool:
        """Returns whether a topic's assignment has the partition, and no one has asked to delete the topic."""
        topic, deletion = self.session.nodes([paths.topic(name), paths.delete_topic(name)])
        return topic is not None and deletion is None and index < len(codec.decode_topic(topic.data).replicas)

    def set_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        """Replaces `/config/topics/[topic]` and notifies the other brokers."""
        if self.session.get(paths.topic(name)) is None:
            raise UnknownTopicError(f"The topic '{name}' does not exist.")
        self._set_config(paths.topic_config(name), f"topics/{name}", config)

    def set_broker_config(self, entity: str, config: Mapping[str, str]) -> None:
        """Replaces `/config/brokers/[entity]` and notifies the other brokers."""
        self._set_config(paths.broker_config(entity), f"brokers/{entity}", config)

    def set_group_config(self, group_id: str, config: Mapping[str, str]) -> None:
        """Replaces `/config/groups/[group]`, which brokers watch, so that no notification is needed; Kafka lacks it."""
        self.session.put(paths.group_config(group_id), codec.encode_config(config))
        self._read_configs(frozenset())

    def set_client_config(self, entity: str, config: Mapping[str, str]) -> None:
        """Replaces `/config/[entity]`, makes its parents where they are missing, and notifies the other brokers."""
        path = f"{paths.CONFIGS}/{entity}"
        self.session.ensure(paths.parent(path))
        self._set_config(path, entity, config)

    def change_acls(self, pattern: ResourcePattern, change: Change) -> None:
        """Replaces the entries of a resource by what `change` makes of the newest, and notifies the other brokers."""
        assert self._acls is not None, "asked by an authorizer alone"
        self._acls.change(pattern, change)
        self._read_acls(frozenset({paths.acls(pattern)}))

    def set_delegation_token(self, token: DelegationToken) -> None:
        """Writes `/delegation_token/tokens/[id]` and notifies the other brokers."""
        if self._tokens is None:
            raise ZooKeeperError("this broker keeps no delegation tokens")
        self._tokens.put(token)
        self._read_tokens()

    def remove_delegation_token(self, token_id: str) -> None:
        """Removes `/delegation_token/tokens/[id]` and notifies the other brokers."""
        if self._tokens is None:
            raise ZooKeeperError("this broker keeps no delegation tokens")
        self._tokens.remove(token_id)
        self._read_tokens()

    def reserve_producer_ids(self, broker_id: int, at_least: int) -> range:
        """Reserves and returns the next block of producer ids, or the one after where another broker took that.

        Raises ZooKeeperError.
        """
        for _ in range(ATTEMPTS):
            found = self.session.get_with_version(paths.PRODUCER_IDS)
            block = next_block(found[0] if found is not None else None, at_least)
            data = encode_block(broker_id, block)
            if found is None:
                reserved = self.session.create(paths.PRODUCER_IDS, data)
            else:
                reserved = self.session.replace(paths.PRODUCER_IDS, data, found[1])
            if reserved:
                return block
        raise ZooKeeperError(f"{paths.PRODUCER_IDS} was changed by other brokers {ATTEMPTS} times in a row")

    def notify(self, path: str, data: bytes) -> None:
        """Creates a node that tells the controller of an event; ZooKeeper adds a number to `path`."""
        self.session.multi([Create(path, data, sequential=True)])

    def close(self) -> None:
        """Closes the ZooKeeper session, which ends the broker's registration."""
        self.session.close()

    def _cluster_id(self) -> str:
        data = self.session.get(paths.CLUSTER_ID)
        if data is None:
            self.session.create(paths.CLUSTER_ID, codec.encode_cluster_id(self._named.new_id("ZooKeeper")))
            data = self.session.get(paths.CLUSTER_ID)  # ours, or that of a broker that was faster
        if data is None:
            raise ZooKeeperError(f"{paths.CLUSTER_ID} was made and is gone")
        return self._named.check(codec.decode_cluster_id(data), "ZooKeeper")

    def _set_config(self, path: str, entity_path: str, config: Mapping[str, str]) -> None:
        data = codec.encode_config(config)
        change = Create(paths.CONFIG_CHANGE, codec.encode_config_change(entity_path), sequential=True)
        there = self.session.get(path) is not None
        refused = self.session.transact([SetData(path, data) if there else Create(path, data), change])
        if refused is not None:
            raise ZooKeeperError(f"{path} is not changed: {refused} was changed by another broker")
        remove_old_notifications(self.session, paths.CONFIG_CHANGES)
        self._read_configs(frozenset({path}))

    def _note_broker_epoch(self, created_zxid: int) -> None:
        self.broker_epoch = created_zxid

    def _nodes_changed(self, changed: frozenset[str] | None) -> None:
        if changed is None or any(path.startswith(paths.CONFIGS) for path in changed):
            self._read_configs(changed)
        if changed is None or any(map(paths.is_of_acls, changed)):
            self._read_acls(changed)
        if changed is None or any(path.startswith(paths.BROKER_IDS) for path in changed):
            self._read_features()
        if changed is None or any(path.startswith(paths.DELEGATION_TOKENS) for path in changed):
            self._read_tokens()
        for follower in self._followers:
            follower(changed)

    def _read_configs(self, changed: frozenset[str] | None) -> None:
        with self._reading:
            topics, brokers, groups, clients = self._configs.read(changed)
            with self._showing:
                image = configured_image(self._image, topics)
                self._show(replace(image, broker_configs=brokers, group_configs=groups, client_configs=clients))

    def _read_acls(self, changed: frozenset[str] | None) -> None:
        if self._acls is None:
            return
        with self._reading:
            acls = self._acls.read(changed)
            with self._showing:
                self._show(replace(self._image, acls=acls))

    def _read_tokens(self) -> None:
        if self._tokens is None:
            return
        with self._reading:
            tokens = self._tokens.read()
            with self._showing:
                self._show(replace(self._image, delegation_tokens=tokens))

    def _read_features(self) -> None:
        """Reads which features the registered brokers support, and watches which brokers come and go."""
        with self._reading:
            ids = self.session.children(paths.BROKER_IDS, watch=True)
            nodes = self.session.nodes([paths.broker(int(one)) for one in ids])
            features = offered_features([_supported(node) for node in nodes if node is not None])
            with self._showing:
                self._show(replace(self._image, features=features))

    def _show(self, image: MetadataImage) -> None:
        if image != self._image:
            self._image = image
            self._listener(image)


def _is_topic(data: bytes) -> bool:
    try:
        codec.decode_topic(data)
    except ZooKeeperError:
        return False
    return True


def _supported(registration: Node) -> SupportedFeatures:
    """Returns the features that a broker has registered; none where its registration can't be read."""
    try:
        levels = codec.decode_supported_features(registration.data)
    except ZooKeeperError as error:
        logger.warning("the features of a broker are not known: %s", error)
        levels = {}
    return SupportedFeatures(levels, registration.created_zxid)


def adopted_states(topic: TopicInfo, controller_epoch: Node) -> list[Operation]:
    """Returns the operations that write the partitions' leaders, and fail if another broker becomes the controller."""
    operations: list[Operation] = [Create(paths.partitions(topic.name))]
    for one in topic.partitions:
        state = codec.PartitionState(
            leader=one.leader,
            leader_epoch=one.leader_epoch,
            isr=one.isr,
            controller_epoch=int(controller_epoch.data),
        )
        operations += [
            Create(paths.partition(topic.name, one.index)),
            Create(paths.partition_state(topic.name, one.index), codec.encode_partition_state(state)),
        ]
    return [*operations, Check(paths.CONTROLLER_EPOCH, controller_epoch.version)]
