"""Looks at consumer groups and at transactions (KIP-664), each through its coordinator, and deletes groups.

A member's assignment is read where the group is one of consumers (ConsumerProtocolAssignment: version i16,
topics [name string, partitions [i32]]); every version of it begins like this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from millrace.client.answers import check
from millrace.client.cluster import TRANSACTION_KEY_TYPE, Cluster
from millrace.client.connection import Connection, asking, asking_for
from millrace.client.membership import NO_GENERATION
from millrace.client.metadata import Partition, indexes_by_topic
from millrace.errors import BrokerError, ErrorCode, UnsupportedVersionError
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.wire.api import ApiKey
from millrace.wire.cold import milliseconds
from millrace.wire.decoder import Decoder
from millrace.wire.messages import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    DESCRIBE_TRANSACTIONS,
    LIST_GROUPS,
    LIST_TRANSACTIONS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
)

if TYPE_CHECKING:
    from millrace.wire.messages.describe_groups import DescribedGroup

CONSUMER_PROTOCOL_TYPE = "consumer"
DEAD = "Dead"


class GroupListing(NamedTuple):
    """One group in a broker's list of groups; `state` is "" from brokers before Apache Kafka 2.6."""

    group_id: str
    protocol_type: str
    state: str


class MemberDescription(NamedTuple):
    """A member of a group and the partitions that it consumes."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[Partition, ...]


class GroupDescription(NamedTuple):
    """A group: its state, protocol and members."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]


class GroupOffset(NamedTuple):
    """A group's committed offset of a partition, and the leader epoch of the record before it, -1 if not known."""

    offset: int
    metadata: str
    leader_epoch: int = NO_LEADER_EPOCH


class GroupMetadata(NamedTuple):
    """A group, and the member of it that has read: with these, the group refuses a former owner's offsets (KIP-447)."""

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None


class Groups:
    """Lists, describes and deletes the groups of a cluster, and reads and commits their offsets."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list(self) -> list[GroupListing]:
        """Returns the groups that any broker coordinates."""
        action = asking(LIST_GROUPS.ask({"states_filter": (), "types_filter": ()}), "groups")
        return [
            GroupListing(one.group_id, one.protocol_type, one.group_state)
            for answer in self._cluster.on_each_broker(action)
            for one in answer.groups
        ]

    def describe(self, group_id: str) -> GroupDescription:
        """Returns a group and its members; raises BrokerError with GROUP_ID_NOT_FOUND where there is no such group."""

        def action(connection: Connection) -> GroupDescription:
            found = _consumer_group(connection, group_id)
            if found is not None:
                return found
            ask = DESCRIBE_GROUPS.ask({"groups": [group_id], "include_authorized_operations": False})
            return _description(asking_for(ask, lambda answer: answer.groups[0], f"group {group_id}")(connection))

        described = self._cluster.on_coordinator(group_id, action)
        if described.state == DEAD:
            check(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}")
        return described

    def offsets(self, group_id: str, partitions: Iterable[Partition] | None = None) -> Mapping[Partition, GroupOffset]:
        """Returns all committed offsets of a group; or of some partitions, once no transaction can change them."""
        by_topic = None if partitions is None else indexes_by_topic(partitions).items()
        ask = OFFSET_FETCH.ask(
            {
                "group_id": group_id,
                "topics": None
                if by_topic is None
                else [{"name": topic, "partition_indexes": indexes} for topic, indexes in by_topic],
                "require_stable": partitions is not None,
            }
        )

        def action(connection: Connection) -> Mapping[Partition, GroupOffset]:
            answer = asking(ask, f"group {group_id}")(connection)
            found: dict[Partition, GroupOffset] = {}
            for topic in answer.topics:
                for one in topic.partitions:
                    check(one.error_code, f"offset of group {group_id} in {topic.name}-{one.partition_index}")
                    found[topic.name, one.partition_index] = GroupOffset(
                        one.committed_offset, one.metadata or "", one.committed_leader_epoch
                    )
            return found

        return self._cluster.on_coordinator(group_id, action)

    def commit(self, group_id: str, offsets: Mapping[Partition, GroupOffset]) -> None:
        """Commits offsets for a group without members; raises BrokerError if it has some, or the commit is refused."""
        ask = OFFSET_COMMIT.ask(
            {
                "group_id": group_id,
                "generation_id_or_member_epoch": NO_GENERATION,
                "member_id": "",
                "topics": [
                    {
                        "name": topic,
                        "partitions": [
                            {
                                "partition_index": index,
                                "committed_offset": offsets[topic, index].offset,
                                "committed_leader_epoch": offsets[topic, index].leader_epoch,
                                "committed_metadata": offsets[topic, index].metadata,
                            }
                            for index in indexes
                        ],
                    }
                    for topic, indexes in indexes_by_topic(offsets).items()
                ],
            }
        )

        def action(connection: Connection) -> None:
            for topic in connection.request(*ask).topics:
                for one in topic.partitions:
                    check(one.error_code, f"offset of group {group_id} in {topic.name}-{one.partition_index}")

        self._cluster.on_coordinator(group_id, action)

    def delete(self, group_id: str) -> None:
        """Deletes a group without members, and its offsets; raises BrokerError where that is not possible."""
        ask = DELETE_GROUPS.ask({"groups_names": [group_id]})
        self._cluster.on_coordinator(group_id, asking_for(ask, lambda answer: answer.results[0], f"group {group_id}"))


def _consumer_group(connection: Connection, group_id: str) -> GroupDescription | None:
    """Returns a group of the KIP-848 protocol; None for an unknown or other group, or a broker without the API."""
    try:
        connection.version(ApiKey.CONSUMER_GROUP_DESCRIBE)
    except UnsupportedVersionError:
        return None
    ask = CONSUMER_GROUP_DESCRIBE.ask({"group_ids": [group_id], "include_authorized_operations": False})
    group = connection.request(*ask).groups[0]
    if group.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):  # Kafka 3.9 with ZooKeeper
        return None
    check(group.error_code, f"group {group_id}")
    members = tuple(
        MemberDescription(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host,
            tuple((topic.topic_name, index) for topic in one.assignment.topic_partitions for index in topic.partitions),
        )
        for one in group.members
    )
    return GroupDescription(group.group_id, group.group_state, CONSUMER_PROTOCOL_TYPE, group.assignor_name, members)


def _description(group: DescribedGroup) -> GroupDescription:
    reads = group.protocol_type == CONSUMER_PROTOCOL_TYPE
    members = tuple(
        MemberDescription(
            one.member_id,
            one.group_instance_id,
            one.client_id,
            one.client_host,
            _partitions(one.member_assignment) if reads else (),
        )
        for one in group.members
    )
    return GroupDescription(group.group_id, group.group_state, group.protocol_type, group.protocol_data, members)


def _partitions(assignment: bytes) -> tuple[Partition, ...]:
    if not assignment:
        return ()
    decoder = Decoder(assignment)
    decoder.int16()
    found: list[Partition] = []
    for _ in range(decoder.array_length()):
        topic = decoder.string()
        found += [(topic, decoder.int32()) for _ in range(decoder.array_length())]
    return tuple(found)


NO_START = -1


class TransactionListing(NamedTuple):
    """One transactional id in a coordinator's list, with its transaction's state."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id and its newest transaction; `started_ms` is None where none is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[Partition, ...]


def list_transactions(cluster: Cluster) -> list[TransactionListing]:
    """Returns all transactional ids of all brokers, sorted.

    Raises UnsupportedVersionError where a broker is older than Apache Kafka 3.0.
    """
    action = asking(LIST_TRANSACTIONS.ask({"state_filters": (), "producer_id_filters": ()}), "transactions")
    return sorted(
        TransactionListing(one.transactional_id, int(one.producer_id), one.transaction_state)
        for answer in cluster.on_each_broker(action)
        for one in answer.transaction_states
    )


def describe_transactions(cluster: Cluster, transactional_ids: Iterable[str]) -> list[TransactionDescription]:
    """Returns the description of each transactional id, in the order given; ids that no longer exist are left out."""
    found = (_describe(cluster, one) for one in transactional_ids)
    return [one for one in found if one is not None]


def _describe(cluster: Cluster, transactional_id: str) -> TransactionDescription | None:
    ask = DESCRIBE_TRANSACTIONS.ask({"transactional_ids": [transactional_id]})
    action = asking_for(ask, lambda answer: answer.transaction_states[0], f"transactional id {transactional_id}")
    try:
        one = cluster.on_coordinator(transactional_id, action, key_type=TRANSACTION_KEY_TYPE)
    except BrokerError as error:
        if error.broker_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return None
    return TransactionDescription(
        transactional_id,
        one.transaction_state,
        one.producer_id,
        one.producer_epoch,
        milliseconds(one.transaction_timeout),
        None if one.transaction_start_time == NO_START else one.transaction_start_time,
        tuple((topic.topic, index) for topic in one.topics for index in topic.partitions),
    )
