"""`millrace bench latency`: one request in flight, from C by the bare protocol, and through librdkafka.

Each request carries one record of 100 B, acks=all. Beside a peer, rounds alternate and medians of the rounds are shown.
"""

from __future__ import annotations

from pathlib import Path

from millrace_benchmarks import raw
from millrace_benchmarks.harness import Comparison, Figure, Samples, percentiles
from millrace_benchmarks.librdkafka import PRODUCER, Client
from millrace_benchmarks.payloads import text
from millrace_benchmarks.subjects import Peer, Subject, pinned, subjects

PEERS = (Peer.KAFKA, Peer.KAFKA_3_9)
TOPIC = "latency"
VALUE_BYTES = 100
RAW_REQUESTS = 20_000
LIBRARY_REQUESTS = 5_000
WARM_UP_REQUESTS = 5_000
CONNECTING_REQUESTS = 10
ROUNDS = 5
SETTINGS = {"linger.ms": "0", "acks": "all", "log_level": "3"}
GOALS = {("raw", "p50"): 1 / 3}


def run(place: Path, peer: Peer | None = None) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    with subjects(place, peer) as brokers:
        for broker in brokers:
            _prepare(broker)
        comparison = Comparison(brokers, ROUNDS, TOPIC)
        ways = (("raw", _raw), ("librdkafka", _library))
        return [figure for how, measure in ways for figure in _figures(comparison, how, comparison.measure(measure))]


def _prepare(subject: Subject) -> None:
    subject.create_topic(TOPIC)
    frame = raw.produce_frame(TOPIC, 0, text(VALUE_BYTES))
    raw.produce(subject, TOPIC, [frame], requests=WARM_UP_REQUESTS)


def _figures(comparison: Comparison[Subject], how: str, measured: list[Samples]) -> list[Figure]:
    return [
        comparison.figure(f"{how}, one request in flight, {name}", "µs", name, measured, at_most=GOALS.get((how, name)))
        for name in measured[0]
    ]


def _raw(subject: Subject, _: str) -> Samples:
    frame = raw.produce_frame(TOPIC, 0, text(VALUE_BYTES))
    result = raw.produce(subject, TOPIC, [frame], requests=RAW_REQUESTS)
    return {"p50": result.p50_us, "p99": result.p99_us, "p99.9": result.p999_us}


def _library(subject: Subject, _: str) -> Samples:
    with pinned(), Client(PRODUCER, SETTINGS | subject.client_settings, delivery_reports=True) as client:
        seconds = client.produce_one_by_one(TOPIC, text(VALUE_BYTES), LIBRARY_REQUESTS)[CONNECTING_REQUESTS:]
    return percentiles(seconds, 1e6)
