"""`millrace bench transactions`: commits, and what idempotence and transactions cost over plain produce.

librdkafka, driven at C's speed, sends records of 100 B, acks=all. The latency of a commit is that of the commit alone:
its one record is acknowledged before. Costs are ratios to plain produce to the same broker, in turn with it, five
requests in flight; bare requests from C show the broker's part of them, as librdkafka has its own costs. librdkafka's
flush looks only every 10 ms whether all is acknowledged, unless it has deliveries to report: so it reports them, as to
an application. Beside a peer, rounds alternate and medians of the rounds are shown.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace_benchmarks import raw
from millrace_benchmarks.figures import Figure, Samples, interleave
from millrace_benchmarks.librdkafka import BULK_SETTINGS, PRODUCER, Client
from millrace_benchmarks.payloads import text
from millrace_benchmarks.subjects import Peer, Subject, apache_kafka, millrace, pinned

PEERS = (Peer.KAFKA, Peer.KAFKA_3_9)
VALUE_BYTES = 100
VALUES = text(VALUE_BYTES * 1000)
PLAIN = BULK_SETTINGS | {"max.in.flight.requests.per.connection": "5"}
IDEMPOTENT = PLAIN | {"enable.idempotence": "true"}
PROMPT = {"linger.ms": "0"}
PRODUCERS = 10
RECORDS_IN_ONE = 1000


class RawLoad(NamedTuple):
    """Bare requests; idempotent clients have five in flight."""

    name: str
    records: int
    in_flight: int
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How often each figure is measured, and with how many records."""

    rounds: int = 3
    warm_up_commits: int = 20
    commits: int = 300
    commits_of_ten: int = 100
    large_commits: int = 150
    transactions: int = 10
    records: int = 300_000
    raw_loads: tuple[RawLoad, ...] = (
        RawLoad("1-record requests, 5 in flight", 1, 5, 40_000),
        RawLoad("1-record requests, 64 in flight", 1, 64, 60_000),
        RawLoad("16 KB batches, 5 in flight", 150, 5, 8_000),
    )


FULL = Effort()


def run(peer: Peer | None = None, effort: Effort = FULL) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory, millrace(Path(directory)) as ours:
        if peer is None:
            return _figures([ours], effort)
        with apache_kafka(peer, Path(directory)) as theirs:
            return _figures([ours, theirs], effort)


def _figures(subjects: list[Subject], effort: Effort) -> list[Figure]:
    names = (f"transactions-{number}" for number in itertools.count())

    def measured(measure: Callable[[Subject, str, Effort], Samples]) -> list[Samples]:
        return interleave(
            effort.rounds, *((lambda subject=subject: measure(subject, next(names), effort)) for subject in subjects)
        )

    peer = subjects[1].name if len(subjects) > 1 else ""
    return [
        *_beside("one producer", measured(_of_one), peer),
        *_beside("ten producers", measured(_of_ten), peer),
        *_beside("1,000 records in each", measured(_large), peer),
        *(figure for subject in subjects for figure in _raw_costs(subject, names, effort)),
        *(figure for subject in subjects for figure in _costs(subject, names, effort)),
    ]


GOALS = {"commit p50": (None, 0.5), "records": (1.0, None)}
UNITS = {"commit p50": "ms", "commit p99": "ms", "commits": "commits/s", "records": "records/s"}
UNITS |= {"broker CPU a commit": "ms"}


def _beside(load: str, measured: list[Samples], peer: str) -> Iterator[Figure]:
    others = measured[1] if len(measured) > 1 else {}
    for name, value in measured[0].items():
        at_least, at_most = GOALS.get(name, (None, None))
        yield Figure(
            name=f"{load}, {name}", value=value, unit=UNITS[name], yardstick=peer, yardstick_value=others.get(name),
            at_least=at_least, at_most=at_most,
        )  # fmt: skip


def _of_one(subject: Subject, name: str, effort: Effort) -> Samples:
    """Measures transactions of one record, one after the other."""
    _create(subject, name)
    with pinned(), _transactional(subject, name, PROMPT) as client:
        _commits(client, name, effort.warm_up_commits)
        cpu_s, started = subject.cpu_s, time.perf_counter()
        seconds = _commits(client, name, effort.commits)
        rate, cpu_s = effort.commits / (time.perf_counter() - started), subject.cpu_s - cpu_s
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    commits_ms = {"commit p50": 1000 * cuts[49], "commit p99": 1000 * cuts[98]}
    return commits_ms | {"commits": rate, "broker CPU a commit": 1000 * cpu_s / effort.commits}


def _of_ten(subject: Subject, name: str, effort: Effort) -> Samples:
    """Measures the same by ten producers at the same time, each to its own topic."""
    topics = [f"{name}-{number}" for number in range(PRODUCERS)]
    for topic in topics:
        _create(subject, topic)
    clients = [_transactional(subject, topic, PROMPT) for topic in topics]
    with pinned(), ThreadPoolExecutor(PRODUCERS) as threads:
        list(threads.map(_commits, clients, topics, itertools.repeat(effort.warm_up_commits)))
        started = time.perf_counter()
        list(threads.map(_commits, clients, topics, itertools.repeat(effort.commits_of_ten)))
        seconds = time.perf_counter() - started
    for client in clients:
        client.close()
    return {"commits": PRODUCERS * effort.commits_of_ten / seconds}


def _large(subject: Subject, name: str, effort: Effort) -> Samples:
    """Measures transactions of a thousand records."""
    _create(subject, name)
    with pinned(), _transactional(subject, name, PROMPT) as client:
        _commits(client, name, effort.warm_up_commits, RECORDS_IN_ONE)
        started = time.perf_counter()
        _commits(client, name, effort.large_commits, RECORDS_IN_ONE)
        return {"records": RECORDS_IN_ONE * effort.large_commits / (time.perf_counter() - started)}


def _commits(client: Client, topic: str, count: int, records: int = 1) -> list[float]:
    """Makes `count` transactions and returns the seconds of each commit."""
    seconds = []
    for _ in range(count):
        client.begin_transaction()
        client.produce(topic, VALUES, VALUE_BYTES, records)
        started = time.perf_counter()
        client.commit_transaction()
        seconds.append(time.perf_counter() - started)
    return seconds


def _costs(subject: Subject, names: Iterator[str], effort: Effort) -> list[Figure]:
    """Measures idempotent and transactional produce beside plain produce, with librdkafka's own costs of them."""
    plain, idempotent, transactional = interleave(
        effort.rounds,
        lambda: _bulk(subject, next(names), PLAIN, effort),
        lambda: _bulk(subject, next(names), IDEMPOTENT, effort),
        lambda: _bulk(subject, next(names), None, effort),
    )
    return [
        Figure(
            name=f"{subject.name}, librdkafka, {kind}: {what}", value=samples[what], unit=unit,
            yardstick="plain produce", yardstick_value=plain[what],
        )
        for kind, samples in (("idempotent", idempotent), ("transactional", transactional))
        for what, unit in (("records", "records/s"), ("broker CPU", "s/million"))
    ]  # fmt: skip


def _bulk(subject: Subject, name: str, settings: dict[str, str] | None, effort: Effort) -> Samples:
    """Produces many records, in transactions if no settings are given; returns records/s and the broker's CPU time."""
    _create(subject, name)
    with pinned(), _producer(subject, name, settings) as client:
        _produce(client, name, settings, effort, RECORDS_IN_ONE)
        cpu_s, started = subject.cpu_s, time.perf_counter()
        _produce(client, name, settings, effort, effort.records)
        seconds = time.perf_counter() - started
        return {"records": effort.records / seconds, "broker CPU": (subject.cpu_s - cpu_s) / effort.records * 1e6}


def _produce(client: Client, topic: str, settings: dict[str, str] | None, effort: Effort, count: int) -> None:
    if settings is None:
        _commits(client, topic, effort.transactions, count // effort.transactions)
    else:
        client.produce(topic, VALUES, VALUE_BYTES, count)


def _raw_costs(subject: Subject, names: Iterator[str], effort: Effort) -> Iterator[Figure]:
    """Measures what idempotence costs the broker: the same requests with and without a producer's sequences."""
    goal = 1.0 if subject.name == "Millrace" else None
    for load in effort.raw_loads:
        plain, idempotent = interleave(
            effort.rounds,
            *((lambda one=one: _raw(subject, next(names), load, one)) for one in (False, True)),  # noqa: B023
        )
        yield Figure(
            name=f"{subject.name}, {load.name}, idempotent", value=idempotent["rate"], unit="requests/s",
            yardstick="plain produce", yardstick_value=plain["rate"], at_least=goal and 0.95,
        )  # fmt: skip
        yield Figure(
            name=f"{subject.name}, {load.name}, idempotent: broker CPU", value=idempotent["cpu"], unit="µs",
            yardstick="plain produce", yardstick_value=plain["cpu"], at_most=goal and 1.05,
        )  # fmt: skip


def _raw(subject: Subject, name: str, load: RawLoad, is_idempotent: bool) -> Samples:
    _create(subject, name)
    value = text(VALUE_BYTES)
    if is_idempotent:
        frames = raw.idempotent_frames(name, value, load.records, load.requests)
    else:
        frames = [raw.produce_frame(name, 0, value, load.records)] * load.requests
    with pinned():
        result = raw.produce(subject, name, frames, requests=load.requests, in_flight=load.in_flight)
    return {"rate": load.requests / result.seconds, "cpu": 1e6 * result.cpu_s / load.requests}


def _producer(subject: Subject, name: str, settings: dict[str, str] | None) -> Client:
    if settings is None:
        return _transactional(subject, name)
    return Client(PRODUCER, settings | {"bootstrap.servers": subject.bootstrap}, delivery_reports=True)


def _transactional(subject: Subject, name: str, settings: dict[str, str] | None = None) -> Client:
    place = {"bootstrap.servers": subject.bootstrap, "transactional.id": name}
    client = Client(PRODUCER, PLAIN | (settings or {}) | place, delivery_reports=True)
    client.init_transactions()
    return client


def _create(subject: Subject, topic: str) -> None:
    with Cluster(subject.bootstrap) as cluster:
        Admin(cluster).create_topic(topic, 1)
