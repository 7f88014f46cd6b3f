"""JoinGroup, versions 0 to 9.

v1  rebalance timeout    v2  throttle time    v4  a new member gets an id first (KIP-394)    v5  static members
v6  flexible             v7  protocol type    v8  reason (KIP-800)    v9  skip assignment (KIP-814)
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import milliseconds
from millrace.wire.encoder import Parts
from millrace.wire.messages import JOIN_GROUP
from millrace_broker.groups import membership
from millrace_broker.groups.events import Join, JoinProtocol, JoinResult
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond, respond_once_known

if TYPE_CHECKING:
    from millrace.wire.messages.join_group import JoinGroupRequest, JoinGroupResponseFields

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
FIRST_VERSION_WITH_REQUIRED_ID = 4
FIRST_VERSION_WITH_NULL_PROTOCOL = 7
FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT = 9
MAX_ID_CHARACTERS = 1000  # of a client's or an instance's id, in the member id that is made of it
GUARD = Guard(ApiKey.JOIN_GROUP, AclOperation.READ, ResourceType.GROUP)


def handle(services: Services, request: Request) -> Reply:
    """Lets a member join, and answers once the rebalance is complete."""
    message = JOIN_GROUP.decode_request(request.version, request.body)
    ticket: asyncio.Future[JoinResult] = asyncio.get_running_loop().create_future()
    reply = respond_once_known(ticket, partial(_respond, services, request.version))
    if not GUARD.permits(services, request.session, message.group_id):
        ticket.set_result(JoinResult(GUARD.error, ""))
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


def _respond(services: Services, version: int, result: JoinResult) -> Parts:
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


API = Api(ApiKey.JOIN_GROUP, VersionRange(0, 9), handle, guards=(GUARD,), in_turn=True)
