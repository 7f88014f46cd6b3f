"""ListPartitionReassignments, version 0 (KIP-455): there is never one under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import LIST_PARTITION_REASSIGNMENTS
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services

if TYPE_CHECKING:
    from millrace.wire.messages.list_partition_reassignments import ListPartitionReassignmentsResponseFields


def handle(services: Services, request: Request) -> Reply:
    """Returns an empty list."""
    LIST_PARTITION_REASSIGNMENTS.decode_request(request.version, request.body)
    fields: ListPartitionReassignmentsResponseFields = {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "error_message": "",
        "topics": (),
    }
    return answer(services, LIST_PARTITION_REASSIGNMENTS, request.version, fields)


API = Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, VersionRange(0, 0), handle)
