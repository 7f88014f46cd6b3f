"""Chooses the topics whose traffic is told by name, so that Prometheus gets a bounded number of series.

The busiest topics are named: those with the most bytes in and out, of which each look halves what was before. All
others count together as `(other)`. A topic that gets its name begins at 0, and what it had before stays with the
others; what it has after it has lost its name goes to them. So no series falls while it is there, and at each look all
of them grow by just what came since the look before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from heapq import nlargest
from operator import add, attrgetter, sub

from millrace_broker.metrics import TopicTraffic

OTHER = "(other)"  # no topic can be called so
FIELDS = tuple(field.name for field in fields(TopicTraffic))
_numbers = attrgetter(*FIELDS)

Numbers = tuple[int, ...]
NOTHING: Numbers = (0,) * len(FIELDS)


class TopicSeries:
    """The series of named topics and of the others, which grow with each look; `totals` are those of all topics."""

    def __init__(self, most: int) -> None:
        """Takes how many topics have names at most."""
        self._most = most
        self._seen: dict[str, Numbers] = {}
        self._weights: dict[str, float] = {}
        self.named: dict[str, Numbers] = {}
        self.others = NOTHING
        self.totals = NOTHING

    def look(self, traffic: Mapping[str, TopicTraffic]) -> None:
        """Takes the traffic of each topic until now; topics that are not there any more are forgotten."""
        now: dict[str, Numbers] = {topic: _numbers(one) for topic, one in traffic.items()}
        grown = {topic: _growth(self._seen.get(topic, NOTHING), numbers) for topic, numbers in now.items()}
        self._seen = now
        self._weights = {topic: self._weights.get(topic, 0.0) / 2 + sum(by[1:]) for topic, by in grown.items()}
        names = self._busiest()
        self.named = {topic: _sum(self.named.get(topic, NOTHING), by) for topic, by in grown.items() if topic in names}
        for topic, by in grown.items():
            if any(by):
                self.totals = _sum(self.totals, by)
                if topic not in names:
                    self.others = _sum(self.others, by)

    def _busiest(self) -> set[str]:
        weights = self._weights
        if len(weights) <= self._most:
            return set(weights)
        return set(nlargest(self._most, weights, key=weights.__getitem__))


def _growth(before: Numbers, now: Numbers) -> Numbers:
    """Returns what has come since; a topic that was away has begun at 0 again."""
    growth = tuple(map(sub, now, before))
    return now if min(growth) < 0 else growth


def _sum(one: Numbers, other: Numbers) -> Numbers:
    return tuple(map(add, one, other))
