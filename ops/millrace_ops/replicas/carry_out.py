"""Carries out a plan: begins its moves, waits for their end, finds those that failed, and has leaders elected.

The cluster holds the state of all moves, so nothing is lost if this process ends: another one finds the moves under
way, waits for them, and removes their throttle, the bytes a second that each broker sends and takes for them (KIP-73):

    topic    leader.replication.throttled.replicas     0:1,1:2    PARTITION:BROKER, the brokers that are copied from
             follower.replication.throttled.replicas   0:3,1:3    the brokers that copy
    broker   leader.replication.throttled.rate         1000000    bytes a second
             follower.replication.throttled.rate       1000000

Lists that name replicas belong to a move, and end with it. `*`, which an operator may have set for good, stays.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from millrace.client import Configs, ResourceKind
from millrace.client.answers import is_retriable
from millrace.client.replicas import ElectionResult, ElectionType, Reassignments, elect_leaders
from millrace_ops.replicas.cluster_state import by_broker, read_reassignments, read_replica_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from millrace.client import Cluster
    from millrace.client.metadata import Partition
    from millrace_ops.replicas.plan import Move, Plan

LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
LISTS = (LEADERS, FOLLOWERS)
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
EVERY_REPLICA = "*"


def throttled_replicas(moves: Iterable[Move]) -> dict[str, dict[str, str]]:
    """Returns, by topic, the values of Kafka's two properties that list throttled replicas, such as `0:1,0:2`."""
    lists: dict[str, dict[str, list[str]]] = {}
    for move in moves:
        topic, index = move.partition
        if move.adding:
            of_topic = lists.setdefault(topic, {LEADERS: [], FOLLOWERS: []})
            of_topic[LEADERS] += [f"{index}:{broker}" for broker in move.origin]
            of_topic[FOLLOWERS] += [f"{index}:{broker}" for broker in move.adding]
    return {topic: {name: ",".join(listed) for name, listed in names.items()} for topic, names in lists.items()}


def begin_throttle(cluster: Cluster, moves: Iterable[Move], rate: int, live_brokers: Iterable[int]) -> None:
    """Limits the copying of moved replicas to `rate` bytes a second on every live broker; raises BrokerError."""
    configs = Configs(cluster)
    for broker in live_brokers:
        configs.change(ResourceKind.BROKER, str(broker), dict.fromkeys(RATES, str(rate)))
    for topic, lists in throttled_replicas(moves).items():
        configs.change(ResourceKind.TOPIC, topic, lists)


def end_finished_throttles(cluster: Cluster) -> list[str]:
    """Ends the throttle of topics that no longer move, and the rates when nothing moves; returns those topics."""
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
    """Returns the topics whose throttle properties name replicas, from the values of these properties by topic."""
    return [
        topic for topic, lists in values.items() if any(one not in ("", None, EVERY_REPLICA) for one in lists.values())
    ]


POLL_INTERVAL_S = 0.5
PATIENCE_S = 120.0  # with brokers that are restarted
PARTITIONS_PER_REQUEST = 500
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of the moves of a plan: partitions and bytes that are done, and those of all moves."""

    partitions_done: int
    partitions: int
    copied_bytes: int
    total_bytes: int


def begin(cluster: Cluster, plan: Plan, throttle: int | None) -> dict[Partition, str]:
    """Sets the throttle and begins the moves that are not under way; returns why some were refused, by partition.

    Raises BrokerError.
    """
    if throttle is not None:
        begin_throttle(cluster, plan.moves, throttle, cluster.metadata([]).brokers)
    refused: dict[Partition, str] = {}
    moves = plan.to_begin
    for first in range(0, len(moves), PARTITIONS_PER_REQUEST):
        some = moves[first : first + PARTITIONS_PER_REQUEST]
        refused |= Reassignments(cluster).alter({move.partition: move.target for move in some})
    return refused


def await_end(cluster: Cluster, moves: Sequence[Move], tell: Callable[[Progress], None]) -> None:
    """Waits until none of the moves is under way, and tells the progress again and again.

    Raises a final error at once, a retriable one after two minutes.
    """
    while True:
        left = _patiently(lambda: read_reassignments(cluster)).keys() & {move.partition for move in moves}
        tell(_progress(cluster, moves, left))
        if not left:
            return
        time.sleep(POLL_INTERVAL_S)


def not_arrived(cluster: Cluster, moves: Sequence[Move]) -> list[Move]:
    """Returns the moves whose partitions still don't have their target replicas, once none is under way.

    Brokers hear of the end of a move a little later than the controller, so this waits for them a while.
    """
    deadline = time.monotonic() + cluster.timeout_s
    topics = sorted({move.partition[0] for move in moves})
    while True:
        metadata = _patiently(lambda: cluster.metadata(topics))
        replicas = {
            (topic.name, index): one.replicas
            for topic in metadata.topics.values()
            for index, one in topic.partitions.items()
        }
        left = [move for move in moves if set(replicas.get(move.partition, ())) != set(move.target)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(POLL_INTERVAL_S)


def elect_preferred(cluster: Cluster, moves: Sequence[Move]) -> list[ElectionResult]:
    """Has the first replica of each moved partition elected as its leader; returns the elections that failed."""
    if not moves:
        return []
    results = elect_leaders(cluster, ElectionType.PREFERRED, [move.partition for move in moves])
    return [one for one in results if not (one.is_elected or one.is_unneeded)]


def _progress(cluster: Cluster, moves: Sequence[Move], left: set[Partition]) -> Progress:
    unfinished = [move for move in moves if move.partition in left]
    sizes = read_replica_bytes(
        cluster, by_broker((broker, move.partition) for move in unfinished for broker in move.adding)
    )
    total = sum(move.copied_bytes for move in moves)
    missing = sum(
        max(move.size_bytes - sizes.get((broker, move.partition), 0), 0)
        for move in unfinished
        for broker in move.adding
    )
    return Progress(len(moves) - len(unfinished), len(moves), total - missing, total)


def _patiently(ask: Callable[[], Result]) -> Result:
    return Retrying(
        retry=retry_if_exception(is_retriable),
        stop=stop_after_delay(PATIENCE_S),
        wait=wait_fixed(POLL_INTERVAL_S),
        reraise=True,
    )(ask)
