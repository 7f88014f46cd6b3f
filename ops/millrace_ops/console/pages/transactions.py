"""Transactions: all transactional ids, and for those on the page how long a transaction is open, and where."""

from __future__ import annotations

from typing import NamedTuple

from millrace.client.transactions import (
    TransactionDescription,
    TransactionListing,
    describe_transactions,
    list_transactions,
)
from millrace_ops.console.console import Console
from millrace_ops.console.listing import DESCENDING, listed
from millrace_ops.console.request import Asked, Page

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
MAX_PARTITIONS = 20


class TransactionRow(NamedTuple):
    """A transactional id; `described` is None where it has gone meanwhile or may not be described."""

    listing: TransactionListing
    described: TransactionDescription | None
    open_ms: int | None

    @property
    def is_overdue(self) -> bool:
        """Returns whether the open transaction has lasted longer than the timeout that its producer has set."""
        return self.described is not None and (self.open_ms or 0) > self.described.timeout_ms


def show_transactions(console: Console, asked: Asked) -> Page:
    """Returns the page of all transactional ids."""
    with console.clusters.lent() as cluster:
        listing = listed(
            list_transactions(cluster),
            asked.query,
            {
                "state": lambda one: (one.state in OPEN_STATES, one.state),
                "id": lambda one: one.transactional_id,
                "producer": lambda one: one.producer_id,
            },
            lambda one: f"{one.transactional_id} {one.state} {one.producer_id}",
            ("state", DESCENDING),
        )
        described = {
            one.transactional_id: one
            for one in describe_transactions(cluster, (one.transactional_id for one in listing.rows))
        }
    now_ms = console.clock.now_ms()
    rows = [_row(one, described.get(one.transactional_id), now_ms) for one in listing.rows]
    values = {"listing": listing, "rows": rows, "open_states": OPEN_STATES, "max_partitions": MAX_PARTITIONS}
    return Page("transactions.html", values)


def _row(listing: TransactionListing, described: TransactionDescription | None, now_ms: int) -> TransactionRow:
    is_open = described is not None and described.state in OPEN_STATES and described.started_ms is not None
    open_ms = now_ms - (described.started_ms or 0) if described is not None and is_open else None
    return TransactionRow(listing, described, open_ms)
