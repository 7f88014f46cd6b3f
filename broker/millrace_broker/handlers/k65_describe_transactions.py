"""DescribeTransactions, version 0 (KIP-664): the producer and the partitions of transactional ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.errors import ErrorCode
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import DESCRIBE_TRANSACTIONS
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import by_topic
from millrace_broker.txns.overview import find_transaction

if TYPE_CHECKING:
    from millrace.wire.messages.describe_transactions import DescribeTransactionsResponseFields, TransactionStateFields

GUARD = Guard(ApiKey.DESCRIBE_TRANSACTIONS, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
TOPIC_GUARD = Guard(ApiKey.DESCRIBE_TRANSACTIONS, AclOperation.DESCRIBE, ResourceType.TOPIC)


def handle(services: Services, request: Request) -> Reply:
    """Describes each transactional id."""
    message = DESCRIBE_TRANSACTIONS.decode_request(request.version, request.body)
    described = [_described(services, request, one) for one in each(dict.fromkeys(message.transactional_ids))]
    fields: DescribeTransactionsResponseFields = {"throttle_time": 0, "transaction_states": described}
    return respond(services, DESCRIBE_TRANSACTIONS, request.version, fields)


def _described(services: Services, request: Request, transactional_id: str) -> TransactionStateFields:
    if not GUARD.permits(services, request.session, transactional_id):
        return _failed(transactional_id, GUARD.error)
    found = find_transaction(services.txns, transactional_id)
    if isinstance(found, ErrorCode):
        return _failed(transactional_id, found)
    kept = found.metadata
    seen = [one for one in sorted(kept.partitions) if TOPIC_GUARD.permits(services, request.session, one.topic)]
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": transactional_id,
        "transaction_state": str(kept.state),
        "transaction_timeout": kept.timeout_ms,
        "transaction_start_time": kept.start_timestamp_ms,
        "producer_id": kept.producer_id,
        "producer_epoch": kept.producer_epoch,
        "topics": [{"topic": topic, "partitions": partitions} for topic, partitions in by_topic(seen).items()],
    }


def _failed(transactional_id: str, error: ErrorCode) -> TransactionStateFields:
    return {
        "error_code": error,
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout": 0,
        "transaction_start_time": 0,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": (),
    }


API = Api(ApiKey.DESCRIBE_TRANSACTIONS, VersionRange(0, 0), handle, guards=(GUARD, TOPIC_GUARD))
