"""Looks at consumer groups and at transactions (KIP-664), each through its coordinator, and deletes groups.

A member's assignment is read where the group is one of consumers (ConsumerProtocolAssignment: version i16,
topics [name string, partitions [i32]]); every version of it begins like this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from millrace.client.answers import check
from millrace.client.cluster import TRANSACTION_KEY_TYPE, Cluster
from millrace.client.connection import Connection
from millrace.client.metadata import Partition, indexes_by_topic
from millrace.errors import BrokerError, ErrorCode, UnsupportedVersionError
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
    from millrace.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequestFields
    from millrace.wire.messages.delete_groups import DeleteGroupsRequestFields
    from millrace.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequestFields
    from millrace.wire.messages.describe_transactions import DescribeTransactionsRequestFields
    from millrace.wire.messages.list_groups import ListGroupsRequestFields
    from millrace.wire.messages.list_transactions import ListTransactionsRequestFields
    from millrace.wire.messages.offset_commit import OffsetCommitRequestFields, OffsetCommitRequestPartitionFields
    from millrace.wire.messages.offset_fetch import OffsetFetchRequestFields

CONSUMER_PROTOCOL_TYPE = "consumer"
DEAD = "Dead"
NO_GENERATION = -1


class GroupListing(NamedTuple):
    """A group in a list; brokers from before 2.6 do not say in which state."""

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
    """A group and its members."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]


class GroupOffset(NamedTuple):
    """A group's committed offset of a partition."""

    offset: int
    metadata: str


class Groups:
    """The groups of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list(self) -> list[GroupListing]:
        """Returns every group of every broker."""

        def action(connection: Connection) -> list[GroupListing]:
            fields: ListGroupsRequestFields = {"states_filter": (), "types_filter": ()}
            answer = connection.request(LIST_GROUPS, fields)
            check(answer.error_code, "groups")
            return [GroupListing(one.group_id, one.protocol_type, one.group_state) for one in answer.groups]

        return [group for groups in self._cluster.on_each_broker(action) for group in groups]

    def describe(self, group_id: str) -> GroupDescription:
        """Returns a group and its members; raises BrokerError with GROUP_ID_NOT_FOUND where there is no such group."""

        def action(connection: Connection) -> GroupDescription:
            found = _consumer_group(connection, group_id)
            if found is not None:
                return found
            asked: DescribeGroupsRequestFields = {"groups": [group_id], "include_authorized_operations": False}
            group = connection.request(DESCRIBE_GROUPS, asked).groups[0]
            check(group.error_code, f"group {group_id}")
            return _description(group)

        described = self._cluster.on_coordinator(group_id, action)
        if described.state == DEAD:
            check(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}")
        return described

    def offsets(self, group_id: str, partitions: Iterable[Partition] | None = None) -> Mapping[Partition, GroupOffset]:
        """Returns all committed offsets; or those of some partitions, once no open transaction can change them."""
        fields: OffsetFetchRequestFields = {"group_id": group_id, "topics": None, "require_stable": False}
        if partitions is not None:
            by_topic = indexes_by_topic(partitions)
            fields["topics"] = [{"name": topic, "partition_indexes": indexes} for topic, indexes in by_topic.items()]
            fields["require_stable"] = True

        def action(connection: Connection) -> Mapping[Partition, GroupOffset]:
            answer = connection.request(OFFSET_FETCH, fields)
            check(answer.error_code, f"group {group_id}")
            for topic in answer.topics:
                for one in topic.partitions:
                    check(one.error_code, f"offset of group {group_id} in {topic.name}-{one.partition_index}")
            return {
                (topic.name, one.partition_index): GroupOffset(one.committed_offset, one.metadata or "")
                for topic in answer.topics
                for one in topic.partitions
            }

        return self._cluster.on_coordinator(group_id, action)

    def commit(self, group_id: str, offsets: Mapping[Partition, GroupOffset]) -> None:
        """Commits offsets of a group that has no members.

        Raises BrokerError where it has some, or does not take them.
        """
        by_topic: dict[str, list[OffsetCommitRequestPartitionFields]] = {}
        for (topic, partition), (offset, metadata) in offsets.items():
            wanted: OffsetCommitRequestPartitionFields = {
                "partition_index": partition,
                "committed_offset": offset,
                "committed_metadata": metadata,
            }
            by_topic.setdefault(topic, []).append(wanted)
        fields: OffsetCommitRequestFields = {
            "group_id": group_id,
            "generation_id_or_member_epoch": NO_GENERATION,
            "member_id": "",
            "topics": [{"name": topic, "partitions": partitions} for topic, partitions in by_topic.items()],
        }

        def action(connection: Connection) -> None:
            for topic in connection.request(OFFSET_COMMIT, fields).topics:
                for one in topic.partitions:
                    check(one.error_code, f"offset of group {group_id} in {topic.name}-{one.partition_index}")

        self._cluster.on_coordinator(group_id, action)

    def delete(self, group_id: str) -> None:
        """Deletes a group without members, and its offsets; raises BrokerError where that is not possible."""

        def action(connection: Connection) -> None:
            fields: DeleteGroupsRequestFields = {"groups_names": [group_id]}
            result = connection.request(DELETE_GROUPS, fields).results[0]
            check(result.error_code, f"group {group_id}")

        self._cluster.on_coordinator(group_id, action)


def _consumer_group(connection: Connection, group_id: str) -> GroupDescription | None:
    """Returns a group of the consumer group protocol (KIP-848); None where it is another's or unknown to the broker."""
    try:
        connection.version(ApiKey.CONSUMER_GROUP_DESCRIBE)
    except UnsupportedVersionError:
        return None
    asked: ConsumerGroupDescribeRequestFields = {"group_ids": [group_id], "include_authorized_operations": False}
    group = connection.request(CONSUMER_GROUP_DESCRIBE, asked).groups[0]
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
    """A transactional id in a list."""

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
    """Returns every transactional id of every coordinator, sorted.

    Raises UnsupportedVersionError before Apache Kafka 3.0.
    """
    fields: ListTransactionsRequestFields = {"state_filters": (), "producer_id_filters": ()}

    def action(connection: Connection) -> list[TransactionListing]:
        answer = connection.request(LIST_TRANSACTIONS, fields)
        check(answer.error_code, "transactions")
        return [
            TransactionListing(one.transactional_id, int(one.producer_id), one.transaction_state)
            for one in answer.transaction_states
        ]

    return sorted(one for listed in cluster.on_each_broker(action) for one in listed)


def describe_transactions(cluster: Cluster, transactional_ids: Iterable[str]) -> list[TransactionDescription]:
    """Returns the description of each transactional id that there still is, in their order."""
    found = (_describe(cluster, one) for one in transactional_ids)
    return [one for one in found if one is not None]


def _describe(cluster: Cluster, transactional_id: str) -> TransactionDescription | None:
    fields: DescribeTransactionsRequestFields = {"transactional_ids": [transactional_id]}

    def action(connection: Connection) -> TransactionDescription:
        [one] = connection.request(DESCRIBE_TRANSACTIONS, fields).transaction_states
        check(one.error_code, f"transactional id {transactional_id}")
        return TransactionDescription(
            transactional_id,
            one.transaction_state,
            one.producer_id,
            one.producer_epoch,
            milliseconds(one.transaction_timeout),
            None if one.transaction_start_time == NO_START else one.transaction_start_time,
            tuple((topic.topic, index) for topic in one.topics for index in topic.partitions),
        )

    try:
        return cluster.on_coordinator(transactional_id, action, key_type=TRANSACTION_KEY_TYPE)
    except BrokerError as error:
        if error.broker_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return None
