"""JoinGroup, versions 0 to 9.

v1  rebalance timeout    v2  throttle time    v4  a new member is given an id first (KIP-394)   v5  static members
v6  flexible             v7  protocol type    v8  reason (KIP-800)    v9  skip assignment (KIP-814)
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from uuid import uuid4

from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode, field, milliseconds
from millrace.wire.encoder import Parts
from millrace_broker.groups import membership
from millrace_broker.groups.events import Join, JoinProtocol, JoinResult
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_REQUIRED_ID = 4
FIRST_VERSION_WITH_NULL_PROTOCOL = 7
FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT = 9
MAX_ID_CHARACTERS = 1000  # of a client's or an instance's id, in the member id that is made of it


def handle(services: Services, request: Request) -> Reply:
    """Join, and wait for the rebalance to complete."""
    message = decode(ApiKey.JOIN_GROUP, request.version, Direction.REQUEST, request.body)
    ticket: asyncio.Future[JoinResult] = asyncio.get_running_loop().create_future()
    join = _join(request, message, ticket)
    logger.info(
        "group %s: %s joins: %s",
        message.group_id,
        message.member_id or f"a new member of client {request.client_id}",
        field(message, "reason", None) or "no reason given",
    )
    membership.join(services.groups, message.group_id, join)
    return asyncio.ensure_future(_answer(services, request.version, ticket))


def _join(request: Request, message: Any, ticket: asyncio.Future[JoinResult]) -> Join:
    instance_id = field(message, "group_instance_id", None)
    session_timeout_ms = milliseconds(message.session_timeout)
    rebalance_timeout = field(message, "rebalance_timeout", None)
    named_after = (request.client_id or "") if instance_id is None else instance_id
    return Join(
        ticket=ticket,
        member_id=message.member_id,
        instance_id=instance_id,
        client_id=request.client_id or "",
        client_host=f"/{request.host}",
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout is None else milliseconds(rebalance_timeout),
        session_timeout_ms=session_timeout_ms,
        protocol_type=message.protocol_type,
        protocols=tuple(JoinProtocol(one.name, bytes(one.metadata)) for one in message.protocols),
        fresh_member_id=f"{named_after[:MAX_ID_CHARACTERS]}-{uuid4()}",
        requires_known_member_id=request.version >= FIRST_VERSION_WITH_REQUIRED_ID,
        supports_skipping_assignment=request.version >= FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT,
    )


async def _answer(services: Services, version: int, ticket: asyncio.Future[JoinResult]) -> Parts:
    result = await ticket
    may_be_null = version >= FIRST_VERSION_WITH_NULL_PROTOCOL
    fields = {
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
    return answer(services, ApiKey.JOIN_GROUP, version, fields)


API = Api(ApiKey.JOIN_GROUP, VersionRange(0, 9), handle)
