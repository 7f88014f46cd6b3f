"""ListPartitionReassignments, version 0 (KIP-455): none is ever under way."""

from __future__ import annotations

from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services


def handle(services: Services, request: Request) -> Reply:  # every handler has the same signature
    """None."""
    decode(ApiKey.LIST_PARTITION_REASSIGNMENTS, request.version, Direction.REQUEST, request.body)
    fields = {"throttle_time": 0, "error_code": ErrorCode.NONE, "error_message": "", "topics": ()}
    return answer(services, ApiKey.LIST_PARTITION_REASSIGNMENTS, request.version, fields)


API = Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, VersionRange(0, 0), handle)
