"""Lists transactions, and finds those that are to be described."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from millrace.errors import ErrorCode, InvalidRegularExpressionError
from millrace_broker.patterns import compiled
from millrace_broker.txns.state import STATE_NAMES
from millrace_broker.txns.transaction import Transaction
from millrace_broker.txns.transaction_coordinator import TransactionCoordinator

NO_DURATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What ListTransactions asks for. A field that is empty, or -1, lets all pass.

    The pattern, a regular expression in RE2's syntax, has to match the whole transactional id.
    """

    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    duration_ms: int = NO_DURATION
    pattern: str | None = None

    @property
    def unknown_states(self) -> list[str]:
        """The names that are of no state."""
        return [name for name in self.states if name not in STATE_NAMES]


def list_transactions(
    coordinator: TransactionCoordinator, wanted: Filter, now_ms: int
) -> tuple[ErrorCode, list[Transaction]]:
    """Returns an error, and the transactions that pass the filter."""
    shards = coordinator.shards()
    if isinstance(shards, ErrorCode):
        return shards, []
    found = [one for shard in shards for one in shard.transactions.values() if _passes(one, wanted, now_ms)]
    if not wanted.pattern:
        return ErrorCode.NONE, found
    try:
        pattern = compiled(wanted.pattern, "TransactionalIdPattern")
    except InvalidRegularExpressionError as error:
        return error.code, []
    return ErrorCode.NONE, [one for one in found if pattern.fullmatch(one.transactional_id)]


def _passes(transaction: Transaction, wanted: Filter, now_ms: int) -> bool:
    kept = transaction.metadata
    return (
        (not wanted.producer_ids or kept.producer_id in wanted.producer_ids)
        and (not wanted.states or str(kept.state) in wanted.states)
        and (wanted.duration_ms < 0 or now_ms - kept.start_timestamp_ms > wanted.duration_ms)
    )


def find_transaction(coordinator: TransactionCoordinator, transactional_id: str) -> Transaction | ErrorCode:
    """Returns the transaction of an id, or the error where it is unknown or not here."""
    found = coordinator.find(transactional_id)
    return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if found is ErrorCode.INVALID_PRODUCER_ID_MAPPING else found
