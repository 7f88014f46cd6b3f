"""What Prometheus is told of groups, transactions and fetch sessions, read when it asks, on any thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from millrace_broker.groups.coordinator import Coordinator
from millrace_broker.replication.fetch_sessions import FetchSessions
from millrace_broker.txns.coordinator import TransactionCoordinator
from millrace_broker.txns.state import OPEN

GROUP_COUNTERS = (
    ("offsets_committed", "Offsets committed by groups."),
    ("offsets_removed", "Committed offsets removed: expired, deleted, or of deleted topics and groups."),
    ("offsets_expired", "Committed offsets removed because their retention was over."),
    ("offsets_loaded", "Committed offsets read from the log when this broker became their coordinator."),
    ("groups_loaded", "Groups read from the log when this broker became their coordinator."),
    ("partitions_loaded", "Partitions of committed offsets that were read; empty ones need not be."),
    ("load_seconds", "Time it took to read them."),
)

TRANSACTION_COUNTERS = (
    ("begun", "Transactions that were begun."),
    ("committed", "Transactions that were committed, with every marker written."),
    ("aborted", "Transactions that were aborted, likewise."),
    ("timed_out", "Transactions that were aborted because they were open for too long."),
    ("fenced", "Producers whose epoch was taken away amid a transaction."),
    ("open_seconds", "Time between the begin and the last marker of transactions that are complete."),
    ("ids_loaded", "Transactional ids read from the log when this broker became their coordinator."),
    ("partitions_loaded", "Partitions of transaction states that were read; empty ones need not be."),
    ("load_seconds", "Time it took to read them."),
)


class GroupCollector(Collector):
    """The groups whose coordinator this broker is; those that are being loaded are left out."""

    def __init__(self, groups: Coordinator) -> None:
        self._groups = groups

    def collect(self) -> Iterable[Metric]:
        """All metric families."""
        shards = self._groups.led.loaded()
        found: Counter[tuple[str, ...]] = Counter()
        members: Counter[tuple[str, ...]] = Counter()
        for shard in shards:
            for group in tuple(shard.groups.values()):
                kind = (group.type, group.protocol_type or "")
                found[(*kind, group.state_name.lower())] += 1
                members[kind] += group.member_count
        kinds = ["type", "protocol_type"]
        yield _gauges("millrace_groups", "Groups by their type, protocol type and state.", [*kinds, "state"], found)
        yield _gauges("millrace_group_members", "Members of groups.", kinds, members)
        offsets = sum(shard.offsets.count for shard in shards)
        yield GaugeMetricFamily("millrace_group_offsets", "Committed offsets that are kept.", value=offsets)
        yield from self._counters()

    def _counters(self) -> Iterable[Metric]:
        counts = self._groups.counts
        rebalances = _by_one_label(counts.rebalances)
        text = "Generations of classic groups and epochs of consumer groups."
        yield _counters("millrace_group_rebalances", text, ["type"], rebalances)
        for name, text in GROUP_COUNTERS:
            yield CounterMetricFamily(f"millrace_group_{name}", text, value=getattr(counts, name))


class TransactionCollector(Collector):
    """The transactions whose coordinator this broker is; those that are being loaded are left out."""

    def __init__(self, transactions: TransactionCoordinator) -> None:
        self._transactions = transactions

    def collect(self) -> Iterable[Metric]:
        """All metric families."""
        known = [one.metadata for one in self._transactions.transactions()]
        states = Counter(str(one.state) for one in known)
        yield _gauges("millrace_transactions", "Transactional ids by their state.", ["state"], _by_one_label(states))
        begins = [one.start_timestamp_ms for one in known if one.state in OPEN]
        now_ms = self._transactions.now_ms()
        yield GaugeMetricFamily(
            "millrace_transaction_longest_open_seconds",
            "How long the oldest open transaction has been so.",
            value=max(0, now_ms - min(begins, default=now_ms)) / 1000,
        )
        markers = _by_one_label(self._transactions.markers.written)
        yield _counters("millrace_transaction_markers", "Markers written to partitions.", ["kind"], markers)
        for name, text in TRANSACTION_COUNTERS:
            yield CounterMetricFamily(
                f"millrace_transaction_{name}", text, value=getattr(self._transactions.counts, name)
            )


class FetchSessionCollector(Collector):
    """The fetch sessions of consumers (KIP-227)."""

    def __init__(self, sessions: FetchSessions) -> None:
        self._sessions = sessions

    def collect(self) -> Iterable[Metric]:
        """All metric families."""
        sessions = self._sessions
        yield GaugeMetricFamily("millrace_fetch_sessions", "Fetch sessions.", value=len(sessions))
        yield GaugeMetricFamily(
            "millrace_fetch_session_partitions", "Partitions in fetch sessions.", value=sessions.partition_count
        )
        yield CounterMetricFamily(
            "millrace_fetch_session_evictions", "Sessions that made room for another.", value=sessions.evictions
        )
        fetches = _by_one_label(sessions.fetches)
        text = "Fetches: full, incremental, sessionless, or refused by their session."
        yield _counters("millrace_fetches", text, ["kind"], fetches)


def _gauges(name: str, text: str, labels: list[str], values: Counter[tuple[str, ...]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for labelled, value in values.items():
        family.add_metric(labelled, value)
    return family


def _counters(name: str, text: str, labels: list[str], values: Counter[tuple[str, ...]]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for labelled, value in values.items():
        family.add_metric(labelled, value)
    return family


def _by_one_label(values: Counter[str]) -> Counter[tuple[str, ...]]:
    return Counter({(label,): value for label, value in values.copy().items()})
