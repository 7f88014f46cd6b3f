"""SyncGroup, versions 0 to 5: v1 throttle time, v3 static members, v4 flexible, v5 protocol type and name (KIP-559)."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import SYNC_GROUP
from millrace_broker.groups import membership
from millrace_broker.groups.events import Sync, SyncResult
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond, respond_once_known

if TYPE_CHECKING:
    from millrace.wire.messages.sync_group import SyncGroupResponseFields

FIRST_VERSION_WITH_PROTOCOL = 5
GUARD = Guard(ApiKey.SYNC_GROUP, AclOperation.READ, ResourceType.GROUP)


def handle(services: Services, request: Request) -> Reply:
    """Takes the leader's assignments, and answers each member's own once they are there."""
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
    reply = respond_once_known(ticket, partial(_respond, services, request.version))
    if request.version >= FIRST_VERSION_WITH_PROTOCOL and None in (sync.protocol_type, sync.protocol_name):
        sync.ticket.set_result(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    elif not GUARD.permits(services, request.session, message.group_id):
        sync.ticket.set_result(SyncResult(GUARD.error))
    else:
        membership.sync(services.groups, message.group_id, sync)
    return reply


def _respond(services: Services, version: int, result: SyncResult) -> Parts:
    fields: SyncGroupResponseFields = {
        "throttle_time": 0,
        "error_code": result.error,
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol_name,
        "assignment": result.assignment,
    }
    return respond(services, SYNC_GROUP, version, fields)


API = Api(ApiKey.SYNC_GROUP, VersionRange(0, 5), handle, guards=(GUARD,), in_turn=True)
