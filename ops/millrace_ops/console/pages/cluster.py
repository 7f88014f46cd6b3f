"""The cluster: brokers and the room on their disks, topics and their partitions, transactions, access control lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from millrace.client import BrokerMetadata, Configs, ResourceKind
from millrace.client.access import find_acls
from millrace.client.fetched import IsolationLevel
from millrace.client.groups import TransactionDescription, TransactionListing, describe_transactions, list_transactions
from millrace.client.log_offsets import LogOffsets, read_log_offsets
from millrace.client.metadata import PartitionMetadata
from millrace.client.replicas import LogDir, describe_log_dirs
from millrace.error_codes import error_sentence
from millrace.errors import BrokerError, ErrorCode, MillraceError
from millrace.internal_topics import INTERNAL_TOPICS
from millrace.security.acls import AclBinding, AclFilter
from millrace_ops.console.console import Console
from millrace_ops.console.overview import TopicSummary, look_at_replicas
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


class PartitionRow(NamedTuple):
    """One partition; `trouble` says why the offsets of its log are not known."""

    number: int
    metadata: PartitionMetadata
    log: LogOffsets | None
    size_bytes: int | None
    trouble: str


YOURS, INTERNAL = "", "internal"
EMPTY: Mapping[str, str] = {
    YOURS: "There are no topics yet: the first record that is produced makes one, or `millrace topics create`.",
    INTERNAL: "There are none yet: brokers create them for the first group that commits, or the first transaction.",
}


class TopicKind(NamedTuple):
    """A tab of the page of topics: those of users, or those in which brokers keep their own state."""

    kind: str
    label: str
    topics: int
    troubled: int


def show_topics(console: Console, asked: Asked) -> Page:
    """Returns the page of all topics of a kind."""
    overview, rates = console.watch.overview(), console.watch.rates
    by_kind: Mapping[str, list[TopicSummary]] = {YOURS: [], INTERNAL: []}
    for one in overview.topics.values():
        by_kind[INTERNAL if one.name in INTERNAL_TOPICS else YOURS].append(one)
    kind = INTERNAL if asked.query.get("kind") == INTERNAL else YOURS
    columns = {
        "name": lambda one: one.name,
        "partitions": lambda one: one.partitions,
        "replicas": lambda one: one.replicas,
        "records": lambda one: one.records or 0,
        "size": lambda one: one.size_bytes or 0,
        "rate": lambda one: rates.newest_rate(one.name),
        "trouble": lambda one: (one.offline, one.under_replicated),
    }
    listing = listed(by_kind[kind], asked.query, columns, lambda one: one.name)
    plots = {one.name: rates.rates(one.name) for one in listing.rows}
    kinds = [
        TopicKind(
            name, label, len(by_kind[name]), sum(bool(one.offline or one.under_replicated) for one in by_kind[name])
        )
        for name, label in ((YOURS, "Yours"), (INTERNAL, "Internal"))
    ]
    values = {"listing": listing, "overview": overview, "plots": plots, "kinds": kinds, "kind": kind}
    return Page("topics.html", {**values, "empty": EMPTY[kind]})


def show_topic(console: Console, asked: Asked) -> Page:
    """Returns the page of one topic."""
    name = asked.need("name")
    with console.clusters.lent() as cluster:
        metadata = cluster.metadata([name])
        topic = metadata.topic(name)
        keys = [(name, index) for index in topic.partitions]
        logs = read_log_offsets(cluster, keys, IsolationLevel.READ_COMMITTED, metadata=metadata)
        sizes = look_at_replicas(cluster, metadata, only_leaders=True).sizes
        try:
            configs, trouble = Configs(cluster).describe(ResourceKind.TOPIC, name), ""
        except MillraceError as error:
            configs, trouble = [], str(error)
    rows = []
    for index, partition in topic.partitions.items():
        log = logs[name, index]
        offsets = log if isinstance(log, LogOffsets) else None
        why = "" if isinstance(log, LogOffsets) else str(log)
        rows.append(PartitionRow(index, partition, offsets, sizes.get((name, index)), why))
    listing = listed(
        rows,
        asked.query,
        {
            "partition": lambda one: one.number,
            "leader": lambda one: one.metadata.leader,
            "records": lambda one: 0 if one.log is None else one.log.log_end - one.log.start_offset,
            "size": lambda one: one.size_bytes or 0,
        },
        lambda one: str(one.number),
    )
    values = {
        "topic": topic,
        "listing": listing,
        "configs": configs,
        "configs_trouble": trouble,
        "rates": console.watch.rates.rates(name),
    }
    return Page("topic.html", values)


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
