"""AlterPartitionReassignments, versions 0 and 1 (KIP-455); v1 may forbid a change of the replication factor.

A partition has one replica, which can't move to another broker yet. A reassignment to the broker that has it is done at
once, any other is refused, and there is never a reassignment to cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import ALTER_PARTITION_REASSIGNMENTS
from millrace_broker.cluster.view import ClusterView
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services

if TYPE_CHECKING:
    from millrace.wire.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsResponseFields,
        ReassignablePartition,
        ReassignablePartitionResponseFields,
        ReassignableTopicResponseFields,
    )


def handle(services: Services, request: Request) -> Reply:
    """Accepts the reassignments that change nothing, and refuses the others."""
    message = ALTER_PARTITION_REASSIGNMENTS.decode_request(request.version, request.body)
    view = services.metadata.view
    responses: list[ReassignableTopicResponseFields] = [
        {"name": topic.name, "partitions": [_result(view, topic.name, one) for one in topic.partitions]}
        for topic in message.topics
    ]
    fields: AlterPartitionReassignmentsResponseFields = {
        "throttle_time": 0,
        "allow_replication_factor_change": message.allow_replication_factor_change,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "responses": responses,
    }
    return answer(services, ALTER_PARTITION_REASSIGNMENTS, request.version, fields)


def _result(view: ClusterView, topic: str, wanted: ReassignablePartition) -> ReassignablePartitionResponseFields:
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
