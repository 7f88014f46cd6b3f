"""The admin endpoint over HTTP: health, metrics, and maintenance on request.

    GET  /healthz                  200 and the broker's state
    GET  /metrics                  Prometheus text
    POST /maintenance/retention    delete what retention allows; answers with what was deleted per partition
    POST /maintenance/compaction   compact logs by key; answers with bytes and records per partition
    POST /maintenance/verify       walk every log's segments; answers with findings per partition

It listens on loopback unless told otherwise; beyond loopback every request needs `Authorization: Bearer TOKEN`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import ipaddress
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from millrace.errors import InvalidConfigError, SetupError, error_name
from millrace.wire.api import ApiKey
from millrace_broker.metrics import RequestMetrics
from millrace_broker.replication.replica_manager import ReplicaManager

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Maintenance(Protocol):
    """The work that can be asked for; each call answers with a report per partition."""

    async def apply_retention(self) -> Sequence[Any]:
        """Delete old segments."""
        ...

    async def compact(self) -> Sequence[Any]:
        """Keep the last value of each key."""
        ...

    async def verify(self) -> Sequence[Any]:
        """Walk all segments."""
        ...


API_COUNTERS = (
    ("requests", "Requests handled.", "requests"),
    ("request_bytes", "Bytes of requests.", "bytes_in"),
    ("response_bytes", "Bytes of replies.", "bytes_out"),
    ("request_queue_seconds", "Time between a request's arrival and its handler.", "queue_seconds"),
    ("request_seconds", "Time in handlers.", "handler_seconds"),
    ("request_total_seconds", "Time between a request's arrival and its reply's leaving.", "total_seconds"),
)


class BrokerCollector(Collector):
    """What Prometheus is told, read from the broker's counters at the time of the request, on any thread."""

    def __init__(
        self,
        metrics: RequestMetrics,
        replicas: ReplicaManager,
        connections: Callable[[], int],
        bytes_in_flight: Callable[[], int],
    ) -> None:
        self._metrics = metrics
        self._replicas = replicas
        self._connections = connections
        self._bytes_in_flight = bytes_in_flight

    def collect(self) -> Iterable[Metric]:
        """All metric families."""
        yield from self._requests()
        yield from self._partitions()
        yield GaugeMetricFamily("millrace_connections", "Open connections.", value=self._connections())
        yield GaugeMetricFamily(
            "millrace_purgatory_size", "Requests that wait for records.", value=len(self._replicas.purgatory)
        )
        yield GaugeMetricFamily(
            "millrace_bytes_in_flight",
            "Memory of requests cut short or in line, and of replies not yet taken.",
            value=self._bytes_in_flight(),
        )
        yield CounterMetricFamily(
            "millrace_connections_idle_closed", "Connections closed for being idle.", value=self._metrics.idle_closed
        )
        yield CounterMetricFamily(
            "millrace_connections_refused", "Connections closed for what they sent.", value=self._metrics.refused
        )

    def _requests(self) -> Iterable[Metric]:
        families = [
            (CounterMetricFamily(f"millrace_{name}", text, labels=["api"]), field) for name, text, field in API_COUNTERS
        ]
        for api_key, count in tuple(self._metrics.by_api.items()):
            for family, field in families:
                family.add_metric([ApiKey(api_key).name.lower()], getattr(count, field))
        errors = CounterMetricFamily(
            "millrace_request_errors", "Error codes in replies: one request can have many.", labels=["api", "error"]
        )
        for (api_key, code), times in self._metrics.errors.copy().items():
            errors.add_metric([ApiKey(api_key).name.lower(), error_name(code)], times)
        return [*(family for family, _ in families), errors]

    def _partitions(self) -> Iterable[Metric]:
        labels = ["topic", "partition"]
        start = GaugeMetricFamily("millrace_log_start_offset", "First offset in the log.", labels=labels)
        end = GaugeMetricFamily("millrace_log_end_offset", "Offset after the last in the log.", labels=labels)
        size = GaugeMetricFamily("millrace_log_size_bytes", "Bytes in the log.", labels=labels)
        unstable = GaugeMetricFamily(
            "millrace_last_stable_offset_lag", "Offsets that wait for open transactions to end.", labels=labels
        )
        for (topic, index), partition in tuple(self._replicas.partitions.items()):
            values = [topic, str(index)]
            start.add_metric(values, partition.log.log_start_offset)
            end.add_metric(values, partition.log.log_end_offset)
            size.add_metric(values, partition.log.size_bytes)
            high_watermark = partition.high_watermark
            stable = partition.log.producers.first_unstable_offset(high_watermark)
            unstable.add_metric(values, high_watermark - stable)
        return start, end, size, unstable


class AdminEndpoint:
    """The HTTP server."""

    def __init__(
        self, maintenance: Maintenance, collectors: Iterable[Collector], state: Callable[[], dict[str, Any]]
    ) -> None:
        self._maintenance = maintenance
        self._state = state
        self._registry = CollectorRegistry()
        for collector in collectors:
            self._registry.register(collector)
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int, token: str) -> tuple[str, int]:
        """Listen; the address bound. InvalidConfigError beyond loopback without a token, SetupError in use."""
        if not token and not _is_loopback(host):
            raise InvalidConfigError(f"the admin endpoint on {host} needs the property admin.token")
        application = web.Application(middlewares=[_authorized(token)] if token else [])
        application.add_routes(
            [
                web.get("/healthz", self._health),
                web.get("/metrics", self._metrics),
                web.post("/maintenance/retention", self._retention),
                web.post("/maintenance/compaction", self._compaction),
                web.post("/maintenance/verify", self._verify),
            ]
        )
        self._runner = web.AppRunner(application, handle_signals=False, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise SetupError(f"admin address {host}:{port}: {error.strerror or error}") from error
        bound: tuple[str, int] = self._runner.addresses[0][:2]
        return bound

    async def stop(self) -> None:
        """Answer what is under way and close."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response(self._state())

    async def _metrics(self, _: web.Request) -> web.Response:
        text = await asyncio.to_thread(generate_latest, self._registry)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _retention(self, _: web.Request) -> web.Response:
        return await _reported("retention", self._maintenance.apply_retention)

    async def _compaction(self, _: web.Request) -> web.Response:
        return await _reported("compaction", self._maintenance.compact)

    async def _verify(self, _: web.Request) -> web.Response:
        return await _reported("verify", self._maintenance.verify)


async def _reported(action: str, work: Callable[[], Awaitable[Sequence[Any]]]) -> web.Response:
    started = time.perf_counter()
    reports = await work()
    partitions = await asyncio.to_thread(lambda: [dataclasses.asdict(report) for report in reports])
    seconds = time.perf_counter() - started
    return web.json_response({"action": action, "seconds": round(seconds, 6), "partitions": partitions})


def _authorized(token: str) -> Any:
    expected = f"Bearer {token}".encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode(errors="surrogateescape")  # as aiohttp has decoded it
        if not hmac.compare_digest(given, expected):
            raise web.HTTPUnauthorized(headers={"WWW-Authenticate": "Bearer"})
        return await handler(request)

    return check


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
