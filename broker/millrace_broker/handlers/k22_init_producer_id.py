"""InitProducerId, versions 0 to 5: an id for an idempotent producer (KIP-98).

v2  flexible      v3  id and epoch that the producer has, for transactions (KIP-360)      v4, v5  further error codes

Without a transactional id each request gets a new id with epoch 0, whatever id it names. A transactional id is refused
with INVALID_REQUEST, which ends its producer: there are no transactions. While the next block of ids can't be reserved,
the answer is COORDINATOR_NOT_AVAILABLE, and the client tries again.
"""

from __future__ import annotations

import asyncio
import logging

from millrace.errors import ErrorCode, MillraceError
from millrace.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode, field
from millrace.wire.encoder import Parts
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services

logger = logging.getLogger(__name__)


def handle(services: Services, request: Request) -> Reply:
    """Give an id."""
    message = decode(ApiKey.INIT_PRODUCER_ID, request.version, Direction.REQUEST, request.body)
    has_id = field(message, "producer_id", NO_PRODUCER_ID) != NO_PRODUCER_ID
    has_epoch = field(message, "producer_epoch", NO_PRODUCER_EPOCH) != NO_PRODUCER_EPOCH
    if message.transactional_id is not None:
        logger.warning("client %s: transactional id %r: refused", request.client_id, message.transactional_id)
        return _answer(services, request.version, ErrorCode.INVALID_REQUEST)
    if has_id != has_epoch:
        return _answer(services, request.version, ErrorCode.INVALID_REQUEST)
    return asyncio.ensure_future(_take(services, request.version))


async def _take(services: Services, version: int) -> Parts:
    try:
        return _answer(services, version, ErrorCode.NONE, await services.producer_ids.take(), 0)
    except MillraceError as error:
        logger.warning("no producer id can be given: %s", error)
        return _answer(services, version, ErrorCode.COORDINATOR_NOT_AVAILABLE if error.retriable else error.code)


def _answer(
    services: Services, version: int, code: ErrorCode, producer_id: int = NO_PRODUCER_ID, epoch: int = NO_PRODUCER_EPOCH
) -> Parts:
    fields = {"throttle_time": 0, "error_code": code, "producer_id": producer_id, "producer_epoch": epoch}
    return answer(services, ApiKey.INIT_PRODUCER_ID, version, fields)


API = Api(ApiKey.INIT_PRODUCER_ID, VersionRange(0, 5), handle, refuses="a transactional id (INVALID_REQUEST)")
