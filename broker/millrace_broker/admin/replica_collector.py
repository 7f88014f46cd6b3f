"""Collects what Prometheus is told of replicas and of the controller; read when it asks, on any thread.

The names are those of Apache Kafka's metrics, as docs/metrics.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from millrace_broker.handlers.api import Services
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from millrace_broker.controller.controller import Controller  # it needs ZooKeeper's client


class ReplicaCollector(Collector):
    """The metrics of the partitions that a broker leads and follows."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def collect(self) -> Iterable[Metric]:
        """Yields all metric families."""
        led, followed = tuple(self._replicas.partitions.values()), tuple(self._replicas.followed.values())
        yield _gauge("leader_count", "Partitions that this broker leads.", len(led))
        yield _gauge("partition_count", "Partitions that this broker leads or follows.", len(led) + len(followed))
        yield _gauge("offline_replica_count", "Replicas whose logs can't be used.", len(self._replicas.offline))
        is_under = [one.in_sync is not None and one.in_sync.is_under_replicated for one in led]
        yield _gauge("under_replicated_partitions", "Led partitions that lack a replica in sync.", sum(is_under))
        spare = [_spare_replicas(one) for one in led]
        text = "Led partitions with fewer replicas in sync than min.insync.replicas asks for."
        yield _gauge("under_min_isr_partition_count", text, sum(each < 0 for each in spare))
        text = "Led partitions that are under their min ISR with one replica less."
        yield _gauge("at_min_isr_partition_count", text, sum(each == 0 for each in spare))
        text = "Committed records that the replica lacks which lags most of those that this broker follows with."
        yield _gauge("replica_fetcher_max_lag", text, max((one.lag for one in followed), default=0))
        text = "Data directories that have failed."
        yield _gauge("offline_log_directory_count", text, self._replicas.offline_dir_count)
        counts = self._replicas.isr_counts
        yield _counter("isr_shrinks", "Replicas in sync that this broker had leave.", counts.shrinks)
        yield _counter("isr_expands", "Replicas that this broker had join those in sync.", counts.expands)
        text = "Changes of the replicas in sync that the controller has refused to this broker."
        yield _counter("failed_isr_updates", text, counts.failed)


class ControllerCollector(Collector):
    """The metrics of the controller; all gauges are 0 where another broker has the role."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def collect(self) -> Iterable[Metric]:
        """Yields all metric families."""
        counts = self._controller.cluster_counts()
        brokers, topics, partitions, offline, imbalanced = counts or (0, 0, 0, 0, 0)
        yield _gauge("active_controller_count", "1 where this broker is the controller.", counts is not None)
        yield _gauge("active_broker_count", "Brokers that are registered.", brokers)
        yield _gauge("global_topic_count", "Topics of the cluster.", topics)
        yield _gauge("global_partition_count", "Partitions of the cluster.", partitions)
        yield _gauge("offline_partitions_count", "Partitions without a leader.", offline)
        text = "Partitions that another replica leads than their first."
        yield _gauge("preferred_replica_imbalance_count", text, imbalanced)
        elections = self._controller.elections
        yield _counter("leader_elections", "Leaders that took over from others.", elections.elected)
        text = "Leaders that may lack acknowledged records."
        yield _counter("unclean_leader_elections", text, elections.unclean)
        yield _counter("leader_election_seconds", "Time that these elections took.", elections.seconds)


def replica_collectors(services: Services) -> tuple[Collector, ...]:
    """Returns the collectors of the replicas, and of the controller in a cluster."""
    replicas = ReplicaCollector(services.replicas)
    return (replicas,) if services.controller is None else (replicas, ControllerCollector(services.controller))


def _spare_replicas(partition: Partition) -> int:
    """Returns how many replicas in sync a partition has above its effective min ISR; negative where they are too few.

    The only replica of a partition is all that its min ISR asks for.
    """
    in_sync = partition.in_sync
    return 0 if in_sync is None else len(in_sync.committed) - in_sync.min_isr


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"millrace_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"millrace_{name}", text, value=value)
