"""ListTransactions, versions 0 to 2 (KIP-664): v1 filter by duration (KIP-994), v2 pattern of ids (KIP-1152)."""

from __future__ import annotations

from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode, field
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.txns.overview import NO_DURATION, Filter, list_transactions


def handle(services: Services, request: Request) -> Reply:
    """List the transactional ids that this broker coordinates."""
    message = decode(ApiKey.LIST_TRANSACTIONS, request.version, Direction.REQUEST, request.body)
    wanted = Filter(
        states=message.state_filters,
        producer_ids=message.producer_id_filters,
        duration_ms=field(message, "duration_filter", NO_DURATION),
        pattern=field(message, "transactional_id_pattern", None),
    )
    error, listed = list_transactions(services.txns, wanted, services.txns.now_ms())
    fields = {
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
        ],
    }
    return answer(services, ApiKey.LIST_TRANSACTIONS, request.version, fields)


API = Api(ApiKey.LIST_TRANSACTIONS, VersionRange(0, 2), handle)
