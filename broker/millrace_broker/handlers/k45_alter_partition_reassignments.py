"""AlterPartitionReassignments, versions 0 and 1 (KIP-455); v1 may forbid another replication factor.

A partition has one replica, and it is not copied to another broker yet. To be reassigned to where it is, is done at
once; to anywhere else is refused, and there is never a reassignment to cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode, field
from millrace_broker.cluster.view import ClusterView
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services


def handle(services: Services, request: Request) -> Reply:
    """Answer for each partition."""
    message = decode(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request.version, Direction.REQUEST, request.body)
    view = services.metadata.view
    responses = [
        {"name": topic.name, "partitions": [_result(view, topic.name, one) for one in topic.partitions]}
        for topic in message.topics
    ]
    fields = {
        "throttle_time": 0,
        "allow_replication_factor_change": field(message, "allow_replication_factor_change", True),
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "responses": responses,
    }
    return answer(services, ApiKey.ALTER_PARTITION_REASSIGNMENTS, request.version, fields)


def _result(view: ClusterView, topic: str, wanted: Any) -> dict[str, Any]:
    code, message = _outcome(view, topic, wanted.partition_index, wanted.replicas)
    return {"partition_index": wanted.partition_index, "error_code": code, "error_message": message}


def _outcome(view: ClusterView, name: str, index: int, replicas: Sequence[int] | None) -> tuple[ErrorCode, str | None]:
    topic = view.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {name}-{index}"
    if replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{name}-{index} is not being reassigned"
    current = topic.partitions[index].replicas
    if tuple(replicas) == current:
        return ErrorCode.NONE, None
    unknown = sorted(set(replicas) - set(view.brokers))
    reason = f"unknown are {unknown}" if unknown else f"it stays on {list(current)}: replicas are not moved yet"
    return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{name}-{index} to {list(replicas)}: {reason}"


API = Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, VersionRange(0, 1), handle)
