"""FindCoordinator, versions 0 to 6: there is none yet, and this says so.

    v0  one key      v1  throttle time, message      v3  flexible      v4  many keys in one request

Every key is answered with COORDINATOR_NOT_AVAILABLE, upon which a client that only assigns partitions goes on and
one that subscribes keeps asking. It is served because librdkafka takes a broker without it for one too old for
lz4, and would send such records uncompressed without a word.
"""

from __future__ import annotations

import logging
from typing import Any

from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode, encode
from millrace_broker.handlers.api import Api, Reply, Request, Services

logger = logging.getLogger(__name__)

FIRST_BATCHED_VERSION = 4
MESSAGE = "this broker coordinates no groups yet: assign partitions instead of subscribing"


def handle(services: Services, request: Request) -> Reply:  # noqa: ARG001  # every handler has the same signature
    """Decline for each key."""
    message = decode(ApiKey.FIND_COORDINATOR, request.version, Direction.REQUEST, request.body)
    batched = request.version >= FIRST_BATCHED_VERSION
    keys = message.coordinator_keys if batched else (message.key,)
    logger.info("client %s asks for the coordinator of %s: %s", request.client_id, ", ".join(keys), MESSAGE)
    fields = {"throttle_time": 0, **({"coordinators": [_none(key) for key in keys]} if batched else _none(keys[0]))}
    return [encode(ApiKey.FIND_COORDINATOR, request.version, Direction.RESPONSE, fields)]


def _none(key: str) -> dict[str, Any]:
    return {
        "key": key,
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE,
        "error_message": MESSAGE,
    }


API = Api(ApiKey.FIND_COORDINATOR, VersionRange(0, 6), handle)
