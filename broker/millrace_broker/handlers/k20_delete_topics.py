"""DeleteTopics, versions 0 to 6.

v0-v5  topics by name; v1 throttle time; v4 flexible; v5 an error message in the answer      v6  by name or by id
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from millrace.errors import ErrorCode, MillraceError, UnknownTopicIdError
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import ZERO_UUID
from millrace.wire.encoder import Parts
from millrace.wire.legacy_admin import decode_request, encode_response
from millrace_broker.handlers.api import Api, Reply, Request, Services

FIRST_VERSION_WITH_TOPIC_IDS = 6


def handle(services: Services, request: Request) -> Reply:
    """Delete each topic."""
    message = decode_request(ApiKey.DELETE_TOPICS, request.version, request.body)
    if request.version >= FIRST_VERSION_WITH_TOPIC_IDS:
        asked = [(topic.name, topic.topic_id) for topic in message.topics]
    else:
        asked = [(name, None) for name in message.topic_names]
    return asyncio.ensure_future(_delete(services, request.version, asked))


async def _delete(services: Services, version: int, asked: list[tuple[str | None, UUID | None]]) -> Parts:
    results = [await _delete_topic(services, name, topic_id) for name, topic_id in asked]
    fields = {"throttle_time": 0, "responses": results}
    return [encode_response(ApiKey.DELETE_TOPICS, version, fields)]


async def _delete_topic(services: Services, name: str | None, topic_id: UUID | None) -> dict[str, Any]:
    result = {"name": name, "topic_id": topic_id or ZERO_UUID, "error_code": ErrorCode.NONE, "error_message": None}
    try:
        if name is None:
            name = services.metadata.topic_name(topic_id or ZERO_UUID)
            if name is None:
                raise UnknownTopicIdError(f"no topic has id {topic_id}")
        deleted = await services.topics.delete(name)
        result |= {"name": name, "topic_id": deleted.topic_id}
    except MillraceError as error:
        result |= {"error_code": error.code, "error_message": str(error)}
    return result


API = Api(ApiKey.DELETE_TOPICS, VersionRange(0, 6), handle)
