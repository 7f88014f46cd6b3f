"""LeaveGroup, versions 0 to 5: v1 throttle time, v3 several members (KIP-345), v4 flexible, v5 reasons (KIP-800)."""

from __future__ import annotations

import logging

from millrace.errors import ErrorCode, GroupError
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode, field
from millrace_broker.groups import membership
from millrace_broker.groups.events import Leaving
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_MEMBERS = 3


def handle(services: Services, request: Request) -> Reply:
    """Members leave."""
    message = decode(ApiKey.LEAVE_GROUP, request.version, Direction.REQUEST, request.body)
    if request.version >= FIRST_VERSION_WITH_MEMBERS:
        leaving = [Leaving(one.member_id, one.group_instance_id, field(one, "reason", None)) for one in message.members]
    else:
        leaving = [Leaving(message.member_id)]
    for one in leaving:
        name, reason = one.instance_id or one.member_id, one.reason or "no reason given"
        logger.info("group %s: %s leaves: %s", message.group_id, name, reason)
    error, errors = _leave(services, message.group_id, leaving)
    if request.version < FIRST_VERSION_WITH_MEMBERS:
        error = error or errors[0]
    members = [
        {"member_id": one.member_id, "group_instance_id": one.instance_id, "error_code": each}
        for one, each in zip(leaving, errors, strict=False)  # no members are answered where the group has an error
    ]
    fields = {"throttle_time": 0, "error_code": error, "members": members}
    return answer(services, ApiKey.LEAVE_GROUP, request.version, fields)


def _leave(services: Services, group_id: str, leaving: list[Leaving]) -> tuple[ErrorCode, list[ErrorCode]]:
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID, []
    try:
        return ErrorCode.NONE, membership.leave(services.groups, group_id, leaving)
    except GroupError as error:
        return error.code, []


API = Api(ApiKey.LEAVE_GROUP, VersionRange(0, 5), handle)
