"""`millrace bench latency`: one request in flight, from C by the bare protocol, and through librdkafka.

Each request carries one record of 100 B, acks=all. Beside a peer, rounds alternate and medians of the rounds are shown.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace_benchmarks import raw
from millrace_benchmarks.figures import Figure, Samples, interleave
from millrace_benchmarks.librdkafka import PRODUCER, Client
from millrace_benchmarks.payloads import text
from millrace_benchmarks.subjects import Peer, Subject, apache_kafka, millrace, pinned

PEERS = (Peer.KAFKA, Peer.KAFKA_3_9)
TOPIC = "latency"
VALUE_BYTES = 100
RAW_REQUESTS = 20_000
LIBRARY_REQUESTS = 5_000
WARM_UP_REQUESTS = 5_000
CONNECTING_REQUESTS = 10
ROUNDS = 5
SETTINGS = {"linger.ms": "0", "acks": "all", "log_level": "3"}
PERCENTILES = (("p50", 1 / 3), ("p99", None), ("p99.9", None))


def run(peer: Peer | None = None) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory, millrace(Path(directory)) as ours:
        _prepare(ours)
        if peer is None:
            return _figures(interleave(ROUNDS, _raw(ours)), "raw") + _figures(
                interleave(ROUNDS, _library(ours)), "librdkafka"
            )
        with apache_kafka(peer, Path(directory)) as theirs:
            _prepare(theirs)
            through_raw = interleave(ROUNDS, _raw(ours), _raw(theirs))
            through_library = interleave(ROUNDS, _library(ours), _library(theirs))
            return _figures(through_raw, "raw", theirs.name) + _figures(through_library, "librdkafka", theirs.name)


def _prepare(subject: Subject) -> None:
    with Cluster(subject.bootstrap) as cluster:
        Admin(cluster).create_topic(TOPIC, 1)
    frame = raw.produce_frame(TOPIC, 0, text(VALUE_BYTES))
    raw.produce(subject, TOPIC, [frame], requests=WARM_UP_REQUESTS)


def _figures(measured: list[Samples], how: str, peer: str = "") -> list[Figure]:
    others = measured[1] if len(measured) > 1 else {}
    return [
        Figure(
            name=f"{how}, one request in flight, {name}",
            value=measured[0][name],
            unit="µs",
            yardstick=peer,
            yardstick_value=others.get(name),
            at_most=goal if how == "raw" else None,
        )
        for name, goal in PERCENTILES
    ]


def _raw(subject: Subject) -> Callable[[], Samples]:
    frame = raw.produce_frame(TOPIC, 0, text(VALUE_BYTES))

    def measure() -> Samples:
        with pinned():
            result = raw.produce(subject, TOPIC, [frame], requests=RAW_REQUESTS)
        return {"p50": result.p50_us, "p99": result.p99_us, "p99.9": result.p999_us}

    return measure


def _library(subject: Subject) -> Callable[[], Samples]:
    settings = SETTINGS | {"bootstrap.servers": subject.bootstrap}

    def measure() -> Samples:
        with pinned(), Client(PRODUCER, settings, delivery_reports=True) as client:
            seconds = client.produce_one_by_one(TOPIC, text(VALUE_BYTES), LIBRARY_REQUESTS)[CONNECTING_REQUESTS:]
        cuts = statistics.quantiles(seconds, n=1000, method="inclusive")
        return {name: 1e6 * cuts[place] for name, place in (("p50", 499), ("p99", 989), ("p99.9", 998))}

    return measure
