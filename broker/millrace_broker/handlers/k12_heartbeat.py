"""Heartbeat, versions 0 to 4: v1 throttle time, v3 static members, v4 flexible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.security.acls import AclOperation, ResourceType
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import HEARTBEAT
from millrace_broker.groups import membership
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond

if TYPE_CHECKING:
    from millrace.wire.messages.heartbeat import HeartbeatResponseFields

GUARD = Guard(ApiKey.HEARTBEAT, AclOperation.READ, ResourceType.GROUP)


def handle(services: Services, request: Request) -> Reply:
    """Notes that a member is alive, and answers whether its group rebalances."""
    message = HEARTBEAT.decode_request(request.version, request.body)
    if GUARD.permits(services, request.session, message.group_id):
        error = membership.heartbeat(
            services.groups,
            message.group_id,
            message.member_id,
            message.group_instance_id,
            message.generation_id,
        )
    else:
        error = GUARD.error
    fields: HeartbeatResponseFields = {"throttle_time": 0, "error_code": error}
    return respond(services, HEARTBEAT, request.version, fields)


API = Api(ApiKey.HEARTBEAT, VersionRange(0, 4), handle, guards=(GUARD,), in_turn=True)
