"""Heartbeat, versions 0 to 4: v1 throttle time, v3 static members, v4 flexible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import HEARTBEAT
from millrace_broker.groups import membership
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services

if TYPE_CHECKING:
    from millrace.wire.messages.heartbeat import HeartbeatResponseFields


def handle(services: Services, request: Request) -> Reply:
    """Notes that a member is alive, and answers whether its group rebalances."""
    message = HEARTBEAT.decode_request(request.version, request.body)
    error = membership.heartbeat(
        services.groups,
        message.group_id,
        message.member_id,
        message.group_instance_id,
        message.generation_id,
    )
    fields: HeartbeatResponseFields = {"throttle_time": 0, "error_code": error}
    return answer(services, HEARTBEAT, request.version, fields)


API = Api(ApiKey.HEARTBEAT, VersionRange(0, 4), handle)
