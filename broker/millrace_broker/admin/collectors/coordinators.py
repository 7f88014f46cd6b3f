"""The metrics of groups, their committed offsets and lags, of transactions and of fetch sessions.

A group's coordinator may neither lead nor follow a partition of which the group has committed an offset. Then it gives
the offset without the lag, which is the difference to the leader's `millrace_log_end_offset` (docs/metrics.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from millrace_broker.admin.collectors.families import (
    Family,
    LargeFamily,
    by_one_label,
    counter,
    counters,
    escaped,
    gauge,
    gauges,
)
from millrace_broker.groups.group_coordinator import GroupCoordinator
from millrace_broker.groups.records import OffsetKey
from millrace_broker.replication.fetch_sessions import FetchSessions
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.state import DECIDED, OPEN
from millrace_broker.txns.transaction_coordinator import TransactionCoordinator

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
    ("aborted", "Transactions that were aborted, with every marker written."),
    ("timed_out", "Transactions that were aborted because they were open for too long."),
    ("fenced", "Producers that lost their epoch during a transaction."),
    ("open_seconds", "Time between the begin and the last marker of transactions that are complete."),
    ("ids_loaded", "Transactional ids read from the log when this broker became their coordinator."),
    ("partitions_loaded", "Partitions of transaction states that were read; empty ones need not be."),
    ("load_seconds", "Time it took to read them."),
)
MAX_OFFSETS = 10_000


class GroupCollector:
    """The metrics of the groups that this broker coordinates, without those in partitions that are being loaded."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def collect(self) -> Iterable[Family]:
        """Yields the numbers of groups, members and offsets, and counters of rebalances, commits and loads."""
        shards = self._groups.led.loaded()
        found: Counter[tuple[str, ...]] = Counter()
        members: Counter[tuple[str, ...]] = Counter()
        for shard in shards:
            for group in tuple(shard.groups.values()):
                kind = (group.type, group.protocol_type or "")
                found[(*kind, group.state_name.lower())] += 1
                members[kind] += group.member_count
        kinds = ["type", "protocol_type"]
        yield gauges("groups", "Groups by their type, protocol type and state.", [*kinds, "state"], found)
        yield gauges("group_members", "Members of groups.", kinds, members)
        offsets = sum(shard.offsets.count for shard in shards)
        yield gauge("group_offsets", "Committed offsets that are kept.", offsets)
        yield from self._counters()

    def _counters(self) -> Iterable[Family]:
        counts = self._groups.counts
        rebalances = by_one_label(counts.rebalances)
        text = "Generations of classic groups and epochs of consumer groups."
        yield counters("group_rebalances", text, ["type"], rebalances)
        for name, text in GROUP_COUNTERS:
            yield counter(f"group_{name}", text, getattr(counts, name))


class TransactionCollector:
    """The metrics of the transactions that this broker coordinates, without those in partitions still being loaded."""

    def __init__(self, transactions: TransactionCoordinator) -> None:
        self._transactions = transactions

    def collect(self) -> Iterable[Family]:
        """Yields the numbers of transactions by state and pending markers, and counters of begun and ended ones."""
        known = [one.metadata for one in self._transactions.transactions()]
        states = Counter(str(one.state) for one in known)
        yield gauges("transactions", "Transactional ids by their state.", ["state"], by_one_label(states))
        begins = [one.start_timestamp_ms for one in known if one.state in OPEN]
        now_ms = self._transactions.now_ms()
        longest_s = max(0, now_ms - min(begins, default=now_ms)) / 1000
        yield gauge("transaction_longest_open_seconds", "Time since the oldest open transaction began.", longest_s)
        text = "Partitions of transactions that are decided and wait for all their markers to be written."
        pending = sum(len(one.partitions) for one in known if one.state in DECIDED)
        yield gauge("transaction_markers_pending", text, pending)
        markers = by_one_label(self._transactions.markers.local.written)
        yield counters("transaction_markers", "Markers written to partitions.", ["kind"], markers)
        for name, text in TRANSACTION_COUNTERS:
            yield counter(f"transaction_{name}", text, getattr(self._transactions.counts, name))


class FetchSessionCollector:
    """The metrics of consumers' fetch sessions (KIP-227)."""

    def __init__(self, sessions: FetchSessions) -> None:
        self._sessions = sessions

    def collect(self) -> Iterable[Family]:
        """Yields the numbers of sessions, of their partitions, of evictions, and of fetches by kind."""
        sessions = self._sessions
        yield gauge("fetch_sessions", "Fetch sessions.", len(sessions))
        yield gauge("fetch_session_partitions", "Partitions in fetch sessions.", sessions.partition_count)
        text = "Sessions that were ended to make room for another."
        yield counter("fetch_session_evictions", text, sessions.evictions)
        fetches = by_one_label(sessions.fetches)
        text = "Fetches: full, incremental, sessionless, or refused by their session."
        yield counters("fetches", text, ["kind"], fetches)


class LagCollector:
    """The committed offsets and lags of the groups that this broker coordinates, up to `MAX_OFFSETS` of them."""

    def __init__(self, groups: GroupCoordinator, replicas: ReplicaManager) -> None:
        self._groups = groups
        self._replicas = replicas

    def collect(self) -> Iterable[Family]:
        """Yields the committed offset and the lag of each partition of each group."""
        text = "Committed offsets."
        yield LargeFamily("millrace_group_offset", text, "gauge", (_row(key, at) for key, at in self._offsets()))
        text = "Committed records that a group has not committed."
        yield LargeFamily("millrace_group_lag", text, "gauge", self._lags())
        left_out = max(0, sum(shard.offsets.count for shard in self._groups.led.loaded()) - MAX_OFFSETS)
        yield gauge("group_offsets_left_out", "Committed offsets that are not told, as they are too many.", left_out)

    def _offsets(self) -> Iterator[tuple[OffsetKey, int]]:
        found = ((key, one.offset) for shard in self._groups.led.loaded() for key, one in shard.offsets.all())
        return islice(found, MAX_OFFSETS)

    def _lags(self) -> Iterator[str]:
        for key, offset in self._offsets():
            replica = self._replicas.replica(TopicPartition(key.topic, key.partition))
            if replica is not None:
                yield _row(key, max(0, replica.high_watermark - offset))


def _row(key: OffsetKey, value: int) -> str:
    return f'{{group="{escaped(key.group_id)}",partition="{key.partition}",topic="{key.topic}"}} {value}'
