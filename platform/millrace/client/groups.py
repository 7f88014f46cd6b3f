"""Looks at consumer groups and deletes them, each through its coordinator.

A member's assignment is read where the group is one of consumers (ConsumerProtocolAssignment: version i16,
topics [name string, partitions [i32]]); every version of it begins like this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection
from millrace.errors import BrokerError, ErrorCode, UnsupportedVersionError
from millrace.wire.api import ApiKey
from millrace.wire.cold import field
from millrace.wire.decoder import Decoder

CONSUMER_PROTOCOL_TYPE = "consumer"
DEAD = "Dead"

Partition = tuple[str, int]


class GroupListing(NamedTuple):
    """A group in a list; brokers from before 2.6 do not say in which state."""

    group_id: str
    protocol_type: str
    state: str


class GroupMember(NamedTuple):
    """A member and the partitions that it consumes."""

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
    members: tuple[GroupMember, ...]


class GroupOffset(NamedTuple):
    """How far a group has come in a partition."""

    offset: int
    metadata: str


class Groups:
    """The groups of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list(self) -> list[GroupListing]:
        """Every group of every broker."""

        def action(connection: Connection) -> list[GroupListing]:
            answer = connection.request(ApiKey.LIST_GROUPS, {"states_filter": (), "types_filter": ()})
            check(answer.error_code, "groups")
            return [
                GroupListing(one.group_id, one.protocol_type, field(one, "group_state", "")) for one in answer.groups
            ]

        return [group for groups in self._cluster.on_each_broker(action) for group in groups]

    def describe(self, group_id: str) -> GroupDescription:
        """BrokerError with GROUP_ID_NOT_FOUND where there is no such group."""

        def action(connection: Connection) -> GroupDescription:
            found = _consumer_group(connection, group_id)
            if found is not None:
                return found
            asked = {"groups": [group_id], "include_authorized_operations": False}
            group = connection.request(ApiKey.DESCRIBE_GROUPS, asked).groups[0]
            check(group.error_code, f"group {group_id}")
            return _description(group)

        described = self._cluster.on_coordinator(group_id, action)
        if described.state == DEAD:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}")
        return described

    def offsets(self, group_id: str) -> Mapping[Partition, GroupOffset]:
        """All its committed offsets."""

        def action(connection: Connection) -> Mapping[Partition, GroupOffset]:
            fields = {"group_id": group_id, "topics": None, "require_stable": False}
            answer = connection.request(ApiKey.OFFSET_FETCH, fields)
            check(answer.error_code, f"group {group_id}")
            return {
                (topic.name, one.partition_index): GroupOffset(one.committed_offset, one.metadata or "")
                for topic in answer.topics
                for one in topic.partitions
            }

        return self._cluster.on_coordinator(group_id, action)

    def delete(self, group_id: str) -> None:
        """Delete a group without members, and its offsets; BrokerError where that is not possible."""

        def action(connection: Connection) -> None:
            result = connection.request(ApiKey.DELETE_GROUPS, {"groups_names": [group_id]}).results[0]
            check(result.error_code, f"group {group_id}")

        self._cluster.on_coordinator(group_id, action)


def _consumer_group(connection: Connection, group_id: str) -> GroupDescription | None:
    """A group of the consumer group protocol (KIP-848); None where it is of another, or the broker knows none."""
    try:
        connection.version(ApiKey.CONSUMER_GROUP_DESCRIBE)
    except UnsupportedVersionError:
        return None
    asked = {"group_ids": [group_id], "include_authorized_operations": False}
    group = connection.request(ApiKey.CONSUMER_GROUP_DESCRIBE, asked).groups[0]
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    check(group.error_code, f"group {group_id}")
    members = tuple(
        GroupMember(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host,
            tuple((topic.topic_name, index) for topic in one.assignment.topic_partitions for index in topic.partitions),
        )
        for one in group.members
    )
    return GroupDescription(group.group_id, group.group_state, CONSUMER_PROTOCOL_TYPE, group.assignor_name, members)


def _description(group: Any) -> GroupDescription:
    reads = group.protocol_type == CONSUMER_PROTOCOL_TYPE
    members = tuple(
        GroupMember(
            one.member_id,
            field(one, "group_instance_id", None),
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
