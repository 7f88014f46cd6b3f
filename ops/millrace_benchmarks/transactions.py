"""`millrace bench transactions`: commits, and what idempotence and transactions cost over plain produce.

librdkafka, driven at C's speed, sends records of 100 B, acks=all. The latency of a commit is that of the commit alone:
its one record is acknowledged before. Costs are ratios to plain produce to the same broker, in turn with it, five
requests in flight; bare requests from C show the broker's part of them, as librdkafka has its own costs. librdkafka's
flush looks only every 10 ms whether all is acknowledged, unless it has deliveries to report: so it reports them, as to
an application. Beside a peer, rounds alternate and medians of the rounds are shown.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from millrace_benchmarks import raw
from millrace_benchmarks.harness import Comparison, Figure, Samples, interleave, per_second, percentiles
from millrace_benchmarks.librdkafka import BULK_SETTINGS, PRODUCER, Client
from millrace_benchmarks.payloads import text
from millrace_benchmarks.raw import RawLoad
from millrace_benchmarks.subjects import Peer, Subject, pinned, subjects

PEERS = (Peer.KAFKA, Peer.KAFKA_3_9)
VALUE_BYTES = 100
VALUES = text(VALUE_BYTES * 1000)
PLAIN = BULK_SETTINGS | {"max.in.flight.requests.per.connection": "5"}
IDEMPOTENT = PLAIN | {"enable.idempotence": "true"}
PROMPT = {"linger.ms": "0"}
PRODUCERS = 10
RECORDS_IN_ONE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsEffort:
    """How often each figure is measured, and with how many records."""

    rounds: int = 3
    warm_up_commits: int = 20
    commits: int = 300
    commits_of_ten: int = 100
    large_commits: int = 150
    transactions: int = 10
    records: int = 300_000
    raw_loads: tuple[RawLoad, ...] = (
        RawLoad("1-record requests, 5 in flight", 1, 40_000, 5),  # as idempotent clients have in flight
        RawLoad("1-record requests, 64 in flight", 1, 60_000, 64),
        RawLoad("16 KB batches, 5 in flight", 150, 8_000, 5),
    )


FULL = TransactionsEffort()


GOALS = {"commit p50": (None, 0.5), "records": (1.0, None)}
UNITS = {"commit p50": "ms", "commit p99": "ms", "commits": "commits/s", "records": "records/s"}
UNITS |= {"broker CPU a commit": "ms"}


def run(place: Path, peer: Peer | None = None, effort: TransactionsEffort = FULL) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    loads = (("one producer", _of_one), ("ten producers", _of_ten), ("1,000 records in each", _large))
    with subjects(place, peer) as brokers:
        comparison = Comparison(brokers, effort.rounds, "transactions")
        return [
            *(figure for load, measure in loads for figure in _commit_figures(comparison, load, measure, effort)),
            *(figure for broker in brokers for figure in _raw_costs(broker, comparison.new_topic, effort)),
            *(figure for broker in brokers for figure in _costs(broker, comparison.new_topic, effort)),
        ]


def _commit_figures(
    comparison: Comparison[Subject],
    load: str,
    measure: Callable[[Subject, str, TransactionsEffort], Samples],
    effort: TransactionsEffort,
) -> Iterator[Figure]:
    measured = comparison.measure(lambda subject, topic: measure(subject, topic, effort))
    for name in measured[0]:
        at_least, at_most = GOALS.get(name, (None, None))
        yield comparison.figure(f"{load}, {name}", UNITS[name], name, measured, at_least=at_least, at_most=at_most)


def _of_one(subject: Subject, name: str, effort: TransactionsEffort) -> Samples:
    """Measures transactions of one record, one after the other."""
    subject.create_topic(name)
    with pinned(), _transactional(subject, name, PROMPT) as client:
        _commits(client, name, effort.warm_up_commits)
        cpu_s, started = subject.cpu_s, time.perf_counter()
        seconds = _commits(client, name, effort.commits)
        rate, cpu_s = effort.commits / (time.perf_counter() - started), subject.cpu_s - cpu_s
    commits_ms = {f"commit {name}": value for name, value in percentiles(seconds, 1000).items() if name != "p99.9"}
    return commits_ms | {"commits": rate, "broker CPU a commit": 1000 * cpu_s / effort.commits}


def _of_ten(subject: Subject, name: str, effort: TransactionsEffort) -> Samples:
    """Measures the same by ten producers at the same time, each to its own topic."""
    topics = [f"{name}-{number}" for number in range(PRODUCERS)]
    for topic in topics:
        subject.create_topic(topic)
    clients = [_transactional(subject, topic, PROMPT) for topic in topics]
    with pinned(), ThreadPoolExecutor(PRODUCERS) as threads:
        list(threads.map(_commits, clients, topics, itertools.repeat(effort.warm_up_commits)))
        started = time.perf_counter()
        list(threads.map(_commits, clients, topics, itertools.repeat(effort.commits_of_ten)))
        seconds = time.perf_counter() - started
    for client in clients:
        client.close()
    return {"commits": PRODUCERS * effort.commits_of_ten / seconds}


def _large(subject: Subject, name: str, effort: TransactionsEffort) -> Samples:
    """Measures transactions of a thousand records."""
    subject.create_topic(name)
    with pinned(), _transactional(subject, name, PROMPT) as client:
        _commits(client, name, effort.warm_up_commits, RECORDS_IN_ONE)
        records = RECORDS_IN_ONE * effort.large_commits
        return {"records": per_second(records, lambda: _commits(client, name, effort.large_commits, RECORDS_IN_ONE))()}


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


def _costs(subject: Subject, new_topic: Callable[[], str], effort: TransactionsEffort) -> list[Figure]:
    """Measures idempotent and transactional produce beside plain produce, with librdkafka's own costs of them."""
    plain, idempotent, transactional = interleave(
        effort.rounds,
        lambda: _bulk(subject, new_topic(), PLAIN, effort),
        lambda: _bulk(subject, new_topic(), IDEMPOTENT, effort),
        lambda: _bulk(subject, new_topic(), None, effort),
    )
    return [
        Figure(
            name=f"{subject.name}, librdkafka, {kind}: {what}", value=samples[what], unit=unit,
            yardstick="plain produce", yardstick_value=plain[what],
        )
        for kind, samples in (("idempotent", idempotent), ("transactional", transactional))
        for what, unit in (("records", "records/s"), ("broker CPU", "s/million"))
    ]  # fmt: skip


def _bulk(subject: Subject, name: str, settings: dict[str, str] | None, effort: TransactionsEffort) -> Samples:
    """Produces many records, in transactions if no settings are given; returns records/s and the broker's CPU time."""
    subject.create_topic(name)
    with pinned(), _producer(subject, name, settings) as client:
        _produce(client, name, settings, effort, RECORDS_IN_ONE)
        cpu_s = subject.cpu_s
        rate = per_second(effort.records, lambda: _produce(client, name, settings, effort, effort.records))()
        return {"records": rate, "broker CPU": (subject.cpu_s - cpu_s) / effort.records * 1e6}


def _produce(
    client: Client, topic: str, settings: dict[str, str] | None, effort: TransactionsEffort, count: int
) -> None:
    if settings is None:
        _commits(client, topic, effort.transactions, count // effort.transactions)
    else:
        client.produce(topic, VALUES, VALUE_BYTES, count)


def _raw_costs(subject: Subject, new_topic: Callable[[], str], effort: TransactionsEffort) -> Iterator[Figure]:
    """Measures what idempotence costs the broker: the same requests with and without a producer's sequences."""
    goal = 1.0 if subject.name == "Millrace" else None
    for load in effort.raw_loads:
        plain, idempotent = interleave(
            effort.rounds,
            *((lambda one=one: _raw(subject, new_topic(), load, one)) for one in (False, True)),  # noqa: B023
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
    subject.create_topic(name)
    value = text(VALUE_BYTES)
    if is_idempotent:
        frames = raw.idempotent_frames(name, value, load.records, load.requests)
    else:
        frames = [raw.produce_frame(name, 0, value, load.records)] * load.requests
    return raw.produce(subject, name, frames, requests=load.requests, in_flight=load.in_flight).samples


def _producer(subject: Subject, name: str, settings: dict[str, str] | None) -> Client:
    if settings is None:
        return _transactional(subject, name)
    return Client(PRODUCER, settings | subject.client_settings, delivery_reports=True)


def _transactional(subject: Subject, name: str, settings: dict[str, str] | None = None) -> Client:
    given = PLAIN | (settings or {}) | subject.client_settings | {"transactional.id": name}
    client = Client(PRODUCER, given, delivery_reports=True)
    client.init_transactions()
    return client
