"""The metrics of one instance of a mirror, for Prometheus: made of its counters when they are asked for.

    millrace_mirror_lag_records{source,topic,partition}       offsets by which the target is behind
    millrace_mirror_records_total{source,topic}               records mirrored by this instance
    millrace_mirror_groups{source,outcome}                    groups, by what became of them
    …                                                         docs/mirror-service.md has all

Their number is bounded. Where an instance has more partitions than `MOST_PARTITIONS` those of a topic are one series,
whose partition is "(all)"; where it knows more topics than `MOST_TOPICS`, those of a source are one topic "(all)".
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from millrace import __version__
from millrace.records.batch import NO_TIMESTAMP
from millrace_pipelines.mirror.counters import Counted, Counters, PartitionCounters
from millrace_pipelines.mirror.groups import Outcome
from millrace_pipelines.mirror.instance import Standing
from millrace_pipelines.mirror.reachability import Place
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.states import State, TopicState
from millrace_pipelines.mirror.stops import StopKind

MOST_PARTITIONS = 1_000
MOST_TOPICS = 1_000
ALL = "(all)"
PREFIX = "millrace_mirror_"

Labels = tuple[str, ...]
Key = TypeVar("Key", bound=Labels)
Lines = Mapping[Counted, PartitionCounters]


class Told(Protocol):
    """What a service tells of itself (`service.MirrorService`)."""

    counters: Counters

    def standings(self) -> Iterable[Standing]:
        """Returns how the instance stands among those of each source."""

    def states(self) -> Mapping[str, TopicState]:
        """Returns the states of all topics."""


class Bounds(NamedTuple):
    """From how many on partitions, and topics, are told together."""

    partitions: int = MOST_PARTITIONS
    topics: int = MOST_TOPICS


BOUNDS = Bounds()


class MirrorCollector(Collector):
    """The metrics of a service, and of the clusters that it has asked (`reachability`)."""

    def __init__(self, service: Told, troubles: Callable[[], Mapping[Place, str]], bounds: Bounds = BOUNDS) -> None:
        self._service = service
        self._troubles = troubles
        self._bounds = bounds

    def collect(self) -> Iterator[Metric]:
        """Yields the families; those of groups only where this instance moves them."""
        standings = list(self._service.standings())
        lines = self._service.counters.read()
        build = {(__version__, platform.python_version()): 1}
        yield _gauges("build_info", "1, with the versions of Millrace and Python.", ("version", "python"), build)
        yield from self._partitions(lines)
        yield from self._amounts()
        yield from _shares(lines, standings)
        yield from self._topics({one.source for one in standings if one.leads})
        yield from self._groups(standings)
        yield from self._transactions()
        reached = {(one.side, one.source): not trouble for one, trouble in self._troubles().items()}
        yield _gauges("cluster_reachable", "1 while a broker of it answers.", ("side", "source"), reached)

    def _partitions(self, lines: Lines) -> Iterator[Metric]:
        keys = self._keys(lines)
        lags: Counter[Labels] = Counter()
        held_back: Counter[Labels] = Counter()
        newest_ms: dict[Labels, int] = {}
        for one, line in lines.items():
            lags[keys[one]] += line.lag or 0
            held_back[keys[one]] += line.held_back
            newest_ms[keys[one]] = max(newest_ms.get(keys[one], NO_TIMESTAMP), line.newest_ms)
        names = ("source", "topic", "partition")
        yield _gauges("lag_records", "Offsets by which the target is behind.", names, lags)
        yield _gauges("held_back_records", "Offsets behind the begin of an open transaction.", names, held_back)
        times = {key: ms / 1000 for key, ms in newest_ms.items() if ms > NO_TIMESTAMP}
        yield _gauges("newest_record_timestamp_seconds", "Time of the newest record mirrored here.", names, times)

    def _keys(self, lines: Lines) -> Mapping[Counted, Labels]:
        """Returns the labels of each partition, of which several may have the same."""
        topics = {(one.source, one.what.topic) for one in lines}
        if len(topics) > self._bounds.topics:
            return {one: (one.source, ALL, ALL) for one in lines}
        if len(lines) > self._bounds.partitions:
            return {one: (one.source, one.what.topic, ALL) for one in lines}
        return {one: (one.source, one.what.topic, str(one.what.partition)) for one in lines}

    def _amounts(self) -> Iterator[Metric]:
        topics = self._service.counters.topics()
        records: Counter[Labels] = Counter()
        sizes: Counter[Labels] = Counter()
        for (source, topic), amount in topics.items():
            key = source, topic if len(topics) <= self._bounds.topics else ALL
            records[key] += amount.records
            sizes[key] += amount.size_bytes
        yield _counters("records", "Records mirrored by this instance.", ("source", "topic"), records)
        yield _counters("bytes", "Bytes of their batches.", ("source", "topic"), sizes)

    def _topics(self, leading: Iterable[str]) -> Iterator[Metric]:
        found = {(source, state.value): 0 for source in leading for state in State}
        for one in self._service.states().values():
            if (one.source, one.state.value) in found:
                found[one.source, one.state.value] += 1
        yield _gauges("topics", "Topics by state; told by the instance that leads.", ("source", "state"), found)

    def _groups(self, standings: Iterable[Standing]) -> Iterator[Metric]:
        groups = {one: self._service.counters.groups_of(one.source) for one in standings}
        moves = {(one.source,): counted.moves for one, counted in groups.items()}
        yield _counters("group_moves", "How often this instance has moved a group.", ("source",), moves)
        kept = {one.source: counted for one, counted in groups.items() if one.leads}
        found = {(source, outcome.value): 0 for source in kept for outcome in Outcome}
        for source, counted in kept.items():
            for outcome in counted.outcomes.copy().values():
                found[source, outcome.value] += 1
        yield _gauges("groups", "Groups by what became of them.", ("source", "outcome"), found)
        faulty = {(source,): len(counted.faulty) for source, counted in kept.items()}
        yield _gauges("group_faults", "Groups of which a partition can't be moved.", ("source",), faulty)

    def _transactions(self) -> Iterator[Metric]:
        counters = self._service.counters
        yield _counters("transactions_committed", "Transactions committed.", (), {(): counters.transactions})
        yield _counters("transactions_aborted", "Transactions not committed.", (), {(): counters.aborted_transactions})


def _shares(lines: Lines, standings: Iterable[Standing]) -> Iterator[Metric]:
    """Yields what part of each source this instance has, and what keeps it up."""
    share = {(one.source, way.value): 0 for one in standings for way in (Way.FOLLOW, Way.COPY)}
    stopped = {(one.source, kind.value): 0 for one in standings for kind in StopKind}
    failing: Counter[Labels] = Counter({(one.source,): 0 for one in standings})
    for one, line in lines.items():
        share[one.source, line.way.value] += 1
        failing[one.source,] += bool(line.trouble)
        if line.stop is not None:
            stopped[one.source, line.stop.kind.value] += 1
    yield _gauges("partitions", "Partitions that this instance has.", ("source", "way"), share)
    yield _gauges("partitions_stopped", "Those that have stopped, by why.", ("source", "kind"), stopped)
    yield _gauges("partitions_failing", "Those whose last attempt failed.", ("source",), failing)
    leads = {(one.source,): one.leads for one in standings}
    yield _gauges("leader", "1 where this instance keeps topics and groups.", ("source",), leads)
    waited = {(one.source,): one.throttled_s for one in standings}
    yield _counters("throttle_seconds", "Time in which the throttle held up reading.", ("source",), waited)


def _gauges(name: str, text: str, labels: Labels, values: Mapping[Key, float]) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, float(value))
    return family


def _counters(name: str, text: str, labels: Labels, values: Mapping[Key, float]) -> Metric:
    family = CounterMetricFamily(PREFIX + name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, float(value))
    return family
