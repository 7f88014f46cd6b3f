"""ListPartitionReassignments, version 0 (KIP-455); a standalone broker has none under way."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import LIST_PARTITION_REASSIGNMENTS
from millrace_broker.controller.cluster_state import Assignment
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.controller_responses import asked, said
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponseFields,
        OngoingTopicReassignmentFields,
    )

GUARD = Guard(ApiKey.LIST_PARTITION_REASSIGNMENTS, AclOperation.DESCRIBE, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Returns the reassignments under way of the partitions that are asked for, or of all."""
    message = LIST_PARTITION_REASSIGNMENTS.decode_request(request.version, request.body)
    if not GUARD.permits(services, request.session):
        return _respond(services, request.version, GUARD.error, {})
    if services.controller is None:
        return _respond(services, request.version, ErrorCode.NONE, {})
    return later(_listed(services, request.version, message))


async def _listed(services: Services, version: int, message: ListPartitionReassignmentsRequest) -> Parts:
    found = await asked(services, lambda controller: controller.reassignments())
    if isinstance(found, ErrorCode):
        return _respond(services, version, found, {})
    if message.topics is not None:
        wanted = {TopicPartition(topic.name, index) for topic in message.topics for index in topic.partition_indexes}
        found = {key: assignment for key, assignment in found.items() if key in wanted}
    return _respond(services, version, ErrorCode.NONE, found)


def _respond(services: Services, version: int, code: ErrorCode, found: Mapping[TopicPartition, Assignment]) -> Parts:
    topics: list[OngoingTopicReassignmentFields] = [
        {
            "name": name,
            "partitions": [
                {
                    "partition_index": key.partition,
                    "replicas": assignment.replicas,
                    "adding_replicas": assignment.adding,
                    "removing_replicas": assignment.removing,
                }
                for key, assignment in some
            ],
        }
        for name, some in groupby(sorted(found.items(), key=lambda item: item[0]), lambda item: item[0].topic)
    ]
    fields: ListPartitionReassignmentsResponseFields = {
        "throttle_time": 0,
        "error_code": code,
        "error_message": said(code) or "",
        "topics": topics,
    }
    return respond(services, LIST_PARTITION_REASSIGNMENTS, version, fields)


API = Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, VersionRange(0, 0), handle, guards=(GUARD,))
