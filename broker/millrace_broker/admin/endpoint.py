"""Serves the admin endpoint over HTTP: health, metrics, and maintenance on request.

    GET  /healthz                  whether the process is live, and the broker's state: 200, or 503 (`health`)
    GET  /readyz                   whether the broker is ready for clients: 200, or 503
    GET  /metrics                  Prometheus text
    POST /maintenance/retention    deletes what retention allows; answers with what was deleted per partition
    POST /maintenance/compaction   compacts logs by key; answers with bytes and records per partition
    POST /maintenance/verify       walks every log's segments; answers with findings per partition

It listens on loopback by default; beyond loopback every request needs `Authorization: Bearer TOKEN`. It may open while
the broker still opens its logs: there are no metrics then, and maintenance is answered 503.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from millrace.addresses import Address
from millrace.clock import Clock
from millrace.errors import InvalidConfigError, SetupError
from millrace_broker.admin.health import Health
from millrace_broker.storage import CompactionReport, RetentionReport, VerifyReport

Report = RetentionReport | CompactionReport | VerifyReport


class Maintenance(Protocol):
    """The work that can be asked for; each call returns a report per partition."""

    async def apply_retention(self) -> Sequence[RetentionReport]:
        """Deletes old segments."""
        ...

    async def compact(self) -> Sequence[CompactionReport]:
        """Compacts logs to the last value of each key."""
        ...

    async def verify(self) -> Sequence[VerifyReport]:
        """Walks all segments."""
        ...


class AdminEndpoint:
    """The HTTP server."""

    def __init__(self, clock: Clock, health: Callable[[], Health], state: Callable[[], Mapping[str, object]]) -> None:
        """Takes `health`, which may wait for a disk and runs on a worker thread, and the `state` told beside it."""
        self._clock = clock
        self._health = health
        self._state = state
        self._maintenance: Maintenance | None = None
        self._registry = CollectorRegistry()
        self._runner: web.AppRunner | None = None

    def serve(self, maintenance: Maintenance, collectors: Iterable[Collector]) -> None:
        """Serves metrics and maintenance too, as the broker has started."""
        for collector in collectors:
            self._registry.register(collector)
        self._maintenance = maintenance

    async def start(self, host: str, port: int, token: str) -> tuple[str, int]:
        """Listens and returns the address that was bound.

        InvalidConfigError beyond loopback without a token, SetupError where the address can't be bound.
        """
        if not token and not _is_loopback(host):
            raise InvalidConfigError(f"the admin endpoint on {host} needs the property admin.token")
        application = web.Application(middlewares=[_authorized(token)] if token else [])
        application.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.post("/maintenance/{action:retention|compaction|verify}", self._maintain),
            ]
        )
        self._runner = web.AppRunner(application, handle_signals=False, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise SetupError(f"admin address {Address(host, port)}: {error.strerror or error}") from error
        bound: tuple[str, int] = self._runner.addresses[0][:2]
        return bound

    async def stop(self) -> None:
        """Closes the server once what is under way has been answered."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        health = await asyncio.to_thread(self._health)
        return self._told(health, health.not_live)

    async def _readyz(self, _: web.Request) -> web.Response:
        health = await asyncio.to_thread(self._health)
        return self._told(health, health.not_ready)

    def _told(self, health: Health, reasons: Sequence[str]) -> web.Response:
        body = {
            "status": "failed" if reasons else "ok",
            "reasons": reasons,
            "checks": {check.name: check.reasons for check in health.checks},
            **self._state(),
        }
        return web.json_response(body, status=503 if reasons else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        text = await asyncio.to_thread(generate_latest, self._registry)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _maintain(self, request: web.Request) -> web.Response:
        maintenance, action = self._maintenance, request.match_info["action"]
        if maintenance is None:
            return web.json_response({"action": action, "error": "the broker is still starting"}, status=503)
        work: Mapping[str, Callable[[], Awaitable[Sequence[Report]]]] = {
            "retention": maintenance.apply_retention,
            "compaction": maintenance.compact,
            "verify": maintenance.verify,
        }
        return await self._reported(action, work[action])

    async def _reported(self, action: str, work: Callable[[], Awaitable[Sequence[Report]]]) -> web.Response:
        started_s = self._clock.monotonic_s()
        reports = await work()
        partitions = await asyncio.to_thread(lambda: [dataclasses.asdict(report) for report in reports])
        seconds = self._clock.monotonic_s() - started_s
        return web.json_response({"action": action, "seconds": round(seconds, 6), "partitions": partitions})


def _authorized(token: str) -> Middleware:
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
