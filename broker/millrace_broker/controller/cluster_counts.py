"""Counts what the cluster has and lacks, for the metrics of the controller.

It may run on any thread while the controller changes the cluster: it copies each collection at once, and looks up what
is in it. What changes meanwhile is counted as it was or as it is.
"""

from __future__ import annotations

from typing import NamedTuple

from millrace_broker.controller.cluster_state import ClusterState
from millrace_broker.storage import TopicPartition


class ClusterCounts(NamedTuple):
    """Live brokers, and the topics and partitions that are not being deleted.

    `offline_partitions` have no leader that can serve them; `imbalanced_partitions` are not led by their first replica.
    """

    brokers: int
    topics: int
    partitions: int
    offline_partitions: int
    imbalanced_partitions: int


def count_cluster(cluster: ClusterState) -> ClusterCounts:
    """Returns the counts of a cluster."""
    kept = [(name, tuple(topic.assignments)) for name, topic in tuple(cluster.topics.items())]
    kept = [(name, assignments) for name, assignments in kept if name not in cluster.deleting]
    offline = imbalanced = 0
    for name, assignments in kept:
        for index, assignment in enumerate(assignments):
            key = TopicPartition(name, index)
            state = cluster.leaders.get(key)
            is_led = state is not None and _serves(cluster, state.leader, key)
            offline += not is_led
            imbalanced += state is None or state.leader != assignment.replicas[0]
    partitions = sum(len(assignments) for _, assignments in kept)
    return ClusterCounts(len(cluster.brokers), len(kept), partitions, offline, imbalanced)


def _serves(cluster: ClusterState, broker: int, key: TopicPartition) -> bool:
    return broker in cluster.brokers and key not in cluster.failed_replicas.get(broker, ())
