"""`millrace bench failover`: how long partitions have no leader when theirs stops or dies.

    SIGTERM or SIGKILL ──► [its registration in ZooKeeper goes] ──► each other broker names other leaders for all
    partitions ──► a record with acks=all is taken

The registration of a killed broker goes when the controller notices that its process has ended; Apache Kafka's goes at
the end of its session. Clients ask the other brokers in turn, and rest for as long as the answers took.

The benchmark kills leaders of three brokers by SIGKILL, one kill after the other, and shows the median and the longest;
`bench replication` has the same of a stop by SIGTERM.

    --peer kafka    three brokers of Apache Kafka 3.9 beside them, under the same ZooKeeper (`cluster`)
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from millrace.client.cluster import Cluster
from millrace.client.sync_producer import SyncProducer
from millrace.errors import ClientError, MillraceError
from millrace.leader_states import NO_LEADER
from millrace.records.record import NewRecord
from millrace_benchmarks.cluster import TIMEOUT_S, ClusterSubject, kafka_cluster, millrace_cluster
from millrace_benchmarks.harness import Figure, Samples, beside_goal
from millrace_benchmarks.subjects import Peer
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper

PAUSE_S = 0.005
PEERS = (Peer.KAFKA, Peer.KAFKA_3_9)


class Kills(NamedTuple):
    """How many partitions a broker leads, how often it is killed, and the goals in seconds."""

    partitions: int
    rounds: int
    median_s: float
    longest_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverEffort:
    """Says how many leaders the benchmark kills, and the timeout of the brokers' sessions with ZooKeeper."""

    kills: tuple[Kills, ...] = (Kills(90, 20, 1.0, 2.0), Kills(3000, 5, 2.0, 2.0))
    session_timeout_ms: int = 6000


FULL = FailoverEffort()


def run(place: Path, peer: Peer | None = None, effort: FailoverEffort = FULL) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    with ExitStack() as stack:
        zookeeper = stack.enter_context(EmbeddedZooKeeper(place / "zookeeper")).address
        starts = (millrace_cluster,) if peer is None else (millrace_cluster, kafka_cluster)
        subjects = [stack.enter_context(start(place, zookeeper, effort.session_timeout_ms)) for start in starts]
        return [figure for kills in effort.kills for figure in _figures(subjects, kills)]


def _figures(subjects: list[ClusterSubject], kills: Kills) -> Iterator[Figure]:
    topic = f"failover-{kills.partitions}"
    name = f"{kills.partitions:,} partitions, the leader dies: until others lead"
    for subject in subjects:
        subject.create_topic(topic, kills.partitions)
        seconds = [fail_over(subject, topic, signal.SIGKILL)["after the signal"] for _ in range(kills.rounds)]
        found = (f"median of {kills.rounds}", statistics.median(seconds)), ("the longest", max(seconds))
        for (which, value), goal_s in zip(found, kills[2:], strict=True):
            if subject is subjects[0]:
                yield beside_goal(f"{name}, {which}", value, "s", goal_s)
            else:
                yield Figure(name=f"· {subject.name}, {which}", value=value, unit="s")


def fail_over(subject: ClusterSubject, topic: str, number: signal.Signals) -> Samples:
    """Ends the leader of a topic's first partition, and returns the seconds until others lead all that it led.

    `after the signal` has the seconds since the signal, `after the session` those since the registration was gone.
    At the end the broker is started again and back in sync.
    """
    leader = subject.leader(topic)
    broker = subject.brokers[leader]
    with ExitStack() as stack:
        others = [
            stack.enter_context(Cluster(other.bootstrap, timeout_s=TIMEOUT_S))
            for other_id, other in subject.brokers.items()
            if other_id != leader
        ]
        for other in others:
            other.metadata([topic])
        started = time.perf_counter()
        os.kill(broker.pid, number)
        session_ended = _await_session_end(subject, leader) if number == signal.SIGKILL else started
        for other in others:
            _await_moved(other, topic, leader)
        SyncProducer(others[0]).send(topic, 0, [NewRecord(b"served")])
        ended = time.perf_counter()
    broker.stop()
    broker.start()
    subject.await_in_sync(topic)
    return {"after the signal": ended - started, "after the session": ended - session_ended}


def _await_session_end(subject: ClusterSubject, broker_id: int) -> float:
    while subject.is_registered(broker_id):
        time.sleep(PAUSE_S)
    return time.perf_counter()


def _await_moved(other: Cluster, topic: str, former: int) -> None:
    """Waits until a broker names a leader for every partition that is not the former one."""
    deadline = time.perf_counter() + TIMEOUT_S
    while (asked := time.perf_counter()) < deadline:
        with suppress(MillraceError):
            found = other.metadata([topic]).topic(topic).partitions
            if all(one.leader not in (former, NO_LEADER) for one in found.values()):
                return
        time.sleep(max(PAUSE_S, time.perf_counter() - asked))
    raise ClientError(f"{topic} is still led by broker {former}, or by none")
