"""DescribeTransactions, version 0 (KIP-664): the producer and the partitions of transactional ids."""

from __future__ import annotations

from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.describe_transactions import TransactionDescribed, encode_describe_transactions_response
from millrace.wire.messages import DESCRIBE_TRANSACTIONS
from millrace_broker.handlers.answers import count_errors
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.storage import by_topic
from millrace_broker.txns.overview import find_transaction


def handle(services: Services, request: Request) -> Reply:
    """Describes each transactional id."""
    message = DESCRIBE_TRANSACTIONS.decode_request(request.version, request.body)
    described = [_described(services, one) for one in dict.fromkeys(message.transactional_ids)]
    count_errors(services, ApiKey.DESCRIBE_TRANSACTIONS, (one.error_code for one in described))
    return encode_describe_transactions_response(described)


def _described(services: Services, transactional_id: str) -> TransactionDescribed:
    found = find_transaction(services.txns, transactional_id)
    if isinstance(found, ErrorCode):
        return TransactionDescribed(found, transactional_id)
    kept = found.metadata
    return TransactionDescribed(
        ErrorCode.NONE,
        transactional_id,
        str(kept.state),
        kept.timeout_ms,
        kept.start_timestamp_ms,
        kept.producer_id,
        kept.producer_epoch,
        by_topic(sorted(kept.partitions)),
    )


API = Api(ApiKey.DESCRIBE_TRANSACTIONS, VersionRange(0, 0), handle)
