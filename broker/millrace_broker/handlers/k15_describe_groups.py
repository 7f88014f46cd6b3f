"""DescribeGroups, versions 0 to 6: groups of the classic protocol.

v1  throttle time        v3  authorized operations (KIP-430)     v4  static members
v5  flexible             v6  GROUP_ID_NOT_FOUND and a message for an unknown group (KIP-1043); up to v5 the state Dead
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, GroupError
from millrace.security.acls import AclOperation, ResourceType
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import DESCRIBE_GROUPS
from millrace.wire.metadata import OPERATIONS_NOT_ASKED
from millrace_broker.groups.classic.classic_group import ClassicGroup
from millrace_broker.groups.classic.description import Description
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.authorized_operations import authorized_operations
from millrace_broker.handlers.responses import respond

if TYPE_CHECKING:
    from millrace.wire.messages.describe_groups import DescribedGroupFields, DescribeGroupsResponseFields

FIRST_VERSION_WITH_NOT_FOUND = 6
DEAD = Description("Dead", "", "", ())
NONE_KNOWN = Description("", "", "", ())
GUARD = Guard(ApiKey.DESCRIBE_GROUPS, AclOperation.DESCRIBE, ResourceType.GROUP)


def handle(services: Services, request: Request) -> Reply:
    """Describes each group."""
    message = DESCRIBE_GROUPS.decode_request(request.version, request.body)
    groups = [
        _response(services, request, group_id, with_operations=message.include_authorized_operations)
        for group_id in dict.fromkeys(message.groups)  # a group that is named twice is answered once
    ]
    fields: DescribeGroupsResponseFields = {"throttle_time": 0, "groups": groups}
    return respond(services, DESCRIBE_GROUPS, request.version, fields)


def _response(services: Services, request: Request, group_id: str, *, with_operations: bool) -> DescribedGroupFields:
    if not GUARD.permits(services, request.session, group_id):
        return {**_fields(group_id, NONE_KNOWN, GUARD.error), "authorized_operations": OPERATIONS_NOT_ASKED}
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
        return _fields(group_id, NONE_KNOWN, error.code)
    if isinstance(group, ClassicGroup):
        return _fields(group_id, group.describe())
    if version < FIRST_VERSION_WITH_NOT_FOUND:
        return _fields(group_id, DEAD)
    message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
    return _fields(group_id, DEAD, ErrorCode.GROUP_ID_NOT_FOUND, message)


def _fields(
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


API = Api(ApiKey.DESCRIBE_GROUPS, VersionRange(0, 6), handle, guards=(GUARD,))
