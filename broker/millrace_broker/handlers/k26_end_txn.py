"""EndTxn, versions 0 to 5: commit or abort (KIP-98).

v2  PRODUCER_FENCED      v3  flexible      v4  TRANSACTION_ABORTABLE
v5  the epoch is bumped, and is in the response with the producer id, a new one where no epoch is left (KIP-890)

The response leaves once the decision is stored. The markers follow; requests before they are written are answered
CONCURRENT_TRANSACTIONS.
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
from millrace.wire.messages import END_TXN
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.txns.effects import Result
from millrace_broker.txns.metadata import EPOCH_BUMP_VERSION, NO_CLIENT_VERSION, Producer
from millrace_broker.txns.transaction import End

if TYPE_CHECKING:
    from millrace.wire.messages.end_txn import EndTxnResponseFields

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_VERSION_WITH_EPOCH_BUMP = 5
GUARD = Guard(ApiKey.END_TXN, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)


def handle(services: Services, request: Request) -> Reply:
    """Ends the transaction."""
    version = request.version
    message = END_TXN.decode_request(version, request.body)
    if not GUARD.permits(services, request.session, message.transactional_id):
        return _respond(services, version, Result(GUARD.error))
    client_version = EPOCH_BUMP_VERSION if version >= FIRST_VERSION_WITH_EPOCH_BUMP else NO_CLIENT_VERSION
    producer = Producer(message.producer_id, message.producer_epoch)
    ending = services.txns.end(message.transactional_id, End(producer, message.committed, client_version))
    if ending.done():  # as with one replica; a task for it would cost as much as the decision
        return _respond(services, version, ending.result())
    return later(_respond_later(services, version, ending))


async def _respond_later(services: Services, version: int, ending: asyncio.Future[Result]) -> Parts:
    try:
        result = await ending
    except MillraceError as failed:
        logger.warning("no producer id can be given: %s", failed)
        result = Result(ErrorCode.COORDINATOR_NOT_AVAILABLE if failed.retriable else failed.code)
    return _respond(services, version, result)


def _respond(services: Services, version: int, result: Result) -> Parts:
    error, producer = result
    if error is ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    fields: EndTxnResponseFields = {
        "throttle_time": 0,
        "error_code": error,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }
    return respond(services, END_TXN, version, fields)


API = Api(ApiKey.END_TXN, VersionRange(0, 5), handle, guards=(GUARD,))
