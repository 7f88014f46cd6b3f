"""The metrics of requests, connections and throttled clients, and of what they write to and read from topics.

Prometheus gets a bounded number of series of topics. The busiest topics are named: those with the most bytes in and
out, where each look at the traffic halves the weight of earlier bytes. All others count together as `(other)`. A look
begins by naming the topics that were the busiest at the look before. The series of a topic that gets its name begins at
0, and its earlier traffic stays in `(other)`; when it loses its name, its further traffic goes there. So no series
falls while it exists, and at each look all of them together grow by exactly what came since the look before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import fields
from heapq import nlargest
from operator import add, attrgetter, sub

from millrace.errors import error_name
from millrace.wire.api import ApiKey
from millrace_broker.admin.collectors.families import Family, LargeFamily, counter, counters, gauge, histograms
from millrace_broker.metrics import ApiCount, Durations, RequestMetrics, TopicTraffic
from millrace_broker.quotas.client_quotas import ClientQuotas
from millrace_broker.replication.replica_manager import ReplicaManager

API_COUNTERS = (
    ("requests", "Requests handled.", "requests"),
    ("request_bytes", "Bytes of requests.", "bytes_in"),
    ("response_bytes", "Bytes of replies.", "bytes_out"),
)
PHASES = (
    ("queue", "Time between a request's arrival and its handler."),
    ("local", "Time in handlers."),
    ("remote", "Time that answers waited, for records, other replicas, members or quotas."),
    ("send", "Time between an answer and its reply's leaving."),
    ("total", "Time between a request's arrival and its reply's leaving."),
)


class RequestCollector:
    """The metrics of requests and connections."""

    def __init__(
        self,
        metrics: RequestMetrics,
        purgatory: Sized,
        connections: Callable[[], int],
        bytes_in_flight: Callable[[], int],
    ) -> None:
        self._metrics = metrics
        self._purgatory = purgatory
        self._connections = connections
        self._bytes_in_flight = bytes_in_flight

    def collect(self) -> Iterable[Family]:
        """Yields the counts and durations of requests by API, error codes, and connections."""
        metrics = self._metrics
        by_api = {(_api(key),): count for key, count in metrics.by_api.items()}
        for name, text, field in API_COUNTERS:
            yield counters(name, text, ["api"], {labels: getattr(one, field) for labels, one in by_api.items()})
        for phase, text in PHASES:
            times = {labels: _durations(one, phase) for labels, one in by_api.items()}
            yield histograms(f"request_{phase}_seconds", text, ["api"], times)
        errors = {(_api(key), error_name(code)): times for (key, code), times in metrics.errors.items()}
        text = "Error codes in replies: one request can have many."
        yield counters("request_errors", text, ["api", "error"], errors)
        yield gauge("connections", "Open connections.", self._connections())
        yield gauge("purgatory_size", "Requests that wait for records.", len(self._purgatory))
        text = "Memory of requests cut short or in line, and of replies not yet taken."
        yield gauge("bytes_in_flight", text, self._bytes_in_flight())
        text = "Connections closed for being idle, or for holding memory that others waited for."
        yield counter("connections_idle_closed", text, metrics.idle_closed)
        yield counter("connections_refused", "Connections closed for what they sent.", metrics.refused)
        logins = {(outcome,): metrics.authentications[outcome] for outcome in ("succeeded", "renewed", "failed")}
        yield counters("authentications", "Logins by SASL.", ["outcome"], logins)


def _api(key: int) -> str:
    return ApiKey(key).name.lower()


def _durations(count: ApiCount, phase: str) -> Durations:
    """Returns the durations of `phase`, such as `queue`; in `remote`, replies that did not wait count as shortest."""
    found: Durations = getattr(count, phase)
    if phase != "remote":
        return found
    remote = Durations()
    remote.buckets = found.buckets.copy()
    remote.buckets[0] += sum(count.total.buckets) - sum(found.buckets)
    remote.sum_s = found.sum_s
    return remote


class QuotaCollector:
    """The metrics of throttled clients, by kind of quota; no label names a client, so that labels stay few."""

    def __init__(self, quotas: ClientQuotas, metrics: RequestMetrics) -> None:
        self._quotas = quotas
        self._metrics = metrics

    def collect(self) -> Iterable[Family]:
        """Yields the number of connections that are not read now, and throttled requests and times by quota."""
        counts = self._quotas.counts
        times = {(kind.lower(),): number for kind, number in counts.throttled.items()}
        seconds = {(kind.lower(),): milliseconds / 1000 for kind, milliseconds in counts.throttle_ms.items()}
        text = "Connections that are not read, as their client is throttled."
        yield gauge("throttled_connections", text, self._metrics.muted)
        yield counters("throttled", "Requests and connections that exceeded a quota.", ["quota"], times)
        yield counters("throttle_seconds", "Throttle times of them.", ["quota"], seconds)


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
    """Adds up the traffic of the busiest topics by name, and of all others together; `totals` is that of all topics."""

    def __init__(self, most: int) -> None:
        """Takes how many topics are counted by name at most."""
        self._most = most
        self._seen: dict[str, Numbers] = {}
        self._weights: dict[str, float] = {}
        self.named: dict[str, Numbers] = {}
        self.others = NOTHING
        self.totals = NOTHING

    def look(self, traffic: Mapping[str, TopicTraffic]) -> Iterator[None]:
        """Adds the traffic since the last call; yields after each 200 topics, and may be abandoned at a yield.

        `traffic` has the counts of each topic since it appeared; topics that are not in it any more are forgotten.
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
    """Returns by how much each counter has grown; `now` where one has fallen, as the topic came back, from 0."""
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
        """Yields None between portions of topics, then the families; they lag while another call adds counts up."""
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
