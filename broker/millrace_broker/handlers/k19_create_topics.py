"""CreateTopics, versions 2 to 7.

    v2  validate only      v4  partitions and replication factor -1: the broker's default
    v5  flexible; the answer describes the topic      v7  topic id

Manual assignments are taken as given. Each topic succeeds or fails by itself.
"""

from __future__ import annotations

import asyncio
from typing import Any

from millrace.errors import ErrorCode, MillraceError
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import ZERO_UUID, Direction, decode, encode
from millrace.wire.encoder import Parts
from millrace_broker.cluster.view import TopicInfo
from millrace_broker.handlers.api import Api, Reply, Request, Services

DEFAULT = -1


def handle(services: Services, request: Request) -> Reply:
    """Create each topic."""
    message = decode(ApiKey.CREATE_TOPICS, request.version, Direction.REQUEST, request.body)
    return asyncio.ensure_future(_create(services, request.version, message))


async def _create(services: Services, version: int, message: Any) -> Parts:
    results = [await _create_topic(services, topic, validate_only=message.validate_only) for topic in message.topics]
    fields = {"throttle_time": 0, "topics": results}
    return [encode(ApiKey.CREATE_TOPICS, version, Direction.RESPONSE, fields)]


async def _create_topic(services: Services, asked: Any, *, validate_only: bool) -> dict[str, Any]:
    assignments = {one.partition_index: tuple(one.broker_ids) for one in asked.assignments}
    try:
        topic = await services.topics.create(
            asked.name,
            partitions=None if asked.num_partitions == DEFAULT else asked.num_partitions,
            replication_factor=None if asked.replication_factor == DEFAULT else asked.replication_factor,
            assignments=assignments or None,
            config={one.name: one.value for one in asked.configs if one.value is not None},
            validate_only=validate_only,
        )
    except MillraceError as error:
        return _failed(asked.name, error)
    return _created(topic)


def _failed(name: str, error: MillraceError) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": ZERO_UUID,
        "error_code": error.code,
        "error_message": str(error),
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": None,
    }


def _created(topic: TopicInfo) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "num_partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas),
        "configs": None,
    }


API = Api(ApiKey.CREATE_TOPICS, VersionRange(2, 7), handle)
