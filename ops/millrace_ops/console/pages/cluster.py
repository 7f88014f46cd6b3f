"""The cluster: brokers and the room on their disks, topics and their partitions, transactions, access control lists."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from millrace.client import BrokerMetadata
from millrace.client.access import find_acls
from millrace.client.groups import TransactionDescription, TransactionListing, describe_transactions, list_transactions
from millrace.client.replicas import LogDir, describe_log_dirs
from millrace.error_codes import error_sentence
from millrace.errors import BrokerError, ErrorCode, MillraceError
from millrace.security.acls import AclBinding, AclFilter
from millrace_ops.console.console import Console
from millrace_ops.console.request import DESCENDING, Asked, Page, listed


class BrokerRow(NamedTuple):
    """One broker; `trouble` says why its data directories are not known."""

    broker: BrokerMetadata
    is_controller: bool
    leads: int
    replicas: int
    out_of_sync: int
    log_dirs: list[LogDir]
    trouble: str


def show_brokers(console: Console, asked: Asked) -> Page:
    """Returns the page of all brokers."""
    overview = console.watch.overview()
    metadata = overview.metadata
    partitions = [one for topic in metadata.topics.values() for one in topic.partitions.values()]
    leads = Counter(one.leader for one in partitions)
    replicas = Counter(broker for one in partitions for broker in one.replicas)
    in_sync = Counter(broker for one in partitions for broker in one.isr)
    rows = []
    with console.clusters.lent() as cluster:
        for number, broker in sorted(metadata.brokers.items()):
            try:
                log_dirs, trouble = describe_log_dirs(cluster, number, ()), ""
            except MillraceError as error:
                log_dirs, trouble = [], str(error)
            is_controller = number == metadata.controller_id
            behind = replicas[number] - in_sync[number]
            rows.append(BrokerRow(broker, is_controller, leads[number], replicas[number], behind, log_dirs, trouble))
    absent = sorted({broker for one in partitions for broker in one.replicas} - metadata.brokers.keys())
    topics = overview.topics.values()
    totals = {
        "topics": len(topics),
        "partitions": len(partitions),
        "under_replicated": sum(one.under_replicated for one in topics),
        "offline": sum(one.offline for one in topics),
        "rates": console.watch.rates.total_rates(),
    }
    values = {"rows": rows, "absent": absent, "overview": overview, "totals": totals, "sentence": error_sentence}
    return Page("brokers.html", {**values, "own_troubles": asked.own_troubles})


OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
MAX_PARTITIONS = 20


class TransactionRow(NamedTuple):
    """A transactional id; `described` is None where it is gone by now, or where describing it is forbidden."""

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
    rows = [_transaction_row(one, described.get(one.transactional_id), now_ms) for one in listing.rows]
    values = {"listing": listing, "rows": rows, "open_states": OPEN_STATES, "max_partitions": MAX_PARTITIONS}
    return Page("transactions.html", values)


def _transaction_row(
    listing: TransactionListing, described: TransactionDescription | None, now_ms: int
) -> TransactionRow:
    is_open = described is not None and described.state in OPEN_STATES and described.started_ms is not None
    open_ms = now_ms - (described.started_ms or 0) if described is not None and is_open else None
    return TransactionRow(listing, described, open_ms)


def show_acls(console: Console, asked: Asked) -> Page:
    """Returns the page of all access control lists; a cluster without an authorizer has none."""
    bindings: list[AclBinding] = []
    has_authorizer = True
    with console.clusters.lent() as cluster:
        try:
            bindings = find_acls(cluster, AclFilter())
        except BrokerError as error:
            if error.broker_code != ErrorCode.SECURITY_DISABLED:
                raise
            has_authorizer = False
    listing = listed(
        bindings,
        asked.query,
        {
            "principal": lambda one: (one.acl.principal, one.pattern.name),
            "resource": lambda one: (one.pattern.resource_type.pascal, one.pattern.name),
            "operation": lambda one: one.acl.operation.pascal,
            "permission": lambda one: one.acl.permission.pascal,
            "host": lambda one: one.acl.host,
        },
        lambda one: f"{one.acl.principal} {one.pattern.resource_type.pascal} {one.pattern.name}",
    )
    return Page("acls.html", {"listing": listing, "has_authorizer": has_authorizer})
