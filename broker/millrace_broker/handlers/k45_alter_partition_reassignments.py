"""AlterPartitionReassignments, versions 0 and 1 (KIP-455); v1 may forbid a change of the replication factor.

In a cluster, the controller reassigns. A standalone broker keeps each partition's only replica: a reassignment to this
broker is done at once, any other is refused, and there is never one to cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import ALTER_PARTITION_REASSIGNMENTS
from millrace_broker.cluster.metadata_image import MetadataImage
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.controller_responses import asked, said
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponseFields,
        ReassignablePartition,
        ReassignablePartitionResponseFields,
        ReassignableTopicResponseFields,
    )

GUARD = Guard(ApiKey.ALTER_PARTITION_REASSIGNMENTS, AclOperation.ALTER, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Returns the outcome of each reassignment: that it has begun or ended, or an error."""
    message = ALTER_PARTITION_REASSIGNMENTS.decode_request(request.version, request.body)
    if not GUARD.permits(services, request.session):
        return _respond(services, request.version, message, GUARD.error, _all_with(message, GUARD.error))
    if services.controller is not None:
        return later(_reassigned(services, request.version, message))
    image = services.metadata.image
    responses: list[ReassignableTopicResponseFields] = [
        {"name": topic.name, "partitions": [_result(image, topic.name, one) for one in each(topic.partitions)]}
        for topic in each(message.topics)
    ]
    return _respond(services, request.version, message, ErrorCode.NONE, responses)


def _all_with(message: AlterPartitionReassignmentsRequest, code: ErrorCode) -> list[ReassignableTopicResponseFields]:
    return [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": one.partition_index, "error_code": code, "error_message": said(code)}
                for one in each(topic.partitions)
            ],
        }
        for topic in each(message.topics)
    ]


async def _reassigned(services: Services, version: int, message: AlterPartitionReassignmentsRequest) -> Parts:
    """Has the controller begin and cancel reassignments."""
    targets = {
        TopicPartition(topic.name, one.partition_index): None if one.replicas is None else tuple(one.replicas)
        for topic in each(message.topics)
        for one in each(topic.partitions)
    }
    keeps_factor = not message.allow_replication_factor_change
    outcomes = await asked(services, lambda controller: controller.reassign(targets, keeps_factor=keeps_factor))
    if isinstance(outcomes, ErrorCode):
        return _respond(services, version, message, outcomes, [])
    responses: list[ReassignableTopicResponseFields] = [
        {
            "name": name,
            "partitions": [
                {"partition_index": key.partition, "error_code": code, "error_message": said(code)}
                for key, code in each(found)
            ],
        }
        for name, found in groupby(sorted(outcomes.items()), lambda item: item[0].topic)
    ]
    return _respond(services, version, message, ErrorCode.NONE, responses)


def _respond(
    services: Services,
    version: int,
    message: AlterPartitionReassignmentsRequest,
    code: ErrorCode,
    responses: Sequence[ReassignableTopicResponseFields],
) -> Parts:
    fields: AlterPartitionReassignmentsResponseFields = {
        "throttle_time": 0,
        "allow_replication_factor_change": message.allow_replication_factor_change,
        "error_code": code,
        "error_message": said(code),
        "responses": responses,
    }
    return respond(services, ALTER_PARTITION_REASSIGNMENTS, version, fields)


def _result(image: MetadataImage, topic: str, wanted: ReassignablePartition) -> ReassignablePartitionResponseFields:
    code, message = _outcome(image, topic, wanted.partition_index, wanted.replicas)
    return {"partition_index": wanted.partition_index, "error_code": code, "error_message": message}


def _outcome(
    image: MetadataImage, name: str, index: int, replicas: Sequence[int] | None
) -> tuple[ErrorCode, str | None]:
    partition = image.partition(name, index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {name}-{index}"
    if replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{name}-{index} is not being reassigned"
    current = partition.replicas
    if tuple(replicas) == current:
        return ErrorCode.NONE, None
    unknown = sorted(set(replicas) - set(image.brokers))
    reason = f"unknown are {unknown}" if unknown else f"it stays on {list(current)}: replicas are not moved yet"
    return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{name}-{index} to {list(replicas)}: {reason}"


API = Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, VersionRange(0, 1), handle, guards=(GUARD,))
