"""The metrics of replicas, of the logs that this broker leads, and of the controller.

The names are those of Apache Kafka's metrics, as docs/metrics.md lists them.

Logs that have records from the future, as the broker's clock sees it, are told of: retention by time keeps a segment
until its newest record is old, so one record of next year keeps its segment for a year. The logs are looked at when
somebody asks, so that appends pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import nlargest
from typing import TYPE_CHECKING

from millrace.clock import Clock
from millrace_broker.admin.collectors.families import Family, LargeFamily, counter, gauge, gauges
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from millrace_broker.controller.controller import Controller  # it needs ZooKeeper's client

Value = Callable[[Partition], int]
LEAST_AHEAD_MS = 60_000  # clocks of producers differ
MAX_LOGS = 100
LOGS_AT_ONCE = 200


class ReplicaCollector:
    """The metrics of the partitions that a broker leads and follows."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def collect(self) -> Iterable[Family]:
        """Yields the numbers of led, followed, offline and under-replicated partitions, and of in-sync changes."""
        led, followed = tuple(self._replicas.partitions.values()), tuple(self._replicas.followed.values())
        yield gauge("leader_count", "Partitions that this broker leads.", len(led))
        yield gauge("partition_count", "Partitions that this broker leads or follows.", len(led) + len(followed))
        yield gauge("offline_replica_count", "Replicas whose logs can't be used.", len(self._replicas.offline))
        replicated = [one.in_sync for one in led if one.in_sync is not None]
        is_under = [one.is_under_replicated for one in replicated]
        yield gauge("under_replicated_partitions", "Led partitions that lack a replica in sync.", sum(is_under))
        spare = [len(one.committed) - one.min_isr for one in replicated]
        alone = len(led) - len(replicated)  # the only replica of a partition is all that its min ISR asks for
        text = "Led partitions with fewer replicas in sync than min.insync.replicas asks for."
        yield gauge("under_min_isr_partition_count", text, sum(each < 0 for each in spare))
        text = "Led partitions that are under their min ISR with one replica less."
        yield gauge("at_min_isr_partition_count", text, alone + sum(each == 0 for each in spare))
        text = "Committed records that the replica lacks which lags most of those that this broker follows with."
        yield gauge("replica_fetcher_max_lag", text, max((one.lag for one in followed), default=0))
        text = "Data directories that have failed."
        yield gauge("offline_log_directory_count", text, self._replicas.offline_dir_count)
        counts = self._replicas.isr.counts
        yield counter("isr_shrinks", "Replicas in sync that this broker had leave.", counts.shrinks)
        yield counter("isr_expands", "Replicas that this broker had join those in sync.", counts.expands)
        text = "Changes of the replicas in sync that the controller has refused to this broker."
        yield counter("failed_isr_updates", text, counts.failed)


class ControllerCollector:
    """The metrics of the controller; all gauges are 0 where another broker is the controller."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def collect(self) -> Iterable[Family]:
        """Yields the numbers of brokers, topics and partitions of the cluster, and of elections."""
        counts = self._controller.cluster_counts()
        brokers, topics, partitions, offline, imbalanced = counts or (0, 0, 0, 0, 0)
        yield gauge("active_controller_count", "1 where this broker is the controller.", counts is not None)
        yield gauge("active_broker_count", "Brokers that are registered.", brokers)
        yield gauge("global_topic_count", "Topics of the cluster.", topics)
        yield gauge("global_partition_count", "Partitions of the cluster.", partitions)
        yield gauge("offline_partitions_count", "Partitions without a leader.", offline)
        text = "Partitions that another replica leads than their first."
        yield gauge("preferred_replica_imbalance_count", text, imbalanced)
        elections = self._controller.elections
        yield counter("leader_elections", "Leaders that took over from others.", elections.elected)
        text = "Leaders that may lack acknowledged records."
        yield counter("unclean_leader_elections", text, elections.unclean)
        yield counter("leader_election_seconds", "Time that these elections took.", elections.seconds)


def _unstable(partition: Partition) -> int:
    high_watermark = partition.high_watermark
    return high_watermark - partition.log.producers.first_unstable_offset(high_watermark)


LOG_GAUGES: tuple[tuple[str, str, Value], ...] = (
    ("log_start_offset", "First offset in the log.", lambda one: one.log.log_start_offset),
    ("log_end_offset", "Offset after the last in the log.", lambda one: one.log.log_end_offset),
    ("log_size_bytes", "Bytes in the log.", lambda one: one.log.size_bytes),
    ("last_stable_offset_lag", "Offsets that wait for open transactions to end.", _unstable),
)


class PartitionCollector:
    """Collects a gauge of each log that this broker leads, of its size and its offsets, by topic and partition."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def collect(self) -> Iterable[Family]:
        """Yields one large family for each size and offset of a log."""
        led = tuple(self._replicas.partitions.values())
        for name, text, value in LOG_GAUGES:
            yield LargeFamily(f"millrace_{name}", text, "gauge", _rows(led, value))


def _rows(led: Iterable[Partition], value: Value) -> Iterator[str]:
    for one in led:
        topic, index = one.log.topic_partition
        yield f'{{partition="{index}",topic="{topic}"}} {value(one)}'  # the name of a topic has nothing to escape


class TimestampCollector:
    """How far logs' newest timestamps are ahead of the clock: the `MAX_LOGS` furthest of those above a minute."""

    def __init__(self, replicas: ReplicaManager, clock: Clock) -> None:
        self._replicas = replicas
        self._clock = clock

    def collect(self) -> Iterable[Family | None]:
        """Yields None after every `LOGS_AT_ONCE` logs, so that other work may run, and at the end the metric family."""
        now_ms = self._clock.now_ms()
        ahead_ms: dict[tuple[str, ...], int] = {}
        for number, one in enumerate(tuple(self._replicas.partitions.values()), 1):
            newest_ms = one.log.newest_timestamp_ms()
            if newest_ms - now_ms > LEAST_AHEAD_MS:
                topic, index = one.log.topic_partition
                ahead_ms[topic, str(index)] = newest_ms - now_ms
            if number % LOGS_AT_ONCE == 0:
                yield None
        furthest = nlargest(MAX_LOGS, ahead_ms, key=ahead_ms.__getitem__)
        text = "By how much a log's newest timestamp is ahead of the machine's clock."
        told = {labels: ahead_ms[labels] / 1000 for labels in furthest}
        yield gauges("log_timestamp_ahead_seconds", text, ["topic", "partition"], told)
