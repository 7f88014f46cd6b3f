"""`millrace bench console`: how long the console's pages take at ten thousand topics, and what they cost others.

first page    the very first one, which starts the console's process and waits for its first look at the cluster
pages         each page again and again, without other load; the median of each page
delay         a producer with one request in flight, while pages are asked for all the time; beside it alone
"""

from __future__ import annotations

import json
import statistics
import time
import uuid
from pathlib import Path

from millrace.client.cluster import Cluster
from millrace.client.groups import GroupOffset, Groups
from millrace.client.sync_producer import SyncProducer
from millrace.records.record import NewRecord
from millrace.uuids import encode_id
from millrace_benchmarks.harness import Figure, beside_goal, interleave
from millrace_benchmarks.payloads import text
from millrace_benchmarks.requests_beside import VALUE_BYTES, requests_alone, requests_beside
from millrace_benchmarks.subjects import Subject, millrace

TOPICS = 10_000
WRITTEN_TOPICS = 200
RECORDS = 100
GROUPS = 200
TOPIC = "topic-00000"
TIMES = 15
ROUNDS = 3
PAGE_GOAL_MS = 300
DELAY_GOAL_MS = 10
TIMEOUT_S = 300.0
PAGES = {
    "brokers": "",
    "topics": "topics",
    "topics, by size": "topics?sort=size&order=desc",
    "topics, by rate": "topics?sort=rate&order=desc",
    "topics, the last page": "topics?page=200",
    "topics, filtered": "topics?filter=99",
    "a topic": "topic?name=topic-00001",
    "messages": "messages?topic=topic-00001&limit=100",
    "messages, searched": "messages?topic=topic-00001&search=nowhere",
    "groups": "groups",
    "a group": "group?id=group-001",
    "transactions": "transactions",
    "jobs": "jobs",
}


def run(place: Path) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    write_topics(place / "Millrace")
    with millrace(place, properties={"admin.console": "read-only"}) as broker:
        _fill(broker)
        first_ms = _page_ms(broker, "topics")
        _await_sizes(broker)
        pages = {name: _median_ms(broker, path) for name, path in PAGES.items()}
        alone, beside = interleave(
            ROUNDS,
            lambda: requests_alone(broker, TOPIC),
            lambda: requests_beside(broker, TOPIC, lambda: _ask_for_all_pages(broker)),
        )
    return [
        Figure(name="the first page, with the start of the process", value=first_ms, unit="ms"),
        *(beside_goal(name, page_ms, "ms", PAGE_GOAL_MS) for name, page_ms in pages.items()),
        beside_goal("delay by pages, 99.9 %", beside["p999_ms"] - alone["p999_ms"], "ms", DELAY_GOAL_MS),
        Figure(
            name="a request beside pages, median", value=beside["p50_ms"], unit="ms",
            yardstick="alone", yardstick_value=alone["p50_ms"],
        ),
    ]  # fmt: skip


def write_topics(data_dir: Path) -> None:
    """Writes the metadata of a standalone broker that has TOPICS topics: to create them takes minutes."""
    data_dir.mkdir()
    topics = {
        f"topic-{number:05}": {"topic_id": uuid.uuid4().hex, "partitions": 1, "config": {}} for number in range(TOPICS)
    }
    document = {"version": 1, "cluster_id": encode_id(uuid.uuid4()), "topics": topics}
    (data_dir / "metadata.json").write_text(json.dumps(document), encoding="utf-8")


def _fill(broker: Subject) -> None:
    records = [NewRecord(text(VALUE_BYTES)) for _ in range(RECORDS)]
    with Cluster(broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        producer, groups = SyncProducer(cluster), Groups(cluster)
        for number in range(WRITTEN_TOPICS):
            producer.send(f"topic-{number:05}", 0, records)
        for number in range(GROUPS):
            offsets = {(f"topic-{topic:05}", 0): GroupOffset(topic % RECORDS, "") for topic in range(10)}
            groups.commit(f"group-{number:03}", offsets)


def _page_ms(broker: Subject, path: str) -> float:
    started = time.perf_counter()
    _ask(broker, path)
    return 1000 * (time.perf_counter() - started)


def _median_ms(broker: Subject, path: str) -> float:
    return statistics.median(_page_ms(broker, path) for _ in range(TIMES))


def _ask(broker: Subject, path: str) -> bytes:
    return broker.ask_admin(f"console/{path}")


def _await_sizes(broker: Subject) -> None:
    """Waits until the overview has the bytes of topics, so that pages are measured with all that they show."""
    while b"KiB" not in _ask(broker, PAGES["topics, by size"]):
        time.sleep(0.1)


def _ask_for_all_pages(broker: Subject) -> None:
    for path in PAGES.values():
        _ask(broker, path)
