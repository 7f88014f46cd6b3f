"""LeaveGroup, versions 0 to 5: v1 throttle time, v3 several members (KIP-345), v4 flexible, v5 reasons (KIP-800)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, GroupError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import LEAVE_GROUP
from millrace_broker.groups import membership
from millrace_broker.groups.events import Leaving
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond

if TYPE_CHECKING:
    from millrace.wire.messages.leave_group import LeaveGroupResponseFields, MemberResponseFields

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_MEMBERS = 3
GUARD = Guard(ApiKey.LEAVE_GROUP, AclOperation.READ, ResourceType.GROUP)


def handle(services: Services, request: Request) -> Reply:
    """Removes members from their group."""
    message = LEAVE_GROUP.decode_request(request.version, request.body)
    if request.version >= FIRST_VERSION_WITH_MEMBERS:
        leaving = [Leaving(one.member_id, one.group_instance_id, one.reason) for one in each(message.members)]
    else:
        leaving = [Leaving(message.member_id)]
    if GUARD.permits(services, request.session, message.group_id):
        error, errors = _leave(services, message.group_id, leaving)
    else:
        error, errors = GUARD.error, []
    if request.version < FIRST_VERSION_WITH_MEMBERS:
        error = error or errors[0]
    # No members are answered where the group has an error.
    members: list[MemberResponseFields] = [
        {"member_id": one.member_id, "group_instance_id": one.instance_id, "error_code": code}
        for one, code in each(zip(leaving, errors, strict=False))
    ]
    fields: LeaveGroupResponseFields = {"throttle_time": 0, "error_code": error, "members": members}
    return respond(services, LEAVE_GROUP, request.version, fields)


def _leave(services: Services, group_id: str, leaving: list[Leaving]) -> tuple[ErrorCode, list[ErrorCode]]:
    for one in each(leaving):
        name, reason = one.instance_id or one.member_id, one.reason or "no reason given"
        logger.info("group %s: %s leaves: %s", group_id, name, reason)
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID, []
    try:
        return ErrorCode.NONE, membership.leave(services.groups, group_id, leaving)
    except GroupError as error:
        return error.code, []


API = Api(ApiKey.LEAVE_GROUP, VersionRange(0, 5), handle, guards=(GUARD,), in_turn=True)
