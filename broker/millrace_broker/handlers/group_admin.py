"""DescribeGroups, ListGroups, DeleteGroups and OffsetDelete: what administrators ask of groups.

DescribeGroups  v0 to v6   groups of the classic protocol
                           v1  throttle time    v3  authorized operations (KIP-430)    v4  static members
                           v5  flexible    v6  GROUP_ID_NOT_FOUND and a message for an unknown group (KIP-1043);
                           up to v5 the state Dead
ListGroups      v0 to v5   v1  throttle time    v3  flexible    v4  states (KIP-518)    v5  types (KIP-848)
DeleteGroups    v0 to v2   groups that have no members (KIP-229); v2  flexible
OffsetDelete    v0         a group's offsets in topics that none of its members subscribes to (KIP-496)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, GroupError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import DELETE_GROUPS, DESCRIBE_GROUPS, LIST_GROUPS, OFFSET_DELETE
from millrace.wire.metadata import OPERATIONS_NOT_ASKED
from millrace_broker.groups import commits
from millrace_broker.groups.classic.classic_group import ClassicGroup
from millrace_broker.groups.classic.facts import Description
from millrace_broker.groups.group_coordinator import Listed, delete_group, list_groups
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services, authorized_operations
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.delete_groups import DeletableGroupResultFields, DeleteGroupsResponseFields
    from millrace.wire.messages.describe_groups import DescribedGroupFields, DescribeGroupsResponseFields
    from millrace.wire.messages.list_groups import ListedGroupFields, ListGroupsResponseFields
    from millrace.wire.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteResponseFields,
        OffsetDeleteResponseTopicFields,
    )

FIRST_VERSION_WITH_NOT_FOUND = 6
DEAD = Description("Dead", "", "", ())
NONE_KNOWN = Description("", "", "", ())
DESCRIBE_GUARD = Guard(ApiKey.DESCRIBE_GROUPS, AclOperation.DESCRIBE, ResourceType.GROUP)
LIST_GUARD = Guard(ApiKey.LIST_GROUPS, AclOperation.DESCRIBE, ResourceType.CLUSTER, is_silent=True)
LIST_GROUP_GUARD = Guard(ApiKey.LIST_GROUPS, AclOperation.DESCRIBE, ResourceType.GROUP, is_silent=True)
DELETE_GUARD = Guard(ApiKey.DELETE_GROUPS, AclOperation.DELETE, ResourceType.GROUP)
OFFSETS_GUARD = Guard(ApiKey.OFFSET_DELETE, AclOperation.DELETE, ResourceType.GROUP)
OFFSETS_TOPIC_GUARD = Guard(ApiKey.OFFSET_DELETE, AclOperation.READ, ResourceType.TOPIC)


def describe(services: Services, request: Request) -> Reply:
    """Responds to DescribeGroups with the state, the protocol and the members of each group, or with its error."""
    message = DESCRIBE_GROUPS.decode_request(request.version, request.body)
    groups = [
        _described(services, request, group_id, with_operations=message.include_authorized_operations)
        for group_id in dict.fromkeys(message.groups)  # a group that is named twice is answered once
    ]
    fields: DescribeGroupsResponseFields = {"throttle_time": 0, "groups": groups}
    return respond(services, DESCRIBE_GROUPS, request.version, fields)


def _described(services: Services, request: Request, group_id: str, *, with_operations: bool) -> DescribedGroupFields:
    if not DESCRIBE_GUARD.permits(services, request.session, group_id):
        return {
            **_described_fields(group_id, NONE_KNOWN, DESCRIBE_GUARD.error),
            "authorized_operations": OPERATIONS_NOT_ASKED,
        }
    operations = (
        authorized_operations(services, request.session, ResourceType.GROUP, group_id)
        if with_operations
        else OPERATIONS_NOT_ASKED
    )
    return {**_group(services, request.version, group_id), "authorized_operations": operations}


def _group(services: Services, version: int, group_id: str) -> DescribedGroupFields:
    try:
        group = services.groups.shard(group_id).groups.get(group_id)
    except GroupError as error:
        return _described_fields(group_id, NONE_KNOWN, error.code)
    if isinstance(group, ClassicGroup):
        return _described_fields(group_id, group.describe())
    if version < FIRST_VERSION_WITH_NOT_FOUND:
        return _described_fields(group_id, DEAD)
    message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
    return _described_fields(group_id, DEAD, ErrorCode.GROUP_ID_NOT_FOUND, message)


def _described_fields(
    group_id: str, described: Description, error: ErrorCode = ErrorCode.NONE, message: str | None = None
) -> DescribedGroupFields:
    return {
        "error_code": error,
        "error_message": message,
        "group_id": group_id,
        "group_state": described.state,
        "protocol_type": described.protocol_type,
        "protocol_data": described.protocol_name,
        "members": [
            {
                "member_id": one.member_id,
                "group_instance_id": one.instance_id,
                "client_id": one.client_id,
                "client_host": one.client_host,
                "member_metadata": one.metadata,
                "member_assignment": one.assignment,
            }
            for one in described.members
        ],
    }


def list_all(services: Services, request: Request) -> Reply:
    """Responds to ListGroups with the groups that this broker coordinates and the client may describe."""
    message = LIST_GROUPS.decode_request(request.version, request.body)
    error, listed = ErrorCode.NONE, list[Listed]()
    try:
        listed = list_groups(services.groups, message.states_filter, message.types_filter)
    except GroupError as refused:
        error = refused.code
    sees_all = LIST_GUARD.permits(services, request.session)
    groups: list[ListedGroupFields] = [
        {
            "group_id": one.group_id,
            "protocol_type": one.protocol_type,
            "group_state": one.state,
            "group_type": one.type,
        }
        for one in listed
        if sees_all or LIST_GROUP_GUARD.permits(services, request.session, one.group_id)
    ]
    fields: ListGroupsResponseFields = {"throttle_time": 0, "error_code": error, "groups": groups}
    return respond(services, LIST_GROUPS, request.version, fields)


def delete(services: Services, request: Request) -> Reply:
    """Handles DeleteGroups: deletes groups without members; a group that is named twice has one result."""
    message = DELETE_GROUPS.decode_request(request.version, request.body)
    return later(_delete_each(services, request.without_body(), dict.fromkeys(message.groups_names)))


async def _delete_each(services: Services, request: Request, group_ids: Iterable[str]) -> Parts:
    results: list[DeletableGroupResultFields] = [
        {"group_id": one, "error_code": await _delete_one(services, request, one)} for one in each(group_ids)
    ]
    fields: DeleteGroupsResponseFields = {"throttle_time": 0, "results": results}
    return respond(services, DELETE_GROUPS, request.version, fields)


async def _delete_one(services: Services, request: Request, group_id: str) -> ErrorCode:
    if not DELETE_GUARD.permits(services, request.session, group_id):
        return DELETE_GUARD.error
    try:
        return await delete_group(services.groups, group_id)
    except GroupError as error:
        return error.code


def delete_offsets(services: Services, request: Request) -> Reply:
    """Handles OffsetDelete: deletes committed offsets of a group; the response has an error for each partition."""
    message = OFFSET_DELETE.decode_request(request.version, request.body)
    if not OFFSETS_GUARD.permits(services, request.session, message.group_id):
        return _deleted(services, request.version, OFFSETS_GUARD.error, [])
    return later(_delete_offsets(services, request.without_body(), message))


async def _delete_offsets(services: Services, request: Request, message: OffsetDeleteRequest) -> Parts:
    asked = [TopicPartition(topic.name, one.partition_index) for topic in message.topics for one in topic.partitions]
    unknown = {one: code for one in asked if (code := _refusal(services, request, one))}
    try:
        error, errors = await commits.delete(
            services.groups, message.group_id, [one for one in asked if one not in unknown]
        )
    except GroupError as refused:
        error, errors = refused.code, {}
    return _deleted(services, request.version, error, [] if error else _outcomes(message, {**errors, **unknown}))


def _deleted(
    services: Services, version: int, error: ErrorCode, topics: list[OffsetDeleteResponseTopicFields]
) -> Parts:
    fields: OffsetDeleteResponseFields = {"error_code": error, "throttle_time": 0, "topics": topics}
    return respond(services, OFFSET_DELETE, version, fields)


def _refusal(services: Services, request: Request, one: TopicPartition) -> ErrorCode:
    if not OFFSETS_TOPIC_GUARD.permits(services, request.session, one.topic):
        return OFFSETS_TOPIC_GUARD.error
    exists = services.metadata.partition(one) is not None
    return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _outcomes(
    message: OffsetDeleteRequest, errors: dict[TopicPartition, ErrorCode]
) -> list[OffsetDeleteResponseTopicFields]:
    return [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": one.partition_index,
                    "error_code": errors[TopicPartition(topic.name, one.partition_index)],
                }
                for one in topic.partitions
            ],
        }
        for topic in message.topics
        if topic.partitions
    ]


APIS = (
    Api(ApiKey.DESCRIBE_GROUPS, VersionRange(0, 6), describe, guards=(DESCRIBE_GUARD,)),
    Api(ApiKey.LIST_GROUPS, VersionRange(0, 5), list_all, guards=(LIST_GUARD, LIST_GROUP_GUARD)),
    Api(ApiKey.DELETE_GROUPS, VersionRange(0, 2), delete, guards=(DELETE_GUARD,)),
    Api(ApiKey.OFFSET_DELETE, VersionRange(0, 0), delete_offsets, guards=(OFFSETS_GUARD, OFFSETS_TOPIC_GUARD)),
)
