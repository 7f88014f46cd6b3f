"""`millrace bench partitions`: what a request costs the broker with one partition, and spread over ten thousand.

Each request carries one record of 100 B to the next partition, acks=all, on one connection with 16 in flight. The ratio
is the processor time of a request with many partitions over that with one, without the cost of the logs' first files.
Another figure is how long it takes to create the partitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.errors import ClientError
from millrace_benchmarks import raw
from millrace_benchmarks.harness import Figure, Samples, interleave
from millrace_benchmarks.payloads import text
from millrace_benchmarks.subjects import Peer, Subject, subjects

PEERS = (Peer.KAFKA, Peer.KAFKA_3_9)
VALUE_BYTES = 100
COUNTS = (1, 10_000)
IN_FLIGHT = 16
REQUESTS = 40_000
ROUNDS = 3
GOALS = (1.5, None)
CREATED_AT_ONCE = 5_000  # Apache Kafka refuses a request that would write more than 10,000 records of metadata
TIMEOUT_S = 300.0


def run(place: Path, peer: Peer | None = None) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    with subjects(place, peer) as brokers:
        return [figure for broker, goal in zip(brokers, GOALS, strict=False) for figure in _figures(broker, goal)]


def _figures(subject: Subject, goal: float | None) -> list[Figure]:
    seconds = [_create(subject, count) for count in COUNTS]
    one, many = interleave(ROUNDS, *(_measure(subject, count) for count in COUNTS))
    return [
        Figure(name=f"{subject.name}: {COUNTS[1]:,} partitions created", value=seconds[1], unit="s"),
        Figure(
            name=f"{subject.name}: CPU a request over {COUNTS[1]:,} partitions", value=many["cpu"], unit="µs",
            yardstick="over one partition", yardstick_value=one["cpu"], at_most=goal,
        ),
        Figure(
            name=f"{subject.name}: requests over {COUNTS[1]:,} partitions", value=many["rate"], unit="requests/s",
            yardstick="over one partition", yardstick_value=one["rate"],
        ),
        Figure(name=f"{subject.name}: memory", value=subject.resident_mebibytes, unit="MiB"),
    ]  # fmt: skip


def _topic(partitions: int) -> str:
    return f"partitions-{partitions}"


def _create(subject: Subject, partitions: int) -> float:
    started = time.perf_counter()
    with Cluster(subject.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        admin, created = Admin(cluster), min(partitions, CREATED_AT_ONCE)
        admin.create_topic(_topic(partitions), created)
        while created < partitions:
            created = min(partitions, created + CREATED_AT_ONCE)
            admin.create_partitions(_topic(partitions), created)
    seconds = time.perf_counter() - started
    _produce_first(subject, partitions)
    return seconds


@retry(retry=retry_if_exception_type(ClientError), stop=stop_after_delay(TIMEOUT_S), wait=wait_fixed(1), reraise=True)
def _produce_first(subject: Subject, partitions: int) -> None:
    """Produces a record to each partition; Apache Kafka answers NOT_LEADER_OR_FOLLOWER for a while at first."""
    raw.produce(subject, _topic(partitions), _frames(partitions), requests=partitions)


def _frames(partitions: int) -> list[bytes]:
    return raw.produce_frames(_topic(partitions), partitions, text(VALUE_BYTES))


def _measure(subject: Subject, partitions: int) -> Callable[[], Samples]:
    frames = _frames(partitions)
    return lambda: raw.produce(subject, _topic(partitions), frames, requests=REQUESTS, in_flight=IN_FLIGHT).samples
