"""ListGroups, versions 0 to 5: v1 throttle time, v3 flexible, v4 states (KIP-518), v5 types (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, GroupError
from millrace.security.acls import AclOperation, ResourceType
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import LIST_GROUPS
from millrace_broker.groups.overview import Listed, list_groups
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond

if TYPE_CHECKING:
    from millrace.wire.messages.list_groups import ListedGroupFields, ListGroupsResponseFields

GUARD = Guard(ApiKey.LIST_GROUPS, AclOperation.DESCRIBE, ResourceType.CLUSTER, is_silent=True)
GROUP_GUARD = Guard(ApiKey.LIST_GROUPS, AclOperation.DESCRIBE, ResourceType.GROUP, is_silent=True)


def handle(services: Services, request: Request) -> Reply:
    """Lists the groups that this broker coordinates."""
    message = LIST_GROUPS.decode_request(request.version, request.body)
    error, listed = ErrorCode.NONE, list[Listed]()
    try:
        listed = list_groups(services.groups, message.states_filter, message.types_filter)
    except GroupError as refused:
        error = refused.code
    sees_all = GUARD.permits(services, request.session)
    groups: list[ListedGroupFields] = [
        {
            "group_id": one.group_id,
            "protocol_type": one.protocol_type,
            "group_state": one.state,
            "group_type": one.type,
        }
        for one in listed
        if sees_all or GROUP_GUARD.permits(services, request.session, one.group_id)
    ]
    fields: ListGroupsResponseFields = {"throttle_time": 0, "error_code": error, "groups": groups}
    return respond(services, LIST_GROUPS, request.version, fields)


API = Api(ApiKey.LIST_GROUPS, VersionRange(0, 5), handle, guards=(GUARD, GROUP_GUARD))
