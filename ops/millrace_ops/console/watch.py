"""Looks at the cluster again and again while somebody looks at pages, and keeps the newest overview and the rates.

    a page asks ──► the newest overview, at once; the first page waits for the first look
                    every INTERVAL_S a look at metadata and offsets; the second look, and then every SIZES_EVERY-th,
                    is also at sizes and at what is copied between data directories
                    a look that takes long makes the pauses longer
                    IDLE_S without a page: no further looks until the next page, which waits for one

A look that fails leaves the overview as it is, and the next page that asks is told why.
"""

from __future__ import annotations

import logging
import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from queue import Empty, LifoQueue
from typing import TypeAlias

from millrace.client import Cluster
from millrace.clock import Clock
from millrace.errors import ClientError, MillraceError
from millrace_ops.console.overview import Overview, Replicas, look_at_offsets, look_at_replicas, summaries
from millrace_ops.console.plots import SPAN_S, Rate

INTERVAL_S = 10.0
SAMPLES = int(SPAN_S / INTERVAL_S)
MAX_TOPICS = 20_000
ABSENT = -1

Sample: TypeAlias = "tuple[float, array[int]]"


class Clusters:
    """Clients of the cluster, created as needed and kept for later pages; each is used by one thread at a time."""

    def __init__(self, connect: Callable[[], Cluster]) -> None:
        self._connect = connect
        self._idle: LifoQueue[Cluster] = LifoQueue()

    @contextmanager
    def lent(self) -> Iterator[Cluster]:
        """Yields a client that no other thread uses meanwhile; it is closed after an error."""
        try:
            cluster = self._idle.get_nowait()
        except Empty:
            cluster = self._connect()
        try:
            yield cluster
        except BaseException:
            cluster.close()
            raise
        self._idle.put(cluster)


class RateRing:
    """The rates at which topics grow, from their end offsets at the last looks: SAMPLES samples, the oldest first.

    time        t0     t1     t2
    topic "a"   100    150    150     →  rates 50/(t1-t0) at t1, 0 at t2

    A sample is an array of numbers, with a place for each topic, so that 10,000 topics take 80 kB. Beyond MAX_TOPICS no
    rates are kept. A topic that ends lower than before was deleted and made again: its rate is 0 there. One thread
    adds, others read.
    """

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._totals: deque[tuple[float, float]] = deque(maxlen=SAMPLES - 1)

    def add(self, at_s: float, ends: Mapping[str, int]) -> None:
        """Adds a sample: by topic, the sum of the end offsets of its partitions."""
        if len(ends) > MAX_TOPICS:
            return
        for topic in ends:
            self._places.setdefault(topic, len(self._places))
        if len(self._places) > 2 * MAX_TOPICS:  # most are of deleted topics; the plots begin again
            self._samples.clear()
            self._totals.clear()
            self._places = {topic: place for place, topic in enumerate(ends)}
        sample = array("q", [ABSENT]) * len(self._places)
        for topic, end in ends.items():
            sample[self._places[topic]] = end
        if self._samples:
            self._totals.append((at_s, _total(self._samples[-1], (at_s, sample))))
        self._samples.append((at_s, sample))

    def rates(self, topic: str) -> list[Rate]:
        """Returns a topic's records per second from each sample to the next, oldest first."""
        return self._rates(topic, tuple(self._samples))  # copied at once, while the other thread may add

    def newest_rate(self, topic: str) -> float:
        """Returns a topic's records per second between the last two samples; 0 if one of them lacks the topic."""
        return next((one.per_s for one in self._rates(topic, tuple(self._samples)[-2:])), 0.0)

    def total_rates(self) -> list[Rate]:
        """Returns the records per second, from each sample to the next, of all topics that both have."""
        totals = tuple(self._totals)
        return [Rate(totals[-1][0] - at_s, per_s) for at_s, per_s in totals]

    def _rates(self, topic: str, samples: Sequence[Sample]) -> list[Rate]:
        place = self._places.get(topic)
        if place is None:
            return []
        ends = [(at_s, sample[place] if place < len(sample) else ABSENT) for at_s, sample in samples]
        return [
            Rate(samples[-1][0] - at_s, max(0.0, (end - before) / _pause_s(before_s, at_s)))
            for (before_s, before), (at_s, end) in pairwise(ends)
            if ABSENT not in (before, end)
        ]


def _total(before: Sample, now: Sample) -> float:
    pairs = zip(before[1], now[1], strict=False)
    grown = sum(max(0, end - start) for start, end in pairs if ABSENT not in (start, end))
    return grown / _pause_s(before[0], now[0])


def _pause_s(before_s: float, at_s: float) -> float:
    return max(at_s - before_s, 0.001)


logger = logging.getLogger(__name__)

PART_OF_TIME = 0.1  # the share of the time that looks may take
SOON_S = 1.0
SIZES_EVERY = 3
IDLE_S = 300.0


class Watch:
    """Looks at the cluster repeatedly, on a thread that starts with the first page."""

    def __init__(self, clusters: Clusters, clock: Clock) -> None:
        self._clusters = clusters
        self._clock = clock
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._asked_at_s = 0.0
        self._looks = 0
        self._look_s = 0.0
        self._looked_at_s = 0.0
        self._pause_s = INTERVAL_S
        self._overview: Overview | None = None
        self._failure: MillraceError | None = None
        self._replicas = Replicas({}, {})
        self.rates = RateRing()

    def overview(self) -> Overview:
        """Returns the newest overview; raises the error of the last look where that failed."""
        with self._changed:
            self._asked_at_s = self._clock.monotonic_s()
            if self._asked_at_s - self._looked_at_s > 2 * self._pause_s:  # nobody has asked for long
                self._overview, self._failure = None, None
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="console-watch", daemon=True)
                self._thread.start()
            self._changed.wait_for(lambda: not self._is_awaited())
            if self._failure is not None or self._overview is None:
                raise self._failure or AssertionError
            return self._overview

    def look(self) -> None:
        """Looks at the cluster once, and hands the overview, or the error, to the pages that wait."""
        failure: MillraceError | None = None
        overview = self._overview
        try:
            overview = self._look()
        except MillraceError as error:
            failure = error
        except Exception as error:  # the thread goes on, or pages would wait for ever
            logger.exception("the look at the cluster failed")
            failure = ClientError(f"the look at the cluster failed: {error!r}")
        with self._changed:
            self._overview, self._failure = overview, failure
            self._looked_at_s = self._clock.monotonic_s()
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            self.look()
            with self._changed:
                self._pause_s = max(INTERVAL_S, self._look_s / PART_OF_TIME)
                self._changed.wait_for(self._is_awaited, self._pause_s if self._has_sizes else SOON_S)
                self._changed.wait_for(lambda: self._clock.monotonic_s() - self._asked_at_s < IDLE_S)

    def _is_awaited(self) -> bool:
        """Returns whether no look has ended yet, so that a page may be waiting for the first."""
        return self._overview is None and self._failure is None

    @property
    def _has_sizes(self) -> bool:
        """Returns whether the newest look succeeded and was not the first, so that it had sizes."""
        return self._failure is None and self._looks > 1

    def _look(self) -> Overview:
        started_s = self._clock.monotonic_s()
        with self._clusters.lent() as cluster:
            metadata = cluster.metadata()
            offsets = look_at_offsets(cluster, metadata)
            if self._looks % SIZES_EVERY == 1:
                self._replicas = look_at_replicas(cluster, metadata)
        self._looks += 1
        self._look_s = self._clock.monotonic_s() - started_s
        topics = summaries(metadata, offsets, self._replicas.sizes)
        self.rates.add(
            self._clock.monotonic_s(), {name: one.end_sum for name, one in topics.items() if one.end_sum is not None}
        )
        ends = {one: found.log_end for one, found in offsets.items()}
        return Overview(self._clock.now_ms(), metadata, topics, ends, self._replicas.copied)
