"""DescribeTransactions, version 0 (KIP-664): the producer and the partitions of transactional ids."""

from __future__ import annotations

from functools import partial

from millrace.errors import ErrorCode
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import beside, each
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.describe_transactions import TransactionDescribed, encode_describe_transactions_response
from millrace.wire.messages import DESCRIBE_TRANSACTIONS
from millrace_broker.handlers.answers import count_errors
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.storage import by_topic
from millrace_broker.txns.overview import find_transaction

GUARD = Guard(ApiKey.DESCRIBE_TRANSACTIONS, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
TOPIC_GUARD = Guard(ApiKey.DESCRIBE_TRANSACTIONS, AclOperation.DESCRIBE, ResourceType.TOPIC)


def handle(services: Services, request: Request) -> Reply:
    """Describes each transactional id."""
    message = DESCRIBE_TRANSACTIONS.decode_request(request.version, request.body)
    described = [_described(services, request, one) for one in each(dict.fromkeys(message.transactional_ids))]
    count_errors(services, ApiKey.DESCRIBE_TRANSACTIONS, (one.error_code for one in described))
    return beside(partial(encode_describe_transactions_response, described))


def _described(services: Services, request: Request, transactional_id: str) -> TransactionDescribed:
    if not GUARD.permits(services, request.session, transactional_id):
        return TransactionDescribed(GUARD.error, transactional_id)
    found = find_transaction(services.txns, transactional_id)
    if isinstance(found, ErrorCode):
        return TransactionDescribed(found, transactional_id)
    kept = found.metadata
    seen = [one for one in sorted(kept.partitions) if TOPIC_GUARD.permits(services, request.session, one.topic)]
    return TransactionDescribed(
        ErrorCode.NONE,
        transactional_id,
        str(kept.state),
        kept.timeout_ms,
        kept.start_timestamp_ms,
        kept.producer_id,
        kept.producer_epoch,
        by_topic(seen),
    )


API = Api(ApiKey.DESCRIBE_TRANSACTIONS, VersionRange(0, 0), handle, guards=(GUARD, TOPIC_GUARD))
