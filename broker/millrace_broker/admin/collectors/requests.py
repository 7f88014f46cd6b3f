"""The metrics of requests, connections and throttled clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized

from millrace.errors import error_name
from millrace.wire.api import ApiKey
from millrace_broker.admin.collectors.families import Family, counter, counters, gauge, histograms
from millrace_broker.metrics import ApiCount, Durations, RequestMetrics
from millrace_broker.quotas.client_quotas import ClientQuotas

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
        """Yields all families."""
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
    """Returns the durations of a phase; the replies that did not wait are in the first bucket of the remote ones."""
    found: Durations = getattr(count, phase)
    if phase != "remote":
        return found
    remote = Durations()
    remote.buckets = found.buckets.copy()
    remote.buckets[0] += sum(count.total.buckets) - sum(found.buckets)
    remote.sum_s = found.sum_s
    return remote


class QuotaCollector:
    """The metrics of throttled clients, by kind of quota. Labels name no client, so that their number is bounded."""

    def __init__(self, quotas: ClientQuotas, metrics: RequestMetrics) -> None:
        self._quotas = quotas
        self._metrics = metrics

    def collect(self) -> Iterable[Family]:
        """Yields all families."""
        counts = self._quotas.counts
        times = {(kind.lower(),): number for kind, number in counts.throttled.items()}
        seconds = {(kind.lower(),): milliseconds / 1000 for kind, milliseconds in counts.throttle_ms.items()}
        text = "Connections that are not read, as their client is throttled."
        yield gauge("throttled_connections", text, self._metrics.muted)
        yield counters("throttled", "Requests and connections that exceeded a quota.", ["quota"], times)
        yield counters("throttle_seconds", "Throttle times of them.", ["quota"], seconds)
