"""`millrace bench connections`: what a request costs the broker on one connection, and on a thousand at the same time.

Each request carries one record of 100 B, acks=all, one in flight on each connection: with one connection the broker
handles one request at a time, with a thousand all that have come. The ratio is the processor time of a request on the
thousand over that on the one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace_benchmarks import raw
from millrace_benchmarks.figures import Figure, Samples, interleave
from millrace_benchmarks.payloads import text
from millrace_benchmarks.subjects import Peer, Subject, apache_kafka, millrace, pinned

PEERS = (Peer.KAFKA, Peer.KAFKA_3_9)
TOPIC = "connections"
VALUE_BYTES = 100
COUNTS = (1, 1000)
REQUESTS = 40_000
ROUNDS = 3
GOAL = 1.5


def run(peer: Peer | None = None) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory, millrace(Path(directory)) as ours:
        figures = _figures(ours, GOAL)
        if peer is not None:
            with apache_kafka(peer, Path(directory)) as theirs:
                figures += _figures(theirs, None)
    return figures


def _figures(subject: Subject, goal: float | None) -> list[Figure]:
    with Cluster(subject.bootstrap) as cluster:
        Admin(cluster).create_topic(TOPIC, 1)
    one, many = interleave(ROUNDS, *(_measure(subject, count) for count in COUNTS))
    return [
        Figure(
            name=f"{subject.name}: CPU a request on {COUNTS[1]:,} connections", value=many["cpu_us"], unit="µs",
            yardstick="on one connection", yardstick_value=one["cpu_us"], at_most=goal,
        ),
        Figure(
            name=f"{subject.name}: requests on {COUNTS[1]:,} connections", value=many["rate"], unit="requests/s",
            yardstick="on one connection", yardstick_value=one["rate"],
        ),
    ]  # fmt: skip


def _measure(subject: Subject, connections: int) -> Callable[[], Samples]:
    frame = raw.produce_frame(TOPIC, 0, text(VALUE_BYTES))

    def measure() -> Samples:
        with pinned():
            result = raw.produce(subject, TOPIC, [frame], requests=REQUESTS, connections=connections)
        return {"cpu_us": 1e6 * result.cpu_s / REQUESTS, "rate": REQUESTS / result.seconds}

    return measure
