"""The controller's door to ZooKeeper: reads what it has to know, and writes only while its claim holds.

Each write is a transaction with the claim's check (docs/formats/metadata.md). Once another broker has claimed the role,
ZooKeeper refuses the transaction, which raises NotControllerError. Where another writer has changed the state of a
partition, only that state is not written, and the caller is told.

Reads of brokers, topics, requests and notifications set watches, so that the session tells of the next change.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import uuid4

from millrace.errors import NotControllerError, ZooKeeperError
from millrace.uuids import NO_TOPIC_ID, encode_id
from millrace.zk import codec, paths
from millrace.zk.eligibility import (
    NO_ONE,
    Eligibility,
    SeenEpochs,
    decode_eligibility,
    decode_seen_epochs,
    encode_eligibility,
    encode_seen_epochs,
)
from millrace.zk.operations import Create, Delete, Operation, Reason, Refused, SetData
from millrace.zk.session import Node, ZooKeeperSession
from millrace_broker.cluster.producer_ids import encode_block, next_block
from millrace_broker.controller.broker_reports import BrokerReports, readable_broker
from millrace_broker.controller.claims import ControllerClaim
from millrace_broker.controller.cluster_state import Assignment, LeaderAndIsr, LiveBroker, Topic
from millrace_broker.controller.eligibility import SeenLosses
from millrace_broker.storage import TopicPartition

logger = logging.getLogger(__name__)

WRITES_PER_TRANSACTION = 200  # also with a second node for each far below ZooKeeper's limit of 1 MiB per request
ATTEMPTS = 10
UNCLEAN_ELECTIONS = "unclean.leader.election.enable"

States = Mapping[TopicPartition, LeaderAndIsr]
Removal = tuple[int, TopicPartition]
"""A broker that is to delete its replica, and the partition that was moved away from it."""


class Notification(NamedTuple):
    """A node (path and data) that tells the controller of an event or a request, and is deleted once that is done."""

    path: str
    data: bytes


class WrittenState(NamedTuple):
    """The leader and ISR of a partition as stored, and the id (zxid) of the transaction that wrote them."""

    state: LeaderAndIsr
    zxid: int


class ControllerStore:
    """Reads and writes the controller's nodes in ZooKeeper; for one thread at a time. Calls may raise ZooKeeperError.

    Args:
        session: the session that holds the claim.
        claim: what made this broker the controller.

    Attributes:
        reports: reads what brokers say of themselves.
    """

    def __init__(self, session: ZooKeeperSession, claim: ControllerClaim) -> None:
        self._session = session
        self._with_eligible: set[TopicPartition] = set()  # the partitions with a node that says who is eligible
        self.claim = claim
        self.reports = BrokerReports(session)

    def brokers(self) -> dict[int, LiveBroker]:
        """Returns the registered brokers by id; one whose registration can't be read is logged and left out."""
        names = self._session.children(paths.BROKER_IDS, watch=True)
        ids = sorted(int(name) for name in names if name.isdecimal())
        nodes = zip(ids, self._session.nodes([paths.broker(one) for one in ids], watch=True), strict=True)
        found = [readable_broker(broker, node) for broker, node in nodes if node is not None]
        return {one.id: one for one in found if one is not None}

    def seen_losses(self) -> SeenLosses:
        """Returns up to which registrations controllers have taken into account what brokers have lost."""
        path = paths.SEEN_BROKER_EPOCHS
        (node,) = self._session.nodes([path])
        if node is None:
            raise ZooKeeperError(f"{path} is gone, though the claim has written it")
        return SeenLosses(node.created_zxid, decode_seen_epochs(node.data).brokers)

    def write_seen_losses(self, epochs: Mapping[int, int]) -> None:
        """Writes up to which registrations that was done; the next claim makes a node that others have deleted."""
        data = encode_seen_epochs(SeenEpochs(self.claim.epoch, epochs))
        self._write([SetData(paths.SEEN_BROKER_EPOCHS, data)])

    def deregister(self, broker: LiveBroker) -> bool:
        """Deletes the registration of a broker whose process has ended; returns False where it is gone already."""
        (node,) = self._session.nodes([paths.broker(broker.id)])
        if node is None or node.created_zxid != broker.epoch:
            return False
        return self._write([Delete(paths.broker(broker.id), node.version)]) is None

    def topics(self) -> dict[str, Topic]:
        """Returns all topics by name; one that can't be read is logged and left out.

        A topic without an id gets one, as from Kafka's controller: tools before Apache Kafka 2.8 create such topics.
        """
        names = sorted(self._session.children(paths.TOPICS, watch=True))
        nodes = self._session.nodes([paths.topic(name) for name in names], watch=True)
        topics = {}
        for name, node in zip(names, nodes, strict=True):
            assignment = _readable(name, node)
            if assignment is not None and assignment.topic_id == NO_TOPIC_ID:
                assignment = self._with_id(name)
            if assignment is not None:
                topics[name] = _topic(assignment)
        return topics

    def written_states(self, replicas: Mapping[TopicPartition, int]) -> dict[TopicPartition, WrittenState]:
        """Returns the stored states (leader and ISR) of partitions, each with the transaction that wrote it.

        `replicas` counts those of each partition: beside one that lacks none in sync, nobody is eligible. A state that
        can't be read is logged and left out: nobody knows who may lead the partition.
        """
        written = {}
        for key, node in self._state_nodes(replicas).items():
            if (state := _readable_state(key, node)) is not None:
                written[key] = WrittenState(state, node.modified_zxid)
        lacking = [key for key, (state, _) in written.items() if len(state.isr) < replicas[key]]
        nodes = self._session.nodes([paths.eligible(*key) for key in lacking])
        for key, beside in zip(lacking, nodes, strict=True):
            self._note_eligible(key, is_there=beside is not None)
            if beside is not None:
                state, zxid = written[key]
                eligibility = _readable_eligibility(key, beside, state.partition_epoch)
                written[key] = WrittenState(replace(state, eligibility=eligibility), zxid)
        return written

    def _note_eligible(self, key: TopicPartition, *, is_there: bool) -> None:
        (self._with_eligible.add if is_there else self._with_eligible.discard)(key)

    def _state_nodes(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, Node]:
        wanted = list(keys)
        nodes = self._session.nodes([paths.partition_state(*key) for key in wanted])
        return {key: node for key, node in zip(wanted, nodes, strict=True) if node is not None}

    def unclean_topics(self, names: Iterable[str], *, default: bool) -> set[str]:
        """Returns those of the topics in which a replica out of sync may be elected; `default` is the broker's setting.

        A topic whose configuration can't be read is not among them, as it may forbid that; this is logged.
        """
        wanted = sorted(set(names))
        allowed = set()
        for name, data in zip(wanted, self._session.get_many([paths.topic_config(one) for one in wanted]), strict=True):
            try:
                own = None if data is None else codec.decode_config(data).get(UNCLEAN_ELECTIONS)
            except ZooKeeperError:
                logger.exception("%s can't be read, and no unclean leader is elected", paths.topic_config(name))
                continue
            if default if own is None else own.strip().lower() == "true":
                allowed.add(name)
        return allowed

    def topics_to_delete(self) -> set[str]:
        """Returns the topics that tools or brokers have asked to delete."""
        return set(self._session.children(paths.DELETE_TOPICS, watch=True))

    def existing(self, names: Iterable[str]) -> set[str]:
        """Returns those of the topics that have a node now, be it readable or not."""
        wanted = list(names)
        nodes = self._session.nodes([paths.topic(name) for name in wanted])
        return {name for name, node in zip(wanted, nodes, strict=True) if node is not None}

    def requested(self, path: str) -> Notification | None:
        """Returns the node of a request, such as `/admin/reassign_partitions`; None if there is none."""
        if not self._session.exists(path, watch=True):
            return None
        data = self._session.get(path)
        return None if data is None else Notification(path, data)

    def notifications(self, parent: str) -> list[Notification]:
        """Returns the nodes below `parent`, each of which tells of an event, oldest first."""
        nodes = [f"{parent}/{name}" for name in sorted(self._session.children(parent, watch=True))]
        found = zip(nodes, self._session.get_many(nodes), strict=True)
        return [Notification(path, data) for path, data in found if data is not None]

    def create_states(self, states: States) -> dict[TopicPartition, LeaderAndIsr]:
        """Writes first states (leader and ISR) of partitions; returns them, or those that others had written before.

        A partition whose state can't be read is left out.
        """
        written: dict[TopicPartition, LeaderAndIsr] = {}
        for chunk in _chunks(states, WRITES_PER_TRANSACTION // 3):
            written |= self._create_some(chunk)
        return written

    def change_states(self, states: States) -> tuple[dict[TopicPartition, LeaderAndIsr], set[TopicPartition]]:
        """Replaces the stored states (leader and ISR), unless others have changed them since they were read.

        Returns:
            The states as they are written, with the next partition epoch; and the partitions whose nodes others have
            changed or deleted, which are to be read again.
        """
        written: dict[TopicPartition, LeaderAndIsr] = {}
        refused: set[TopicPartition] = set()
        for chunk in _chunks(states, WRITES_PER_TRANSACTION):
            left = {key: self._claimed(state) for key, state in chunk.items()}
            while left:
                changes = [(key, operation) for key, state in left.items() for operation in self._changes(key, state)]
                answer = self._write([operation for _, operation in changes])
                if answer is None:
                    for key, state in left.items():
                        written[key] = replace(state, partition_epoch=state.partition_epoch + 1)
                        self._note_eligible(key, is_there=state.eligibility != NO_ONE)
                    break
                key, operation = changes[answer.index]
                if operation.path == paths.eligible(*key):  # another controller's, or gone with a former topic
                    self._note_eligible(key, is_there=answer.reason is Reason.NODE_EXISTS)
                else:
                    refused.add(key)
                    del left[key]
        return written, refused

    def _changes(self, key: TopicPartition, state: LeaderAndIsr) -> Iterable[Operation]:
        """Yields the operations that write a state, and who is eligible beside it, where anybody is or has been."""
        yield _set_state(key, state)
        path, is_there = paths.eligible(*key), key in self._with_eligible
        if state.eligibility != NO_ONE:
            data = encode_eligibility(state.eligibility, state.partition_epoch + 1)
            yield SetData(path, data) if is_there else Create(path, data)
        elif is_there:
            yield Delete(path)

    def write_assignment(self, key: TopicPartition, assignment: Assignment, removed: Collection[int] = ()) -> None:
        """Replaces the replicas of a partition; other changes in its topic's node stay.

        Notes beside it which brokers are to delete the replicas that were `removed`.
        """
        notes = [paths.REMOVALS, *(paths.removal(one, *key) for one in removed)] if removed else []
        path = paths.topic(key.topic)
        for _ in range(ATTEMPTS):
            node, *noted = self._session.nodes([path, *notes])
            if node is None:
                raise ZooKeeperError(f"{path} is gone, though no one has asked to delete the topic")
            topic = _topic(codec.decode_topic(node.data))
            topic.assignments[key.partition] = assignment
            new = [Create(note) for note, known in zip(notes, noted, strict=True) if known is None]
            if self._write([SetData(path, codec.encode_topic(_encoded(topic)), node.version), *new]) is None:
                return
        raise ZooKeeperError(f"{path} was changed by others {ATTEMPTS} times in a row")

    def removals(self) -> set[Removal]:
        """Returns the replicas that were moved away, and of which no broker has said that it has deleted them."""
        found = map(paths.parse_removal, self._session.children(paths.REMOVALS))
        return {(broker, TopicPartition(topic, index)) for broker, topic, index in filter(None, found)}

    def forget_removals(self, removals: Iterable[Removal]) -> None:
        """Forgets those that are deleted, or are to stay."""
        self.remove(paths.removal(broker, *key) for broker, key in sorted(removals))

    def delete_topic(self, name: str) -> None:
        """Deletes a topic's nodes; the topic's own and the deletion request come last, so that it can be continued.

        These two go together: a request that is left without its topic would delete the next one of the name.
        """
        for _ in range(ATTEMPTS):
            tree = self._session.tree(paths.topic(name))
            last = [*tree[-1:], *self._session.tree(paths.delete_topic(name))]
            below = [*tree[:-1], *self._session.tree(paths.topic_config(name))]
            if self._delete(below) and self._write([Delete(node) for node in last]) is None:
                return
        raise ZooKeeperError(f"the nodes of topic {name} were changed by others {ATTEMPTS} times in a row")

    def remove(self, nodes: Iterable[str]) -> None:
        """Deletes nodes of notifications and requests that are handled; one that is gone is no error."""
        for node in nodes:
            self._write([Delete(node)])

    def reserve_producer_ids(self, broker: int) -> range:
        """Reserves the next block of producer ids for a broker, and returns it."""
        for _ in range(ATTEMPTS):
            (node,) = self._session.nodes([paths.PRODUCER_IDS])
            block = next_block(None if node is None or not node.data else node.data, 0)
            data = encode_block(broker, block)
            write = (
                Create(paths.PRODUCER_IDS, data) if node is None else SetData(paths.PRODUCER_IDS, data, node.version)
            )
            if self._write([write]) is None:
                return block
        raise ZooKeeperError(f"{paths.PRODUCER_IDS} was changed by others {ATTEMPTS} times in a row")

    def _with_id(self, name: str) -> codec.TopicAssignment | None:
        """Gives a topic without an id a new one; returns what its node has then, None where it is gone."""
        path = paths.topic(name)
        for _ in range(ATTEMPTS):
            (node,) = self._session.nodes([path], watch=True)
            assignment = _readable(name, node)
            if node is None or assignment is None or assignment.topic_id != NO_TOPIC_ID:
                return assignment
            named = replace(assignment, topic_id=uuid4())
            if self._write([SetData(path, codec.encode_topic(named), node.version)]) is None:
                logger.info("topic %s had no id and gets %s", name, encode_id(named.topic_id))
                return named
        raise ZooKeeperError(f"{path} was changed by others {ATTEMPTS} times in a row")

    def _create_some(self, states: States) -> dict[TopicPartition, LeaderAndIsr]:
        for _ in range(ATTEMPTS):
            nodes = self._state_nodes(states)
            missing = {key: self._claimed(state) for key, state in states.items() if key not in nodes}
            if self._write(self._creations(missing)) is None:
                there = {key: _readable_state(key, node) for key, node in nodes.items()}
                return {**{key: state for key, state in there.items() if state is not None}, **missing}
        raise ZooKeeperError(f"the first states of {len(states)} partitions are changed by others all the time")

    def _creations(self, states: States) -> list[Operation]:
        """Returns the operations that create the nodes with leaders and ISRs, and those above them that are missing."""
        above = {paths.partitions(key.topic): None for key in states}
        above |= {paths.partition(*key): None for key in states}
        there = self._session.nodes(list(above))
        operations: list[Operation] = [Create(path) for path, node in zip(above, there, strict=True) if node is None]
        return [
            *operations,
            *(Create(paths.partition_state(*key), _encoded_state(state)) for key, state in states.items()),
        ]

    def _delete(self, nodes: Sequence[str]) -> bool:
        """Deletes nodes in their order; returns False where one could not be, as it was changed meanwhile."""
        chunks = (
            nodes[begin : begin + WRITES_PER_TRANSACTION] for begin in range(0, len(nodes), WRITES_PER_TRANSACTION)
        )
        return all(self._write([Delete(path) for path in chunk]) is None for chunk in chunks)

    def _claimed(self, state: LeaderAndIsr) -> LeaderAndIsr:
        return replace(state, controller_epoch=self.claim.epoch)

    def _write(self, operations: Sequence[Operation]) -> Refused | None:
        """Writes in one transaction, or raises NotControllerError; returns the operation that was refused, or None."""
        if not operations:
            return None
        answer = self._session.multi([self.claim.check(), *operations])
        if not isinstance(answer, Refused):
            return None
        if answer.index == 0:
            raise NotControllerError(f"another broker has become the controller since epoch {self.claim.epoch}")
        return Refused(answer.index - 1, answer.path, answer.reason)


def _chunks(states: States, size: int) -> Iterable[States]:
    items = list(states.items())
    for begin in range(0, len(items), size):
        yield dict(items[begin : begin + size])


def _readable(name: str, node: Node | None) -> codec.TopicAssignment | None:
    """Returns the replicas of a topic's partitions from its node; None without a node, or if it can't be read."""
    if node is None:
        return None
    return codec.readable(codec.decode_topic, node.data, logger, "topic %s can't be read and is left out", name)


def _topic(assignment: codec.TopicAssignment) -> Topic:
    adding, removing = assignment.adding_replicas, assignment.removing_replicas
    return Topic(
        assignment.topic_id,
        [
            Assignment(replicas, adding.get(index, ()), removing.get(index, ()))
            for index, replicas in enumerate(assignment.replicas)
        ],
    )


def _encoded(topic: Topic) -> codec.TopicAssignment:
    return codec.TopicAssignment(
        topic_id=topic.topic_id,
        replicas=tuple(one.replicas for one in topic.assignments),
        adding_replicas={index: one.adding for index, one in enumerate(topic.assignments) if one.adding},
        removing_replicas={index: one.removing for index, one in enumerate(topic.assignments) if one.removing},
    )


def _readable_state(key: TopicPartition, node: Node) -> LeaderAndIsr | None:
    """Returns a partition's leader and ISR from its node; None, and logs that, where it can't be read."""
    sentence, path = "%s has no leader: %s can't be read", paths.partition_state(*key)
    state = codec.readable(codec.decode_partition_state, node.data, logger, sentence, key, path)
    if state is None:
        return None
    return LeaderAndIsr(
        state.leader, state.leader_epoch, state.isr, node.version, state.controller_epoch, state.leader_recovery_state
    )


def _readable_eligibility(key: TopicPartition, node: Node, partition_epoch: int) -> Eligibility:
    """Returns who is eligible beside a state in this partition epoch; nobody, and logs that, if it can't be read."""
    sentence, path = "nobody out of sync is eligible to lead %s: %s can't be read", paths.eligible(*key)
    found = codec.readable(
        lambda data: decode_eligibility(data, partition_epoch), node.data, logger, sentence, key, path
    )
    return found or NO_ONE


def _encoded_state(state: LeaderAndIsr) -> bytes:
    return codec.encode_partition_state(
        codec.PartitionState(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            controller_epoch=state.controller_epoch,
            leader_recovery_state=state.leader_recovery_state,
        )
    )


def _set_state(key: TopicPartition, state: LeaderAndIsr) -> SetData:
    return SetData(paths.partition_state(*key), _encoded_state(state), state.partition_epoch)
