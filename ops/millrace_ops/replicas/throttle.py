"""The throttle of moves: how many bytes a second each broker sends and takes for them (KIP-73).

    topic    leader.replication.throttled.replicas     0:1,1:2    PARTITION:BROKER, the brokers that are copied from
             follower.replication.throttled.replicas   0:3,1:3    the brokers that copy
    broker   leader.replication.throttled.rate         1000000    bytes a second
             follower.replication.throttled.rate       1000000

Lists that name replicas belong to a move, and end with it. `*`, which an operator may have set for good, stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from millrace.client import Configs, ResourceKind
from millrace_ops.replicas.cluster_state import read_reassignments

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace_ops.replicas.plan import Move

LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
LISTS = (LEADERS, FOLLOWERS)
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
EVERY_REPLICA = "*"


def throttled_replicas(moves: Iterable[Move]) -> dict[str, dict[str, str]]:
    """Returns, by topic, the lists of throttled replicas."""
    lists: dict[str, dict[str, list[str]]] = {}
    for move in moves:
        topic, index = move.partition
        if move.adding:
            of_topic = lists.setdefault(topic, {LEADERS: [], FOLLOWERS: []})
            of_topic[LEADERS] += [f"{index}:{broker}" for broker in move.origin]
            of_topic[FOLLOWERS] += [f"{index}:{broker}" for broker in move.adding]
    return {topic: {name: ",".join(listed) for name, listed in names.items()} for topic, names in lists.items()}


def begin_throttle(cluster: Cluster, moves: Iterable[Move], rate: int, live_brokers: Iterable[int]) -> None:
    """Throttles moves to `rate` bytes a second on every live broker; raises BrokerError."""
    configs = Configs(cluster)
    for broker in live_brokers:
        configs.change(ResourceKind.BROKER, str(broker), dict.fromkeys(RATES, str(rate)))
    for topic, lists in throttled_replicas(moves).items():
        configs.change(ResourceKind.TOPIC, topic, lists)


def end_finished_throttles(cluster: Cluster) -> list[str]:
    """Removes the throttle of topics that no longer move, and the rates when nothing moves; returns the topics."""
    configs, metadata = Configs(cluster), cluster.metadata()
    moving = {topic for topic, _ in read_reassignments(cluster)}
    described = configs.describe_topics(sorted(metadata.topics), LISTS)
    values = {topic: {name: one.value for name, one in found.items()} for topic, found in described.items()}
    finished = [topic for topic in throttled_topics(values) if topic not in moving]
    for topic in finished:
        configs.change(ResourceKind.TOPIC, topic, {}, LISTS)
    if finished and not moving:
        for broker in metadata.brokers:
            configs.change(ResourceKind.BROKER, str(broker), {}, RATES)
    return finished


def throttled_topics(values: Mapping[str, Mapping[str, str | None]]) -> list[str]:
    """Returns the topics of which a list names replicas, from the values of the lists by topic."""
    return [
        topic for topic, lists in values.items() if any(one not in ("", None, EVERY_REPLICA) for one in lists.values())
    ]
