"""ListTransactions, versions 0 to 2 (KIP-664): v1 filter by duration (KIP-994), v2 pattern of ids (KIP-1152)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.security.acls import AclOperation, ResourceType
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import LIST_TRANSACTIONS
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.txns.overview import Filter, list_transactions

if TYPE_CHECKING:
    from millrace.wire.messages.list_transactions import ListTransactionsResponseFields

GUARD = Guard(ApiKey.LIST_TRANSACTIONS, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)


def handle(services: Services, request: Request) -> Reply:
    """Lists the transactional ids that this broker coordinates."""
    message = LIST_TRANSACTIONS.decode_request(request.version, request.body)
    wanted = Filter(
        states=message.state_filters,
        producer_ids=message.producer_id_filters,
        duration_ms=message.duration_filter,
        pattern=message.transactional_id_pattern,
    )
    error, listed = list_transactions(services.txns, wanted, services.txns.now_ms())
    fields: ListTransactionsResponseFields = {
        "throttle_time": 0,
        "error_code": error,
        "unknown_state_filters": () if error else wanted.unknown_states,
        "transaction_states": [
            {
                "transactional_id": one.transactional_id,
                "producer_id": one.metadata.producer_id,
                "transaction_state": str(one.state),
            }
            for one in listed
            if GUARD.permits(services, request.session, one.transactional_id)
        ],
    }
    return respond(services, LIST_TRANSACTIONS, request.version, fields)


API = Api(ApiKey.LIST_TRANSACTIONS, VersionRange(0, 2), handle, guards=(GUARD,))
