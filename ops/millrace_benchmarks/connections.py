"""`millrace bench connections`: what a request costs the broker on one connection, and on a thousand at the same time.

Each request carries one record of 100 B, acks=all, one in flight on each connection: with one connection the broker
handles one request at a time, with a thousand all that have come. The ratio is the processor time of a request on the
thousand over that on the one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from millrace_benchmarks import raw
from millrace_benchmarks.harness import Figure, Samples, interleave
from millrace_benchmarks.payloads import text
from millrace_benchmarks.subjects import Peer, Subject, subjects

PEERS = (Peer.KAFKA, Peer.KAFKA_3_9)
TOPIC = "connections"
VALUE_BYTES = 100
COUNTS = (1, 1000)
REQUESTS = 40_000
ROUNDS = 3
GOALS = (1.5, None)


def run(place: Path, peer: Peer | None = None) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    with subjects(place, peer) as brokers:
        return [figure for broker, goal in zip(brokers, GOALS, strict=False) for figure in _figures(broker, goal)]


def _figures(subject: Subject, goal: float | None) -> list[Figure]:
    subject.create_topic(TOPIC)
    one, many = interleave(ROUNDS, *(_measure(subject, count) for count in COUNTS))
    return [
        Figure(
            name=f"{subject.name}: CPU a request on {COUNTS[1]:,} connections", value=many["cpu"], unit="µs",
            yardstick="on one connection", yardstick_value=one["cpu"], at_most=goal,
        ),
        Figure(
            name=f"{subject.name}: requests on {COUNTS[1]:,} connections", value=many["rate"], unit="requests/s",
            yardstick="on one connection", yardstick_value=one["rate"],
        ),
    ]  # fmt: skip


def _measure(subject: Subject, connections: int) -> Callable[[], Samples]:
    frame = raw.produce_frame(TOPIC, 0, text(VALUE_BYTES))
    return lambda: raw.produce(subject, TOPIC, [frame], requests=REQUESTS, connections=connections).samples
