"""`millrace bench replication`: three brokers on one machine, each partition with a replica on each of them.

    produce     librdkafka to one partition, acks=all; the processor time of all three brokers
    latency     one record at a time by the same client, at a modest rate
    catch-up    a follower that was away, beside the disk (`catch_up`)
    moves       how long partitions have no leader when their leader stops, and when it dies (`failover`)

    --peer kafka    three brokers of Apache Kafka 3.9 beside them, under the same ZooKeeper (`cluster`)

A write is answered when two more replicas have it, as all three are in sync. Both clusters run all the time, rounds
alternate, and medians of the rounds are shown. On a machine with few cores, the processor time for a GB says more than
the rate.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from millrace_benchmarks.catch_up import VALUE_BYTES, catch_up, disk_rates
from millrace_benchmarks.cluster import ClusterSubject, kafka_cluster, millrace_cluster
from millrace_benchmarks.failover import fail_over
from millrace_benchmarks.harness import GIGABYTE, MEGABYTE, Comparison, Figure, Samples, beside_goal, percentiles
from millrace_benchmarks.librdkafka import BULK_SETTINGS, PRODUCER, Client
from millrace_benchmarks.payloads import text
from millrace_benchmarks.subjects import Peer, pinned
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper

PEERS = (Peer.KAFKA, Peer.KAFKA_3_9)
PROMPT = {"acks": "all", "linger.ms": "0", "log_level": "3"}
DISTINCT_VALUES = 1000
LATENCY_BYTES = 100
CONNECTING_RECORDS = 10
BEHIND_BYTES = 10_000_000_000


class Moves(NamedTuple):
    """How many partitions move and how often, and the goals: seconds after SIGTERM, and after SIGKILL."""

    partitions: int
    rounds: int
    after_stop_s: float
    after_kill_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationEffort:
    """How often each figure is measured, and with how much.

    Attributes:
        rounds: How often a short measurement is repeated; the median is shown.
        loads: The size of a value, and how many are produced.
        latency_records: How many are produced one at a time.
        latency_interval_s: The least time from one of them to the next.
        behind_bytes: How much a follower copies that was away; None takes what the machine has room for, up to 10 GB.
        moves: How many partitions are led by the broker that stops and dies, and how often it does.
        session_timeout_ms: The timeout of the brokers' sessions with ZooKeeper.
    """

    rounds: int = 3
    loads: tuple[tuple[int, int], ...] = ((100, 1_000_000), (1024, 200_000))
    latency_records: int = 1000
    latency_interval_s: float = 0.01
    behind_bytes: int | None = None
    moves: tuple[Moves, ...] = (Moves(1, 3, 1.0, 1.0), Moves(3000, 1, 5.0, 2.0))
    session_timeout_ms: int = 6000


FULL = ReplicationEffort()


def run(place: Path, peer: Peer | None = None, effort: ReplicationEffort = FULL) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    with ExitStack() as stack:
        zookeeper = stack.enter_context(EmbeddedZooKeeper(place / "zookeeper")).address
        starts = (millrace_cluster,) if peer is None else (millrace_cluster, kafka_cluster)
        subjects = [stack.enter_context(start(place, zookeeper, effort.session_timeout_ms)) for start in starts]
        measure = _Measure(Comparison(subjects, effort.rounds, "replication"), effort, place)
        return [
            *(figure for size_bytes, count in effort.loads for figure in measure.produce(size_bytes, count)),
            *measure.latency(),
            *measure.catch_up(),
            *(figure for moves in effort.moves for figure in measure.moves(moves)),
        ]


class _Measure:
    """The figures of clusters."""

    def __init__(self, comparison: Comparison[ClusterSubject], effort: ReplicationEffort, place: Path) -> None:
        self._comparison = comparison
        self._effort = effort
        self._place = place

    def produce(self, size_bytes: int, count: int) -> Iterator[Figure]:
        values = text(size_bytes * DISTINCT_VALUES)
        measured = self._comparison.measure(lambda one, topic: _produce(one, topic, values, size_bytes, count))
        yield self._comparison.figure(f"produce, {size_bytes} B, acks=all", "records/s", "rate", measured, at_least=1.2)
        yield self._comparison.figure("· CPU of all brokers for a GB of values", "s", "cpu", measured, at_most=1.0)

    def latency(self) -> Iterator[Figure]:
        effort = self._effort
        topic = self._comparison.new_topic()
        for subject in self._comparison.subjects:
            subject.create_topic(topic)
        measured = self._comparison.measure(lambda subject, _: _latency(subject, topic, effort))
        name = f"{1 / effort.latency_interval_s:.0f} records/s, acks=all"
        yield self._comparison.figure(f"{name}, p50", "ms", "p50", measured)
        yield self._comparison.figure(f"{name}, p99", "ms", "p99", measured, at_most=1.0)

    def catch_up(self) -> Iterator[Figure]:
        size_bytes = self._effort.behind_bytes or _room_bytes(self._place)
        values = text(VALUE_BYTES * DISTINCT_VALUES)
        count = size_bytes // VALUE_BYTES
        measured = self._comparison.measure(
            lambda subject, topic: catch_up(subject, topic, BULK_SETTINGS, values, count), 1
        )
        disk = disk_rates(self._place, size_bytes)
        mine = measured[0]
        yield Figure(
            name=f"catch-up of {size_bytes / MEGABYTE:,.0f} MB", value=mine["rate"], unit="MB/s",
            yardstick="the disk, written and synced", yardstick_value=disk["synced"], at_least=0.5,
        )  # fmt: skip
        yield Figure(
            name="· the same", value=mine["rate"], unit="MB/s",
            yardstick="a copy of the leader's files, synced", yardstick_value=mine["file copy"], at_least=0.5,
        )  # fmt: skip
        for key, yardstick in (("written", "the disk, written"), ("direct", "the disk, past the page cache")):
            if key in disk:
                yield Figure(
                    name="· the same", value=mine["rate"], unit="MB/s",
                    yardstick=yardstick, yardstick_value=disk[key],
                )  # fmt: skip
        if self._comparison.peer:
            yield self._comparison.figure("· the same", "MB/s", "rate", measured)
        yield self._comparison.figure("· CPU of the leader for a GB", "s", "leader", measured)
        yield self._comparison.figure("· CPU of the follower for a GB", "s", "follower", measured)

    def moves(self, moves: Moves) -> Iterator[Figure]:
        topic = self._comparison.new_topic()
        for subject in self._comparison.subjects:
            subject.create_topic(topic, moves.partitions)
        stopped = self._comparison.measure(lambda subject, _: fail_over(subject, topic, signal.SIGTERM), moves.rounds)
        name = f"{moves.partitions:,} partitions, the leader"
        yield from self._moved(f"{name} stops", stopped, moves.after_stop_s)
        killed = self._comparison.measure(lambda subject, _: fail_over(subject, topic, signal.SIGKILL), moves.rounds)
        yield from self._moved(f"{name} dies", killed, moves.after_kill_s)
        yield self._comparison.figure("· of it after the registration's end", "s", "after the session", killed)

    def _moved(self, name: str, measured: list[Samples], goal_s: float) -> Iterator[Figure]:
        yield beside_goal(f"{name}: until others lead", measured[0]["after the signal"], "s", goal_s)
        if self._comparison.peer:
            yield self._comparison.figure("· the same", "s", "after the signal", measured)


def _produce(subject: ClusterSubject, topic: str, values: bytes, size_bytes: int, count: int) -> Samples:
    subject.create_topic(topic)
    with pinned(), Client(PRODUCER, BULK_SETTINGS | {"bootstrap.servers": subject.bootstrap}) as client:
        client.produce(topic, values, size_bytes, 1)
        cpu_s, started = subject.cpu_s, time.perf_counter()
        client.produce(topic, values, size_bytes, count)
        seconds, cpu_s = time.perf_counter() - started, subject.cpu_s - cpu_s
    return {"rate": count / seconds, "cpu": cpu_s / (size_bytes * count) * GIGABYTE}


def _latency(subject: ClusterSubject, topic: str, effort: ReplicationEffort) -> Samples:
    settings = PROMPT | {"bootstrap.servers": subject.bootstrap}
    with Client(PRODUCER, settings, delivery_reports=True) as client:
        client.produce_one_by_one(topic, text(LATENCY_BYTES), CONNECTING_RECORDS)
        seconds = client.produce_one_by_one(
            topic, text(LATENCY_BYTES), effort.latency_records, effort.latency_interval_s
        )
    return percentiles(seconds, 1000)


def _room_bytes(place: Path) -> int:
    """Returns the size of a topic whose three replicas take half of the free memory and disk at most; up to 10 GB."""
    room = min(psutil.virtual_memory().available, psutil.disk_usage(str(place)).free)
    return min(BEHIND_BYTES, room // 6)
