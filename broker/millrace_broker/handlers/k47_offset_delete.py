"""OffsetDelete, version 0 (KIP-496): offsets of topics that no member of the group subscribes."""

from __future__ import annotations

import asyncio
from typing import Any

from millrace.errors import ErrorCode, GroupError
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode
from millrace.wire.encoder import Parts
from millrace_broker.groups import commits
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.storage import TopicPartition


def handle(services: Services, request: Request) -> Reply:
    """Delete each partition's offset."""
    message = decode(ApiKey.OFFSET_DELETE, request.version, Direction.REQUEST, request.body)
    return asyncio.ensure_future(_delete(services, request.version, message))


async def _delete(services: Services, version: int, message: Any) -> Parts:
    asked = [TopicPartition(topic.name, one.partition_index) for topic in message.topics for one in topic.partitions]
    unknown = {one: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for one in asked if not _exists(services, one)}
    try:
        error, errors = await commits.delete(
            services.groups, message.group_id, [one for one in asked if one not in unknown]
        )
    except GroupError as refused:
        error, errors = refused.code, {}
    topics = [] if error else _answered(message, {**errors, **unknown})
    fields = {"error_code": error, "throttle_time": 0, "topics": topics}
    return answer(services, ApiKey.OFFSET_DELETE, version, fields)


def _exists(services: Services, one: TopicPartition) -> bool:
    topic = services.metadata.view.topics.get(one.topic)
    return topic is not None and 0 <= one.partition < len(topic.partitions)


def _answered(message: Any, errors: dict[TopicPartition, ErrorCode]) -> list[dict[str, Any]]:
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
