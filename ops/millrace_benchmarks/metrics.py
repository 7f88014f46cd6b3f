"""`millrace bench metrics`: what it costs to count requests, and to tell Prometheus of ten thousand partitions.

counting    the processor time of the broker's counting of a request that came alone, beside that of the whole request
scrape      GET /metrics over 10,000 partitions with 2,000 committed offsets, without other load
delay       a producer with one request in flight, while /metrics is asked for again and again; beside it alone
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from millrace.client.cluster import Cluster
from millrace.client.groups import GroupOffset, Groups
from millrace.wire.api import ApiKey
from millrace_benchmarks.harness import Figure, Samples, beside_goal, interleave
from millrace_benchmarks.requests_beside import VALUE_BYTES, requests_alone, requests_beside
from millrace_benchmarks.subjects import Subject, millrace
from millrace_broker.metrics import RequestMetrics, RequestTimes

TOPIC = "metrics"
PARTITIONS = 10_000
OFFSETS = 2_000
COUNTED = 200_000
SCRAPES = 10
ROUNDS = 3
COUNTING_GOAL = 0.02
SCRAPE_GOAL_MS = 200
DELAY_GOAL_MS = 10
TIMEOUT_S = 300.0


def run(place: Path) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    with millrace(place) as broker:
        _fill(broker)
        scrapes = [_scrapes(broker, names) for names in ("millrace", "kafka")]
        alone, beside = interleave(
            ROUNDS,
            lambda: requests_alone(broker, TOPIC),
            lambda: requests_beside(broker, TOPIC, lambda: _scrape(broker, "millrace")),
        )
    return [
        Figure(
            name="counting a request", value=_counting_us(), unit="µs",
            yardstick="CPU a request that comes alone", yardstick_value=alone["cpu"], at_most=COUNTING_GOAL,
        ),
        *(
            beside_goal(f"a scrape, {names}", scraped["ms"], "ms", SCRAPE_GOAL_MS)
            for names, scraped in zip(("own names", "Kafka's names"), scrapes, strict=True)
        ),
        Figure(
            name="the broker's CPU a scrape, own names", value=scrapes[0]["cpu_ms"], unit="ms",
            yardstick="Kafka's names", yardstick_value=scrapes[1]["cpu_ms"],
        ),
        beside_goal("delay by scrapes, 99.9 %", beside["p999_ms"] - alone["p999_ms"], "ms", DELAY_GOAL_MS),
        Figure(
            name="a request beside scrapes, median", value=beside["p50_ms"], unit="ms",
            yardstick="alone", yardstick_value=alone["p50_ms"],
        ),
    ]  # fmt: skip


def _fill(broker: Subject) -> None:
    broker.create_topic(TOPIC, PARTITIONS)
    with Cluster(broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        Groups(cluster).commit("readers", {(TOPIC, index): GroupOffset(0, "") for index in range(OFFSETS)})


def _scrapes(broker: Subject, names: str) -> Samples:
    def measure() -> tuple[float, float]:
        started, cpu_s = time.perf_counter(), broker.cpu_s
        _scrape(broker, names)
        return time.perf_counter() - started, broker.cpu_s - cpu_s

    walls, cpus = zip(*(measure() for _ in range(SCRAPES)), strict=True)
    return {"ms": 1000 * statistics.median(walls), "cpu_ms": 1000 * statistics.median(cpus)}


def _scrape(broker: Subject, names: str) -> None:
    broker.ask_admin(f"metrics?names={names}")


def _counting_us() -> float:
    metrics, times = RequestMetrics(), RequestTimes(1.0, 1.00001, 1.00003)
    started = time.process_time()
    for _ in range(COUNTED):
        count = metrics.handled(ApiKey.PRODUCE, 1, VALUE_BYTES, 0.00001, 0.00002)
        count.sent(1, VALUE_BYTES, times, times.handled, 1.00004)
    return 1e6 * (time.process_time() - started) / COUNTED
