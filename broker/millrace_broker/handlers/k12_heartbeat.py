"""Heartbeat, versions 0 to 4: v1 throttle time, v3 static members, v4 flexible."""

from __future__ import annotations

from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode, field
from millrace_broker.groups import membership
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services


def handle(services: Services, request: Request) -> Reply:
    """A member is alive, and learns whether its group rebalances."""
    message = decode(ApiKey.HEARTBEAT, request.version, Direction.REQUEST, request.body)
    error = membership.heartbeat(
        services.groups,
        message.group_id,
        message.member_id,
        field(message, "group_instance_id", None),
        message.generation_id,
    )
    fields = {"throttle_time": 0, "error_code": error}
    return answer(services, ApiKey.HEARTBEAT, request.version, fields)


API = Api(ApiKey.HEARTBEAT, VersionRange(0, 4), handle)
