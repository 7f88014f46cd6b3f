"""How fast topics grow, from their end offsets at the last looks: a ring of SAMPLES samples in memory.

    time        t0     t1     t2
    topic "a"   100    150    150     →  rates 50/(t1-t0), 0

A sample is an array of numbers, with a place for each topic, so that 10,000 topics take 80 kB. Beyond MAX_TOPICS no
rates are kept. A topic that ends lower than before was deleted and made again: its rate is 0 there.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

SAMPLES = 60
MAX_TOPICS = 20_000
ABSENT = -1

Sample: TypeAlias = "tuple[float, array[int]]"


class RateRing:
    """The samples, oldest first; one thread adds, others read."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._totals: deque[float] = deque(maxlen=SAMPLES - 1)

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
            self._totals.append(_total(self._samples[-1], (at_s, sample)))
        self._samples.append((at_s, sample))

    def rates(self, topic: str) -> list[float]:
        """Returns a topic's records per second from each sample to the next, oldest first."""
        return self._rates(topic, tuple(self._samples))  # copied at once, while the other thread may add

    def newest_rate(self, topic: str) -> float:
        """Returns a topic's records per second between the last two samples; 0 if one of them lacks the topic."""
        return next(iter(self._rates(topic, tuple(self._samples)[-2:])), 0.0)

    def total_rates(self) -> list[float]:
        """Returns the records per second, from each sample to the next, of all topics that both have."""
        return list(self._totals)

    def _rates(self, topic: str, samples: Sequence[Sample]) -> list[float]:
        place = self._places.get(topic)
        if place is None:
            return []
        ends = [(at_s, sample[place] if place < len(sample) else ABSENT) for at_s, sample in samples]
        return [
            max(0.0, (end - before) / _pause_s(before_s, at_s))
            for (before_s, before), (at_s, end) in pairwise(ends)
            if ABSENT not in (before, end)
        ]


def _total(before: Sample, now: Sample) -> float:
    pairs = zip(before[1], now[1], strict=False)
    grown = sum(max(0, end - start) for start, end in pairs if ABSENT not in (start, end))
    return grown / _pause_s(before[0], now[0])


def _pause_s(before_s: float, at_s: float) -> float:
    return max(at_s - before_s, 0.001)
