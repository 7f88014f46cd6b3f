"""FindCoordinator, versions 0 to 6.

    v0  one key      v1  key type, throttle time, message      v3  flexible      v4  many keys in one request (KIP-699)

The coordinator of a group is the leader of its partition of `__consumer_offsets`, which is created at the first
question. Keys of transactions are answered COORDINATOR_NOT_AVAILABLE, as long as none is coordinated; other types of
keys INVALID_REQUEST.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from millrace.errors import ErrorCode, GroupError, MillraceError
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode, field
from millrace.wire.encoder import Parts
from millrace_broker.groups.offsets_topic import OFFSETS_TOPIC
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services

FIRST_BATCHED_VERSION = 4
NO_ERROR = "NONE"  # what Kafka's message says up to version 3 where there is no error
GROUP = 0
TRANSACTION = 1


def handle(services: Services, request: Request) -> Reply:
    """Say where each key's coordinator is."""
    message = decode(ApiKey.FIND_COORDINATOR, request.version, Direction.REQUEST, request.body)
    keys = message.coordinator_keys if request.version >= FIRST_BATCHED_VERSION else (message.key,)
    key_type = field(message, "key_type", GROUP)
    if key_type == GROUP and OFFSETS_TOPIC not in services.metadata.view.topics:
        return asyncio.ensure_future(_create_and_answer(services, request.version, keys))
    return _answer(services, request.version, [_located(services, key_type, key) for key in keys])


async def _create_and_answer(services: Services, version: int, keys: Sequence[str]) -> Parts:
    try:
        await services.groups.create_topic()
    except MillraceError as error:
        message = f"{OFFSETS_TOPIC} can't be created: {error}"
        return _answer(services, version, [_none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, message) for key in keys])
    return _answer(services, version, [_located(services, GROUP, key) for key in keys])


def _answer(services: Services, version: int, coordinators: list[dict[str, Any]]) -> Parts:
    if version >= FIRST_BATCHED_VERSION:
        found: dict[str, Any] = {"coordinators": coordinators}
    else:
        found = coordinators[0] | {"error_message": coordinators[0]["error_message"] or NO_ERROR}
    return answer(services, ApiKey.FIND_COORDINATOR, version, {"throttle_time": 0, **found})


def _located(services: Services, key_type: int, key: str) -> dict[str, Any]:
    if key_type == TRANSACTION:
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker coordinates no transactions")
    if key_type != GROUP:
        return _none(key, ErrorCode.INVALID_REQUEST, f"key type {key_type}: expected 0 (group) or 1 (transaction)")
    try:
        broker = services.groups.locate(key)
    except GroupError as error:
        return _none(key, error.code, str(error))
    if broker is None:
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} does not exist")
    return {
        "key": key,
        "node_id": broker.id,
        "host": broker.host,
        "port": broker.port,
        "error_code": ErrorCode.NONE,
        "error_message": None,
    }


def _none(key: str, code: ErrorCode, message: str) -> dict[str, Any]:
    return {"key": key, "node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": message}


API = Api(ApiKey.FIND_COORDINATOR, VersionRange(0, 6), handle)
