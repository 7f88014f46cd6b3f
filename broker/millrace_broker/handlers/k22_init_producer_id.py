"""InitProducerId, versions 0 to 5: an id for an idempotent producer (KIP-98), or the producer of a transactional id.

v2  flexible    v3  the producer's current id and epoch (KIP-360)   v4  PRODUCER_FENCED    v5  TRANSACTION_ABORTABLE

Without a transactional id each request gets a new id with epoch 0, even one that names an id. While the next block of
ids can't be reserved, the response is COORDINATOR_NOT_AVAILABLE, and the client tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, MillraceError
from millrace.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import milliseconds
from millrace.wire.encoder import Parts
from millrace.wire.messages import INIT_PRODUCER_ID
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.txns.effects import Result
from millrace_broker.txns.metadata import NOBODY, Producer
from millrace_broker.txns.transaction import InitProducer

if TYPE_CHECKING:
    from millrace.wire.messages.init_producer_id import InitProducerIdResponseFields

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_PRODUCER_FENCED = 4
GUARD = Guard(ApiKey.INIT_PRODUCER_ID, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
CLUSTER_GUARD = Guard(ApiKey.INIT_PRODUCER_ID, AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, is_silent=True)
TOPIC_GUARD = Guard(ApiKey.INIT_PRODUCER_ID, AclOperation.WRITE, ResourceType.TOPIC)


def handle(services: Services, request: Request) -> Reply:
    """Returns a producer id and its epoch."""
    message = INIT_PRODUCER_ID.decode_request(request.version, request.body)
    if denied := _denied(services, request, message.transactional_id):
        return _respond(services, request.version, denied)
    has_id = message.producer_id != NO_PRODUCER_ID
    has_epoch = message.producer_epoch != NO_PRODUCER_EPOCH
    if has_id != has_epoch:
        return _respond(services, request.version, ErrorCode.INVALID_REQUEST)
    if message.transactional_id is None:
        return later(_given(services, request.version, _idempotent(services)))
    expected = Producer(message.producer_id, message.producer_epoch) if has_id else None
    init = InitProducer(milliseconds(message.transaction_timeout), expected)
    initialized = services.txns.init_producer(message.transactional_id, init)
    return later(_given(services, request.version, initialized))


def _denied(services: Services, request: Request, transactional_id: str | None) -> ErrorCode:
    """Returns NONE for a client that may write; for idempotent writes the right to write to any topic will do."""
    if transactional_id is not None:
        permitted = GUARD.permits(services, request.session, transactional_id)
        return ErrorCode.NONE if permitted else GUARD.error
    permitted = CLUSTER_GUARD.permits(services, request.session) or TOPIC_GUARD.permits_on_any(
        services, request.session
    )
    return ErrorCode.NONE if permitted else CLUSTER_GUARD.error


async def _idempotent(services: Services) -> Result:
    return Result(ErrorCode.NONE, Producer(await services.producer_ids.take(), 0))


async def _given(services: Services, version: int, work: Awaitable[Result]) -> Parts:
    try:
        error, producer = await work
    except MillraceError as failed:
        logger.warning("no producer id can be given: %s", failed)
        return _respond(services, version, ErrorCode.COORDINATOR_NOT_AVAILABLE if failed.retriable else failed.code)
    if error is ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return _respond(services, version, error, producer)


def _respond(services: Services, version: int, code: ErrorCode, producer: Producer = NOBODY) -> Parts:
    fields: InitProducerIdResponseFields = {
        "throttle_time": 0,
        "error_code": code,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }
    return respond(services, INIT_PRODUCER_ID, version, fields)


API = Api(ApiKey.INIT_PRODUCER_ID, VersionRange(0, 5), handle, guards=(GUARD, CLUSTER_GUARD, TOPIC_GUARD))
