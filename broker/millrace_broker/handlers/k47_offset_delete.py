"""OffsetDelete, version 0 (KIP-496): deletes a group's offsets in topics that none of its members subscribes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, GroupError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import OFFSET_DELETE
from millrace_broker.groups import commits
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteResponseFields,
        OffsetDeleteResponseTopicFields,
    )

GUARD = Guard(ApiKey.OFFSET_DELETE, AclOperation.DELETE, ResourceType.GROUP)
TOPIC_GUARD = Guard(ApiKey.OFFSET_DELETE, AclOperation.READ, ResourceType.TOPIC)


def handle(services: Services, request: Request) -> Reply:
    """Deletes each partition's offset."""
    message = OFFSET_DELETE.decode_request(request.version, request.body)
    if not GUARD.permits(services, request.session, message.group_id):
        return _respond(services, request.version, GUARD.error, [])
    return later(_delete(services, request.without_body(), message))


async def _delete(services: Services, request: Request, message: OffsetDeleteRequest) -> Parts:
    asked = [TopicPartition(topic.name, one.partition_index) for topic in message.topics for one in topic.partitions]
    unknown = {one: code for one in asked if (code := _refusal(services, request, one))}
    try:
        error, errors = await commits.delete(
            services.groups, message.group_id, [one for one in asked if one not in unknown]
        )
    except GroupError as refused:
        error, errors = refused.code, {}
    return _respond(services, request.version, error, [] if error else _response(message, {**errors, **unknown}))


def _respond(
    services: Services, version: int, error: ErrorCode, topics: list[OffsetDeleteResponseTopicFields]
) -> Parts:
    fields: OffsetDeleteResponseFields = {"error_code": error, "throttle_time": 0, "topics": topics}
    return respond(services, OFFSET_DELETE, version, fields)


def _refusal(services: Services, request: Request, one: TopicPartition) -> ErrorCode:
    if not TOPIC_GUARD.permits(services, request.session, one.topic):
        return TOPIC_GUARD.error
    exists = services.metadata.partition(one) is not None
    return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _response(
    message: OffsetDeleteRequest, errors: dict[TopicPartition, ErrorCode]
) -> list[OffsetDeleteResponseTopicFields]:
    return [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": one.partition_index,
                    "error_code": errors[TopicPartition(topic.name, one.partition_index)],
                }
                for one in topic.partitions
            ],
        }
        for topic in message.topics
        if topic.partitions
    ]


API = Api(ApiKey.OFFSET_DELETE, VersionRange(0, 0), handle, guards=(GUARD, TOPIC_GUARD))
