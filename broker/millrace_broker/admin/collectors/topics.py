"""The metrics of what clients write to and read from topics, and of what replicas are sent.

Prometheus gets a bounded number of series. The busiest topics are named: those with the most bytes in and out, where
each look at the traffic halves the weight of earlier bytes. All others count together as `(other)`. A look begins by
naming the topics that were the busiest at the look before. The series of a topic that gets its name begins at 0, and
its earlier traffic stays in `(other)`; when it loses its name, its further traffic goes there. So no series falls while
it exists, and at each look all of them together grow by exactly what came since the look before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from heapq import nlargest
from operator import add, attrgetter, sub

from millrace_broker.admin.collectors.families import Family, LargeFamily
from millrace_broker.metrics import TopicTraffic
from millrace_broker.replication.replica_manager import ReplicaManager

OTHER = "(other)"  # no topic can be called so
FIELDS = tuple(field.name for field in fields(TopicTraffic))
_numbers = attrgetter(*FIELDS)

Numbers = tuple[int, ...]
NOTHING: Numbers = (0,) * len(FIELDS)
TOPICS_AT_ONCE = 200
MAX_TOPICS = 1000
TEXTS = {
    "records_in": "Records that clients wrote.",
    "bytes_in": "Bytes of records that clients wrote.",
    "bytes_out": "Bytes of records that clients read.",
    "replicated_bytes_in": "Bytes of records that this broker fetched from leaders.",
    "replicated_bytes_out": "Bytes of records that followers fetched from this broker.",
}


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

    def look(self, traffic: Mapping[str, TopicTraffic]) -> Iterator[None]:
        """Takes the traffic of each topic until now, and yields after each portion; it may end between two of them.

        Topics that are not there any more are forgotten.
        """
        self._forget(self._seen.keys() - traffic.keys())
        self._name_the_busiest()
        for number, (topic, one) in enumerate(traffic.items(), 1):
            self._take(topic, _numbers(one))
            if number % TOPICS_AT_ONCE == 0:
                yield

    def _forget(self, topics: set[str]) -> None:
        for topic in topics:
            del self._seen[topic], self._weights[topic]
            self.named.pop(topic, None)

    def _name_the_busiest(self) -> None:
        weights = self._weights
        if len(weights) > self._most:
            busiest = nlargest(self._most, weights, key=weights.__getitem__)
            self.named = {topic: self.named.get(topic, NOTHING) for topic in busiest}

    def _take(self, topic: str, now: Numbers) -> None:
        if self._seen.get(topic) == now:
            self._weights[topic] /= 2
            return
        growth = _growth(self._seen.get(topic, NOTHING), now)
        self._seen[topic] = now
        self._weights[topic] = self._weights.get(topic, 0.0) / 2 + sum(growth[1:])
        if topic in self.named or len(self.named) < self._most:
            self.named[topic] = _sum(self.named.get(topic, NOTHING), growth)
        else:
            self.others = _sum(self.others, growth)
        self.totals = _sum(self.totals, growth)


def _growth(before: Numbers, now: Numbers) -> Numbers:
    """Returns what has come since; a topic that was away has begun at 0 again."""
    growth = tuple(map(sub, now, before))
    return now if min(growth) < 0 else growth


def _sum(one: Numbers, other: Numbers) -> Numbers:
    return tuple(map(add, one, other))


class TopicCollector:
    """The traffic of the busiest topics by name, and of all others together."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._series = TopicSeries(MAX_TOPICS)
        self._is_looking = False

    def collect(self) -> Iterable[Family | None]:
        """Yields all families; a request during the look of another one gets them as they are at that moment."""
        if not self._is_looking:
            self._is_looking = True
            try:
                yield from self._series.look(self._replicas.traffic())
            finally:
                self._is_looking = False
        told = [*self._series.named.items(), (OTHER, self._series.others)]
        for index, field in enumerate(FIELDS):
            rows = [f'{{topic="{topic}"}} {numbers[index]}' for topic, numbers in told]
            yield LargeFamily(f"millrace_topic_{field}", TEXTS[field], "counter", rows, self._series.totals[index])
