"""AddOffsetsToTxn, versions 0 to 4: a group's partition of `__consumer_offsets` joins a transaction (KIP-98).

v2  PRODUCER_FENCED      v3  flexible      v4  TRANSACTION_ABORTABLE

Any broker may coordinate the group. The first request creates the topic, as FindCoordinator does. While the topic is
not in this broker's image, the response is COORDINATOR_NOT_AVAILABLE: the broker would take the group's partition for a
deleted one, which needs no marker.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, MillraceError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import ADD_OFFSETS_TO_TXN
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.effects import Result
from millrace_broker.txns.metadata import NO_CLIENT_VERSION, Producer

if TYPE_CHECKING:
    from millrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponseFields

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
GUARD = Guard(ApiKey.ADD_OFFSETS_TO_TXN, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
GROUP_GUARD = Guard(ApiKey.ADD_OFFSETS_TO_TXN, AclOperation.READ, ResourceType.GROUP)


def handle(services: Services, request: Request) -> Reply:
    """Adds the group's partition to the transaction."""
    message = ADD_OFFSETS_TO_TXN.decode_request(request.version, request.body)
    if not GUARD.permits(services, request.session, message.transactional_id):
        return _respond(services, request.version, GUARD.error)
    if not GROUP_GUARD.permits(services, request.session, message.group_id):
        return _respond(services, request.version, GROUP_GUARD.error)
    if not services.groups.topic.exists:
        return later(_create_and_respond(services, request.version, message))
    adding = _add(services, message)
    if adding.done():  # as with one replica; a task for it would cost as much as the record
        return _respond(services, request.version, adding.result().error)
    return later(_respond_later(services, request.version, adding))


def _add(services: Services, message: AddOffsetsToTxnRequest) -> asyncio.Future[Result]:
    topic = services.groups.topic
    key = TopicPartition(topic.name, topic.partition_of(message.group_id))
    producer = Producer(message.producer_id, message.producer_epoch)
    return services.txns.add_partitions(message.transactional_id, producer, [key], NO_CLIENT_VERSION)


async def _create_and_respond(services: Services, version: int, message: AddOffsetsToTxnRequest) -> Parts:
    topic = services.groups.topic
    try:
        await topic.create()
    except MillraceError as error:
        logger.warning("%s can't be created: %s", topic.name, error)
    if not topic.exists:
        return _respond(services, version, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return await _respond_later(services, version, _add(services, message))


async def _respond_later(services: Services, version: int, adding: asyncio.Future[Result]) -> Parts:
    return _respond(services, version, (await adding).error)


def _respond(services: Services, version: int, error: ErrorCode) -> Parts:
    if error is ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    fields: AddOffsetsToTxnResponseFields = {"throttle_time": 0, "error_code": error}
    return respond(services, ADD_OFFSETS_TO_TXN, version, fields)


API = Api(ApiKey.ADD_OFFSETS_TO_TXN, VersionRange(0, 4), handle, guards=(GUARD, GROUP_GUARD))
