"""Finds partitions that their first replicas should lead again, as pure functions (auto.leader.rebalance.enable).

The first replicas of partitions are spread evenly over the brokers, and so are the leaders while first replicas lead.
After a failure other replicas lead. A broker is out of balance if others lead more than a percentage of the partitions
that it is the first replica of. Partitions that are being reassigned or deleted count, but are left as they are.
"""

from __future__ import annotations

from collections import defaultdict

from millrace_broker.controller.cluster_state import ClusterState
from millrace_broker.controller.elections import elect_preferred
from millrace_broker.storage import TopicPartition


def find_imbalance(cluster: ClusterState, most_percent: int) -> set[TopicPartition]:
    """Returns the partitions of brokers out of balance whose first replicas do not lead, and can."""
    preferred: dict[int, set[TopicPartition]] = defaultdict(set)
    led_by_others: dict[int, set[TopicPartition]] = defaultdict(set)
    for key, assignment in cluster.kept_partitions():
        state = cluster.leaders.get(key)
        if state is not None:
            first = assignment.replicas[0]
            preferred[first].add(key)
            if state.leader != first:
                led_by_others[first].add(key)
    return {
        key
        for first, keys in led_by_others.items()
        if 100 * len(keys) > most_percent * len(preferred[first])
        for key in keys
        if _can_change(cluster, key)
    }


def _can_change(cluster: ClusterState, key: TopicPartition) -> bool:
    assignment = cluster.topics[key.topic].assignments[key.partition]
    is_electable = elect_preferred(assignment, cluster.leaders[key], cluster.online(key)) is not None
    return is_electable and not assignment.is_reassigned
