"""OffsetDelete, version 0 (KIP-496): deletes a group's offsets in topics that none of its members subscribes to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, GroupError
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import OFFSET_DELETE
from millrace_broker.groups import commits
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteResponseFields,
        OffsetDeleteResponseTopicFields,
    )


def handle(services: Services, request: Request) -> Reply:
    """Deletes each partition's offset."""
    message = OFFSET_DELETE.decode_request(request.version, request.body)
    return asyncio.ensure_future(_delete(services, request.version, message))


async def _delete(services: Services, version: int, message: OffsetDeleteRequest) -> Parts:
    asked = [TopicPartition(topic.name, one.partition_index) for topic in message.topics for one in topic.partitions]
    unknown = {one: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for one in asked if not _exists(services, one)}
    try:
        error, errors = await commits.delete(
            services.groups, message.group_id, [one for one in asked if one not in unknown]
        )
    except GroupError as refused:
        error, errors = refused.code, {}
    topics = [] if error else _answered(message, {**errors, **unknown})
    fields: OffsetDeleteResponseFields = {"error_code": error, "throttle_time": 0, "topics": topics}
    return answer(services, OFFSET_DELETE, version, fields)


def _exists(services: Services, one: TopicPartition) -> bool:
    topic = services.metadata.view.topics.get(one.topic)
    return topic is not None and 0 <= one.partition < len(topic.partitions)


def _answered(
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


API = Api(ApiKey.OFFSET_DELETE, VersionRange(0, 0), handle)
