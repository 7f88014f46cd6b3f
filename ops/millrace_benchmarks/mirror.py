"""`millrace bench mirror`: one cluster's topics in another, exactly once: what is behind, and what comes steadily.

    behind      how fast a mirror copies what there is, from the first record to the last; its processor time
    lag         records that come at a modest rate: from their sending until a reader of committed records has them

Without a peer, between two brokers of Millrace: following, batches as they are, and copying in transactions. With
`--peer mirrormaker2`, before these: Millrace's mirror and MirrorMaker 2 by turns from one Apache Kafka 4.1 to another,
whose figures are also the yardstick of the others.

Each mirror is one process, which is started for each figure. Its start does not count: time and processor time begin
when the first record is at the target, committed or not. Topics have four partitions, and both mirrors preserve times,
so that the last record is known by its time, which is later than that of any transaction's marker. MirrorMaker 2
compresses by the codec that the producers have used, and ends a transaction with each poll under a steady load, after
100 ms where it has much to copy: either is the better one for that figure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import NamedTuple, Protocol

from millrace.client.admin import Admin
from millrace.client.cluster import Cluster
from millrace.client.fetched import IsolationLevel
from millrace.client.simple_consumer import SimpleConsumer
from millrace.clock import SystemClock
from millrace.errors import ClientError, MillraceError
from millrace.records.compression import Codec
from millrace.records.record import NewRecord, encode_batch
from millrace_benchmarks.harness import GIGABYTE, MEGABYTE, Figure, Samples, interleave, percentiles
from millrace_benchmarks.load_topics import KEPT, append
from millrace_benchmarks.mirror_lag import STEADY, Mirrored, SteadyLoad, lags
from millrace_benchmarks.mirror_process import MirrorProcess, mirror_settings
from millrace_benchmarks.mirrormaker2 import MirrorMaker2, for_backlog
from millrace_benchmarks.payloads import text
from millrace_benchmarks.subjects import Peer as Broker
from millrace_benchmarks.subjects import Subject, apache_kafka, millrace, processor_time


class Peer(StrEnum):
    """What the mirror is measured against."""

    MIRRORMAKER2 = "mirrormaker2"


PEERS = tuple(Peer)
PARTITIONS = 4
DISTINCT_BATCHES = 32
FIRST_TIMESTAMP_MS = 1_767_225_600_000
LAST_AHEAD_MS = 45 * 60 * 1000  # later than any marker of a transaction; brokers take an hour
POLL_INTERVAL_S = 0.02
TIMEOUT_S = 600.0


class Behind(NamedTuple):
    """What a mirror has to copy: the size of a value, how many records a batch has, and how many there are."""

    size_bytes: int
    records_per_batch: int
    batches: int
    codec: Codec = Codec.NONE

    @property
    def title(self) -> str:
        """What the report calls it."""
        compressed = "" if self.codec is Codec.NONE else f", {self.codec.name.lower()}"
        return f"{self.size_bytes} B, {self.records_per_batch} a batch{compressed}"

    @property
    def records(self) -> int:
        """The number of its records."""
        return self.batches * self.records_per_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorEffort:
    """How often each figure is measured, and with how much."""

    rounds: int = 3
    behind: tuple[Behind, ...] = (
        Behind(100, 150, 20_000),  # batches of 16 KB, as a Java producer makes them by default
        Behind(1000, 500, 1_600),
        Behind(1000, 500, 1_600, Codec.LZ4),
    )
    steady: SteadyLoad = STEADY


FULL = MirrorEffort()


class Mirror(Protocol):
    """A mirror as a process."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether the mirror's process has ended."""
        ...

    def read_log(self) -> str:
        """Returns what it has printed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A mirror between two brokers.

    Attributes:
        title: What the report calls it.
        source: The broker that it reads.
        target: The broker that it writes to.
        start: Starts it in a folder, by the name of the source, a topic, and what is behind; None for a steady load.
    """

    title: str
    source: Subject
    target: Subject
    start: Callable[[Path, str, str, Behind | None], AbstractContextManager[Mirror]]


def run(place: Path, peer: Peer | None = None, effort: MirrorEffort = FULL) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    with ExitStack() as stack:
        beside = [] if peer is None else _between_kafkas(stack, place)
        routes = [*beside, *_between_millraces(stack, place)]
        measure = _Measure(routes, place, effort, yardstick=beside[-1] if beside else None)
        return [*(figure for behind in effort.behind for figure in measure.behind(behind)), *measure.lag()]


def _between_kafkas(stack: ExitStack, place: Path) -> list[Route]:
    source, target = (stack.enter_context(apache_kafka(Broker.KAFKA, place / one)) for one in ("source", "target"))

    def maker(folder: Path, name: str, topic: str, behind: Behind | None) -> MirrorMaker2:
        further = {} if behind is None else for_backlog(behind.codec.name.lower(), name)
        return MirrorMaker2(
            folder, source=source.bootstrap, target=target.bootstrap, name=name, topics=topic, properties=further
        )

    ours = _millraces_mirror("Apache Kafka 4.1 to 4.1, copying", source, target, "copy")
    return [ours, Route(title="MirrorMaker 2", source=source, target=target, start=maker)]


def _between_millraces(stack: ExitStack, place: Path) -> list[Route]:
    source, target = (stack.enter_context(millrace(place, name)) for name in ("millrace-source", "millrace-target"))
    return [
        _millraces_mirror("Millrace to Millrace, following", source, target, "follow"),
        _millraces_mirror("Millrace to Millrace, copying", source, target, "copy"),
    ]


def _millraces_mirror(title: str, source: Subject, target: Subject, way: str) -> Route:
    def start(folder: Path, name: str, topic: str, _: Behind | None) -> MirrorProcess:
        settings = mirror_settings(source=source.bootstrap, target=target.bootstrap, name=name, topics=topic, way=way)
        return MirrorProcess(folder, settings)

    return Route(title=title, source=source, target=target, start=start)


class _Measure:
    """The figures of routes; each measurement has a topic and a name of the source of its own."""

    def __init__(self, routes: Sequence[Route], place: Path, effort: MirrorEffort, *, yardstick: Route | None) -> None:
        self._routes = routes
        self._place = place
        self._effort = effort
        self._yardstick = yardstick
        self._numbers = count()

    def behind(self, behind: Behind) -> Iterator[Figure]:
        batches = _batches(behind)
        measured = self._all(lambda route, number: self._copied(route, number, behind, batches))
        yield from self._figures(f"behind, {behind.title}", "records/s", "rate", measured, at_least=2.0)
        yield from self._figures("· the same", "MB/s", "megabytes", measured)
        yield from self._figures("· CPU of the mirror for a GB", "s", "cpu", measured, at_most=1 / 3)

    def lag(self) -> Iterator[Figure]:
        steady = self._effort.steady
        measured = self._all(lambda route, number: self._lag(route, number, steady))
        name = f"{steady.records_per_s} records/s, lag"
        yield from self._figures(f"{name} p50", "ms", "p50", measured)
        yield from self._figures(f"{name} p99", "ms", "p99", measured, at_most=1.0)

    def _all(self, measure: Callable[[Route, int], Samples]) -> dict[str, Samples]:
        turns = [(lambda route=route: measure(route, next(self._numbers))) for route in self._routes]
        found = interleave(self._effort.rounds, *turns)
        return {route.title: samples for route, samples in zip(self._routes, found, strict=True)}

    def _figures(
        self, name: str, unit: str, key: str, measured: dict[str, Samples], *, at_least: float | None = None,
        at_most: float | None = None,
    ) -> Iterator[Figure]:  # fmt: skip
        """Yields the figure of each of Millrace's mirrors."""
        peer = self._yardstick
        for route in self._routes:
            if route is not peer:
                yield Figure(
                    name=f"{name}: {route.title}", value=measured[route.title][key], unit=unit,
                    yardstick=peer.title if peer else "", yardstick_value=measured[peer.title][key] if peer else None,
                    at_least=at_least, at_most=at_most,
                )  # fmt: skip

    def _copied(self, route: Route, number: int, behind: Behind, batches: Sequence[bytes]) -> Samples:
        topic, name = f"behind-{number}", f"from{number}"
        last_ms = SystemClock().now_ms() + LAST_AHEAD_MS
        _fill(route.source, topic, behind, batches, last_ms)
        with (
            Cluster(route.target.bootstrap) as cluster,
            route.start(self._place / topic, name, topic, behind) as mirror,
        ):
            reach = _Reach(cluster, mirror, f"{name}.{topic}")
            started, cpu_s = reach.await_begin()
            reach.await_end(last_ms)
            seconds, cpu_s = time.perf_counter() - started, processor_time(mirror.pid) - cpu_s
        _forget(route, topic, f"{name}.{topic}")
        size_bytes = behind.records * behind.size_bytes
        return {
            "rate": behind.records / seconds,
            "megabytes": size_bytes / seconds / MEGABYTE,
            "cpu": cpu_s / size_bytes * GIGABYTE,
        }

    def _lag(self, route: Route, number: int, steady: SteadyLoad) -> Samples:
        topic, name = f"lag-{number}", f"from{number}"
        route.source.create_topic(topic, PARTITIONS)
        with (
            Cluster(route.target.bootstrap) as cluster,
            route.start(self._place / topic, name, topic, None) as mirror,
        ):
            reach = _Reach(cluster, mirror, f"{name}.{topic}")
            reach.await_topic()
            places = Mirrored(route.source.bootstrap, topic, route.target.bootstrap, f"{name}.{topic}", PARTITIONS)
            seconds = lags(places, steady)
        _forget(route, topic, f"{name}.{topic}")
        return percentiles(seconds, 1000)


class _Reach:
    """Asks the target how far a mirrored topic is, a few times a second."""

    def __init__(self, cluster: Cluster, mirror: Mirror, topic: str) -> None:
        self._cluster = cluster
        self._consumer = SimpleConsumer(cluster)
        self._mirror = mirror
        self._topic = topic
        self._deadline = time.monotonic() + TIMEOUT_S

    def await_topic(self) -> None:
        """Returns once each partition is there."""
        self._await(lambda: [self._end(partition) for partition in range(PARTITIONS)])

    def await_begin(self) -> tuple[float, float]:
        """Returns the last time at which no record was there yet, and the processor time of the mirror then.

        A record of an open transaction counts: before the first one is visible, a mirror may have copied many.
        """
        before = time.perf_counter(), processor_time(self._mirror.pid)

        def has_begun() -> bool:
            nonlocal before
            now = time.perf_counter(), processor_time(self._mirror.pid)
            if any(self._end(partition, IsolationLevel.READ_UNCOMMITTED) for partition in range(PARTITIONS)):
                return True
            before = now
            return False

        self._await(has_begun)
        return before

    def await_end(self, last_ms: int) -> None:
        """Returns once a reader of committed records sees the last record of each partition, which has that time."""
        self._await(lambda: all(self._has(partition, last_ms) for partition in range(PARTITIONS)))

    def _has(self, partition: int, last_ms: int) -> bool:
        offset = self._consumer.offset_for_time(self._topic, partition, last_ms)
        return offset is not None and offset < self._end(partition)

    def _end(self, partition: int, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> int:
        if self._topic not in self._cluster.metadata([self._topic]).topics:
            raise ClientError(f"{self._topic} is not there yet")
        return self._consumer.latest(self._topic, partition, isolation)

    def _await(self, look: Callable[[], object]) -> None:
        while True:
            with suppress(MillraceError):
                if look():
                    return
            if self._mirror.has_ended or time.monotonic() > self._deadline:
                raise ClientError(f"{self._topic} does not come:\n{self._mirror.read_log()[-4000:]}")
            time.sleep(POLL_INTERVAL_S)


def _batches(behind: Behind) -> list[bytes]:
    size_bytes, in_one = behind.size_bytes, behind.records_per_batch
    values = text(size_bytes * in_one * DISTINCT_BATCHES)
    records = [
        NewRecord(values[place : place + size_bytes], timestamp_ms=FIRST_TIMESTAMP_MS + place // size_bytes)
        for place in range(0, len(values), size_bytes)
    ]
    groups = (records[place : place + in_one] for place in range(0, len(records), in_one))
    return [encode_batch(group, codec=behind.codec) for group in groups]


def _fill(subject: Subject, topic: str, behind: Behind, batches: Sequence[bytes], last_ms: int) -> None:
    """Creates a topic with what is behind, and at the end of each partition a record of a time above all others."""
    subject.create_topic(topic, PARTITIONS, KEPT)
    with Cluster(subject.bootstrap) as cluster:
        for number in range(behind.batches):
            append(cluster, topic, number % PARTITIONS, batches[number % len(batches)])
        for partition in range(PARTITIONS):
            append(cluster, topic, partition, encode_batch([NewRecord(b"", timestamp_ms=last_ms)]))


def _forget(route: Route, topic: str, mirrored: str) -> None:
    for subject, name in ((route.source, topic), (route.target, mirrored)):
        with Cluster(subject.bootstrap) as cluster:
            Admin(cluster).delete_topic(name)
