"""AddOffsetsToTxn, versions 0 to 4: a group's partition of `__consumer_offsets` joins a transaction (KIP-98).

v2  PRODUCER_FENCED      v3  flexible      v4  TRANSACTION_ABORTABLE
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import ADD_OFFSETS_TO_TXN
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.handlers.partitions import is_known, is_led_here
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.effects import Result
from millrace_broker.txns.metadata import NO_CLIENT_VERSION, Producer

if TYPE_CHECKING:
    from millrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnResponseFields

FIRST_VERSION_WITH_PRODUCER_FENCED = 2


def handle(services: Services, request: Request) -> Reply:
    """Adds the group's partition to the transaction."""
    message = ADD_OFFSETS_TO_TXN.decode_request(request.version, request.body)
    topic = services.groups.topic
    key = TopicPartition(topic.name, topic.partition_of(message.group_id))
    if is_known(services, key) and not is_led_here(services, key):
        return _answer(services, request.version, ErrorCode.POLICY_VIOLATION)
    producer = Producer(message.producer_id, message.producer_epoch)
    adding = services.txns.add_partitions(message.transactional_id, producer, [key], NO_CLIENT_VERSION)
    if adding.done():  # as with one replica; a task for it would cost as much as the record
        return _answer(services, request.version, adding.result().error)
    return asyncio.ensure_future(_answer_later(services, request.version, adding))


async def _answer_later(services: Services, version: int, adding: asyncio.Future[Result]) -> Parts:
    return _answer(services, version, (await adding).error)


def _answer(services: Services, version: int, error: ErrorCode) -> Parts:
    if error is ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    fields: AddOffsetsToTxnResponseFields = {"throttle_time": 0, "error_code": error}
    return answer(services, ADD_OFFSETS_TO_TXN, version, fields)


API = Api(
    ApiKey.ADD_OFFSETS_TO_TXN,
    VersionRange(0, 4),
    handle,
    refuses="groups of another broker than the transaction's coordinator (POLICY_VIOLATION)",
)
