"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the members of groups of the classic protocol.

JoinGroup  v0 to v9   v1  rebalance timeout    v2  throttle time    v4  a new member gets an id first (KIP-394)
                      v5  static members    v6  flexible    v7  protocol type    v8  reason (KIP-800)
                      v9  skip assignment (KIP-814)
SyncGroup  v0 to v5   v1  throttle time    v3  static members    v4  flexible    v5  protocol type and name (KIP-559)
Heartbeat  v0 to v4   v1  throttle time    v3  static members    v4  flexible
LeaveGroup v0 to v5   v1  throttle time    v3  several members (KIP-345)    v4  flexible    v5  reasons (KIP-800)
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from millrace.errors import ErrorCode, GroupError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import milliseconds
from millrace.wire.encoder import Parts
from millrace.wire.messages import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from millrace_broker.groups import membership
from millrace_broker.groups.group import Join, JoinProtocol, JoinResult, Leaving, Sync, SyncResult
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond, respond_once_known

if TYPE_CHECKING:
    from millrace.wire.messages.heartbeat import HeartbeatResponseFields
    from millrace.wire.messages.join_group import JoinGroupRequest, JoinGroupResponseFields
    from millrace.wire.messages.leave_group import LeaveGroupResponseFields, MemberResponseFields
    from millrace.wire.messages.sync_group import SyncGroupResponseFields

logger = logging.getLogger(__name__)
FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
FIRST_VERSION_WITH_REQUIRED_ID = 4
FIRST_VERSION_WITH_NULL_PROTOCOL = 7
FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT = 9
MAX_ID_CHARACTERS = 1000  # of a client's or an instance's id, in the member id that is made of it
JOIN_GUARD = Guard(ApiKey.JOIN_GROUP, AclOperation.READ, ResourceType.GROUP)
FIRST_VERSION_WITH_PROTOCOL = 5
SYNC_GUARD = Guard(ApiKey.SYNC_GROUP, AclOperation.READ, ResourceType.GROUP)
HEARTBEAT_GUARD = Guard(ApiKey.HEARTBEAT, AclOperation.READ, ResourceType.GROUP)
FIRST_VERSION_WITH_MEMBERS = 3
LEAVE_GUARD = Guard(ApiKey.LEAVE_GROUP, AclOperation.READ, ResourceType.GROUP)


def join(services: Services, request: Request) -> Reply:
    """Handles JoinGroup: lets a member join its group, and responds once the rebalance is complete."""
    message = JOIN_GROUP.decode_request(request.version, request.body)
    ticket: asyncio.Future[JoinResult] = asyncio.get_running_loop().create_future()
    reply = respond_once_known(ticket, partial(_joined, services, request.version))
    if not JOIN_GUARD.permits(services, request.session, message.group_id):
        ticket.set_result(JoinResult(JOIN_GUARD.error, ""))
        return reply
    join = _join(request, message, ticket)
    logger.info(
        "group %s: %s joins: %s",
        message.group_id,
        message.member_id or f"a new member of client {request.client_id}",
        message.reason or "no reason given",
    )
    membership.join(services.groups, message.group_id, join)
    return reply


def _join(request: Request, message: JoinGroupRequest, ticket: asyncio.Future[JoinResult]) -> Join:
    instance_id = message.group_instance_id
    session_timeout_ms = milliseconds(message.session_timeout)
    has_rebalance_timeout = request.version >= FIRST_VERSION_WITH_REBALANCE_TIMEOUT
    named_after = (request.client_id or "") if instance_id is None else instance_id
    return Join(
        ticket=ticket,
        member_id=message.member_id,
        instance_id=instance_id,
        client_id=request.client_id or "",
        client_host=f"/{request.session.host}",
        rebalance_timeout_ms=milliseconds(message.rebalance_timeout) if has_rebalance_timeout else session_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        protocol_type=message.protocol_type,
        protocols=tuple(JoinProtocol(one.name, bytes(one.metadata)) for one in each(message.protocols)),
        fresh_member_id=f"{named_after[:MAX_ID_CHARACTERS]}-{uuid4()}",
        requires_known_member_id=request.version >= FIRST_VERSION_WITH_REQUIRED_ID,
        supports_skipping_assignment=request.version >= FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT,
    )


def _joined(services: Services, version: int, result: JoinResult) -> Parts:
    may_be_null = version >= FIRST_VERSION_WITH_NULL_PROTOCOL
    fields: JoinGroupResponseFields = {
        "throttle_time": 0,
        "error_code": result.error,
        "generation_id": result.generation,
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol_name if may_be_null else result.protocol_name or "",
        "leader": result.leader,
        "skip_assignment": result.skip_assignment,
        "member_id": result.member_id,
        "members": [
            {"member_id": one.member_id, "group_instance_id": one.instance_id, "metadata": one.metadata}
            for one in result.members
        ],
    }
    return respond(services, JOIN_GROUP, version, fields)


def sync(services: Services, request: Request) -> Reply:
    """Handles SyncGroup: takes the assignments that the group's leading member sends, and gives each member its own."""
    message = SYNC_GROUP.decode_request(request.version, request.body)
    ticket: asyncio.Future[SyncResult] = asyncio.get_running_loop().create_future()
    sync = Sync(
        ticket=ticket,
        member_id=message.member_id,
        instance_id=message.group_instance_id,
        generation=message.generation_id,
        protocol_type=message.protocol_type,
        protocol_name=message.protocol_name,
        assignments={one.member_id: bytes(one.assignment) for one in each(message.assignments)},
    )
    reply = respond_once_known(ticket, partial(_synced, services, request.version))
    if request.version >= FIRST_VERSION_WITH_PROTOCOL and None in (sync.protocol_type, sync.protocol_name):
        sync.ticket.set_result(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    elif not SYNC_GUARD.permits(services, request.session, message.group_id):
        sync.ticket.set_result(SyncResult(SYNC_GUARD.error))
    else:
        membership.sync(services.groups, message.group_id, sync)
    return reply


def _synced(services: Services, version: int, result: SyncResult) -> Parts:
    fields: SyncGroupResponseFields = {
        "throttle_time": 0,
        "error_code": result.error,
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol_name,
        "assignment": result.assignment,
    }
    return respond(services, SYNC_GROUP, version, fields)


def heartbeat(services: Services, request: Request) -> Reply:
    """Handles Heartbeat: records that a member is alive; the response's error says whether its group rebalances."""
    message = HEARTBEAT.decode_request(request.version, request.body)
    if HEARTBEAT_GUARD.permits(services, request.session, message.group_id):
        error = membership.heartbeat(
            services.groups,
            message.group_id,
            message.member_id,
            message.group_instance_id,
            message.generation_id,
        )
    else:
        error = HEARTBEAT_GUARD.error
    fields: HeartbeatResponseFields = {"throttle_time": 0, "error_code": error}
    return respond(services, HEARTBEAT, request.version, fields)


def leave(services: Services, request: Request) -> Reply:
    """Handles LeaveGroup: removes members from their group; from v3 on each has its own error in the response."""
    message = LEAVE_GROUP.decode_request(request.version, request.body)
    if request.version >= FIRST_VERSION_WITH_MEMBERS:
        leaving = [Leaving(one.member_id, one.group_instance_id, one.reason) for one in each(message.members)]
    else:
        leaving = [Leaving(message.member_id)]
    if LEAVE_GUARD.permits(services, request.session, message.group_id):
        error, errors = _leave(services, message.group_id, leaving)
    else:
        error, errors = LEAVE_GUARD.error, []
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


APIS = (
    Api(ApiKey.JOIN_GROUP, VersionRange(0, 9), join, guards=(JOIN_GUARD,), in_turn=True),
    Api(ApiKey.SYNC_GROUP, VersionRange(0, 5), sync, guards=(SYNC_GUARD,), in_turn=True),
    Api(ApiKey.HEARTBEAT, VersionRange(0, 4), heartbeat, guards=(HEARTBEAT_GUARD,), in_turn=True),
    Api(ApiKey.LEAVE_GROUP, VersionRange(0, 5), leave, guards=(LEAVE_GUARD,), in_turn=True),
)
