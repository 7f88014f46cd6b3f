"""Collects what Prometheus is told; read when it asks, on any thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from millrace.errors import error_name
from millrace.wire.api import ApiKey
from millrace_broker.admin.replica_collector import replica_collectors
from millrace_broker.groups.group_coordinator import GroupCoordinator
from millrace_broker.handlers.api import Services
from millrace_broker.metrics import RequestMetrics
from millrace_broker.quotas.client_quotas import ClientQuotas
from millrace_broker.replication.fetch_sessions import FetchSessions
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.txns.state import DECIDED, OPEN
from millrace_broker.txns.transaction_coordinator import TransactionCoordinator

API_COUNTERS = (
    ("requests", "Requests handled.", "requests"),
    ("request_bytes", "Bytes of requests.", "bytes_in"),
    ("response_bytes", "Bytes of replies.", "bytes_out"),
    ("request_queue_seconds", "Time between a request's arrival and its handler.", "queue_seconds"),
    ("request_seconds", "Time in handlers.", "handler_seconds"),
    ("request_total_seconds", "Time between a request's arrival and its reply's leaving.", "total_seconds"),
)

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


def broker_collectors(
    metrics: RequestMetrics, services: Services, connections: Callable[[], int], bytes_in_flight: Callable[[], int]
) -> tuple[Collector, ...]:
    """Returns the collectors of all metrics of a broker."""
    return (
        BrokerCollector(metrics, services.replicas, connections, bytes_in_flight),
        GroupCollector(services.groups),
        TransactionCollector(services.txns),
        FetchSessionCollector(services.fetch_sessions),
        QuotaCollector(services.quotas, metrics),
        *replica_collectors(services),
    )


class BrokerCollector(Collector):
    """The metrics of requests, connections and partitions."""

    def __init__(
        self,
        metrics: RequestMetrics,
        replicas: ReplicaManager,
        connections: Callable[[], int],
        bytes_in_flight: Callable[[], int],
    ) -> None:
        self._metrics = metrics
        self._replicas = replicas
        self._connections = connections
        self._bytes_in_flight = bytes_in_flight

    def collect(self) -> Iterable[Metric]:
        """Yields all metric families."""
        yield from self._requests()
        yield from self._partitions()
        yield GaugeMetricFamily("millrace_connections", "Open connections.", value=self._connections())
        yield GaugeMetricFamily(
            "millrace_purgatory_size", "Requests that wait for records.", value=len(self._replicas.purgatory)
        )
        yield GaugeMetricFamily(
            "millrace_bytes_in_flight",
            "Memory of requests cut short or in line, and of replies not yet taken.",
            value=self._bytes_in_flight(),
        )
        yield CounterMetricFamily(
            "millrace_connections_idle_closed", "Connections closed for being idle.", value=self._metrics.idle_closed
        )
        yield CounterMetricFamily(
            "millrace_connections_refused", "Connections closed for what they sent.", value=self._metrics.refused
        )
        authentications = CounterMetricFamily("millrace_authentications", "Logins by SASL.", labels=["outcome"])
        for outcome in ("succeeded", "renewed", "failed"):
            authentications.add_metric([outcome], self._metrics.authentications[outcome])
        yield authentications

    def _requests(self) -> Iterable[Metric]:
        families = [
            (CounterMetricFamily(f"millrace_{name}", text, labels=["api"]), field) for name, text, field in API_COUNTERS
        ]
        for api_key, count in tuple(self._metrics.by_api.items()):
            for family, field in families:
                family.add_metric([ApiKey(api_key).name.lower()], getattr(count, field))
        errors = CounterMetricFamily(
            "millrace_request_errors", "Error codes in replies: one request can have many.", labels=["api", "error"]
        )
        for (api_key, code), times in self._metrics.errors.copy().items():
            errors.add_metric([ApiKey(api_key).name.lower(), error_name(code)], times)
        return [*(family for family, _ in families), errors]

    def _partitions(self) -> Iterable[Metric]:
        labels = ["topic", "partition"]
        start = GaugeMetricFamily("millrace_log_start_offset", "First offset in the log.", labels=labels)
        end = GaugeMetricFamily("millrace_log_end_offset", "Offset after the last in the log.", labels=labels)
        size = GaugeMetricFamily("millrace_log_size_bytes", "Bytes in the log.", labels=labels)
        unstable = GaugeMetricFamily(
            "millrace_last_stable_offset_lag", "Offsets that wait for open transactions to end.", labels=labels
        )
        for (topic, index), partition in tuple(self._replicas.partitions.items()):
            values = [topic, str(index)]
            start.add_metric(values, partition.log.log_start_offset)
            end.add_metric(values, partition.log.log_end_offset)
            size.add_metric(values, partition.log.size_bytes)
            high_watermark = partition.high_watermark
            stable = partition.log.producers.first_unstable_offset(high_watermark)
            unstable.add_metric(values, high_watermark - stable)
        return start, end, size, unstable


class QuotaCollector(Collector):
    """The metrics of throttled clients, by kind of quota. Labels name no client, so that their number is bounded."""

    def __init__(self, quotas: ClientQuotas, metrics: RequestMetrics) -> None:
        self._quotas = quotas
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """Yields all metric families."""
        counts = self._quotas.counts
        times = {kind.lower(): number for kind, number in counts.throttled.copy().items()}
        seconds = {kind.lower(): milliseconds / 1000 for kind, milliseconds in counts.throttle_ms.copy().items()}
        yield GaugeMetricFamily(
            "millrace_throttled_connections",
            "Connections that are not read, as their client is throttled.",
            value=self._metrics.muted,
        )
        for name, text, values in (
            ("millrace_throttled", "Requests and connections that exceeded a quota.", times),
            ("millrace_throttle_seconds", "Throttle times of them.", seconds),
        ):
            family = CounterMetricFamily(name, text, labels=["quota"])
            for kind, value in values.items():
                family.add_metric([kind], value)
            yield family


class GroupCollector(Collector):
    """The metrics of the groups whose coordinator this broker is, without those that are being loaded."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def collect(self) -> Iterable[Metric]:
        """Yields all metric families."""
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
    """The metrics of the transactions whose coordinator this broker is, without those that are being loaded."""

    def __init__(self, transactions: TransactionCoordinator) -> None:
        self._transactions = transactions

    def collect(self) -> Iterable[Metric]:
        """Yields all metric families."""
        known = [one.metadata for one in self._transactions.transactions()]
        states = Counter(str(one.state) for one in known)
        yield _gauges("millrace_transactions", "Transactional ids by their state.", ["state"], _by_one_label(states))
        begins = [one.start_timestamp_ms for one in known if one.state in OPEN]
        now_ms = self._transactions.now_ms()
        yield GaugeMetricFamily(
            "millrace_transaction_longest_open_seconds",
            "Time since the oldest open transaction began.",
            value=max(0, now_ms - min(begins, default=now_ms)) / 1000,
        )
        yield GaugeMetricFamily(
            "millrace_transaction_markers_pending",
            "Partitions of transactions that are decided and wait for all their markers to be written.",
            value=sum(len(one.partitions) for one in known if one.state in DECIDED),
        )
        markers = _by_one_label(self._transactions.markers.local.written)
        yield _counters("millrace_transaction_markers", "Markers written to partitions.", ["kind"], markers)
        for name, text in TRANSACTION_COUNTERS:
            yield CounterMetricFamily(
                f"millrace_transaction_{name}", text, value=getattr(self._transactions.counts, name)
            )


class FetchSessionCollector(Collector):
    """The metrics of consumers' fetch sessions (KIP-227)."""

    def __init__(self, sessions: FetchSessions) -> None:
        self._sessions = sessions

    def collect(self) -> Iterable[Metric]:
        """Yields all metric families."""
        sessions = self._sessions
        yield GaugeMetricFamily("millrace_fetch_sessions", "Fetch sessions.", value=len(sessions))
        yield GaugeMetricFamily(
            "millrace_fetch_session_partitions", "Partitions in fetch sessions.", value=sessions.partition_count
        )
        yield CounterMetricFamily(
            "millrace_fetch_session_evictions",
            "Sessions that were ended to make room for another.",
            value=sessions.evictions,
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
