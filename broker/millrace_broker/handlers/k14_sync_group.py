"""SyncGroup, versions 0 to 5: v1 throttle time, v3 static members, v4 flexible, v5 protocol type and name (KIP-559)."""

from __future__ import annotations

import asyncio

from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode, field
from millrace.wire.encoder import Parts
from millrace_broker.groups import membership
from millrace_broker.groups.events import Sync, SyncResult
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services

FIRST_VERSION_WITH_PROTOCOL = 5


def handle(services: Services, request: Request) -> Reply:
    """Give the assignments, if one leads, and wait for one's own."""
    message = decode(ApiKey.SYNC_GROUP, request.version, Direction.REQUEST, request.body)
    ticket: asyncio.Future[SyncResult] = asyncio.get_running_loop().create_future()
    sync = Sync(
        ticket=ticket,
        member_id=message.member_id,
        instance_id=field(message, "group_instance_id", None),
        generation=message.generation_id,
        protocol_type=field(message, "protocol_type", None),
        protocol_name=field(message, "protocol_name", None),
        assignments={one.member_id: bytes(one.assignment) for one in message.assignments},
    )
    if request.version >= FIRST_VERSION_WITH_PROTOCOL and None in (sync.protocol_type, sync.protocol_name):
        sync.ticket.set_result(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    else:
        membership.sync(services.groups, message.group_id, sync)
    return asyncio.ensure_future(_answer(services, request.version, ticket))


async def _answer(services: Services, version: int, ticket: asyncio.Future[SyncResult]) -> Parts:
    result = await ticket
    fields = {
        "throttle_time": 0,
        "error_code": result.error,
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol_name,
        "assignment": result.assignment,
    }
    return answer(services, ApiKey.SYNC_GROUP, version, fields)


API = Api(ApiKey.SYNC_GROUP, VersionRange(0, 5), handle)
