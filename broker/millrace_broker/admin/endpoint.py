"""Serves the admin endpoint over HTTP: health, metrics, and maintenance on request.

    GET  /healthz                  whether the process is live, and the broker's state: 200, or 503 (`health`)
    GET  /readyz                   whether the broker is ready for clients: 200, or 503
    GET  /metrics                  Prometheus text; with ?names=kafka under Apache Kafka's names (`kafka_names`)
    POST /maintenance/retention    deletes what retention allows; answers with what was deleted per partition
    POST /maintenance/compaction   compacts logs by key; answers with bytes and records per partition
    POST /maintenance/verify       walks every log's segments; answers with findings per partition
    GET  /maintenance/scrub        how far the scrubber has come in each data directory, and the damage there
    GET  /strays                   logs that the cluster does not assign to this broker (`stray_requests`)
    POST /strays/adopt             makes a topic of stray logs again
    POST /strays/producer-ids      has this broker give higher producer ids, before that
    …    /console/…                the console in the browser, which has a login of its own (`console`)

A maintenance request may choose topics, and may be a dry run (`requests`); each answer also reports segment
by segment. One that makes no sense is answered 400, and 500 where the disk fails, both with a sentence (`error`).

`guard` says which requests are answered: each change needs `Authorization: Bearer TOKEN`, and so does reading beyond
loopback, where TLS hides the token from those on the way.

It may open while the broker still opens its logs: there are no metrics then, and maintenance is
answered 503.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, cast

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from millrace.addresses import Address, is_loopback
from millrace.clock import Clock
from millrace.errors import InvalidRequestError, SetupError, StorageError, UnknownTopicError
from millrace_broker.admin.collectors.all_collectors import Collectors
from millrace_broker.admin.collectors.families import Collector, Family, exposition, in_slices
from millrace_broker.admin.console.gateway import ConsoleGateway
from millrace_broker.admin.guard import ROOT as CONSOLE
from millrace_broker.admin.guard import Answered, Asked, Guard, Refused, judge
from millrace_broker.admin.health import Health
from millrace_broker.admin.kafka_names import KafkaNames
from millrace_broker.admin.maintenance import LogMaintenance
from millrace_broker.admin.requests import Action, MaintenanceRequest, read_request, selected_topics
from millrace_broker.admin.stray_requests import Response, StrayRequests
from millrace_broker.storage import CompactionReport, RetentionReport, VerifyReport

if TYPE_CHECKING:
    from ssl import SSLContext

logger = logging.getLogger(__name__)

UNENCRYPTED = (
    "everybody on the way reads the token of the admin endpoint; admin.security.protocol=SSL and a key store "
    "(ssl.keystore.location) encrypt it"
)
OWN_NAMES, KAFKA_NAMES = "millrace", "kafka"
UNAUTHORIZED = 401
STILL_STARTING = "the broker is still starting"
STARTING = Response(503, {"error": STILL_STARTING})
Report = RetentionReport | CompactionReport | VerifyReport


class AdminEndpoint:
    """The HTTP server of the admin endpoint; until `serve` is called, it only reports the broker's health."""

    def __init__(self, clock: Clock, health: Callable[[], Health], state: Callable[[], Mapping[str, object]]) -> None:
        """Takes functions that return the health (on a worker thread) and `state`, more JSON fields for the probes."""
        self._clock = clock
        self._health = health
        self._state = state
        self._maintenance: LogMaintenance | None = None
        self._strays: StrayRequests | None = None
        self._console: ConsoleGateway | None = None
        self._collectors = Collectors((), ())
        self._kafka_names = KafkaNames(clock.monotonic_s)
        self._runner: web.AppRunner | None = None

    def serve(
        self,
        maintenance: LogMaintenance,
        strays: StrayRequests,
        collectors: Collectors,
        console: ConsoleGateway | None = None,
    ) -> None:
        """Begins to serve metrics, maintenance, stray logs and the console, once the broker has started."""
        self._collectors = collectors
        self._maintenance = maintenance
        self._strays = strays
        self._console = console

    async def start(self, host: str, port: int, guard: Guard, context: SSLContext | None = None) -> tuple[str, int]:
        """Listens, by TLS if `context` is given, and returns the host and port that were bound.

        Raises SetupError where the address can't be bound.
        """
        if context is None and not is_loopback(host):
            logger.warning("%s: %s", Address(host, port), UNENCRYPTED)
        application = web.Application(middlewares=[_guarded(guard)])
        application.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.post("/maintenance/{action:retention|compaction|verify}", self._maintain),
                web.get("/maintenance/scrub", self._describe_scrub),
                web.get("/strays", self._describe_strays),
                web.post("/strays/{action:adopt|producer-ids}", self._change_strays),
                web.get(CONSOLE, self._show_console),
                web.get(CONSOLE + "/{page:.*}", self._show_console),
                web.post(CONSOLE + "/{page:.*}", self._show_console),
            ]
        )
        self._runner = web.AppRunner(application, handle_signals=False, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=context)
        try:
            await site.start()
        except OSError as error:
            raise SetupError(f"admin address {Address(host, port)}: {error.strerror or error}") from error
        bound: tuple[str, int] = self._runner.addresses[0][:2]
        return bound

    async def stop(self) -> None:
        """Closes the server once the requests under way have been answered, and ends the console."""
        if self._console is not None:
            await self._console.stop()
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

    async def _metrics(self, request: web.Request) -> web.Response:
        names = request.query.get("names", OWN_NAMES)
        if names not in (OWN_NAMES, KAFKA_NAMES):
            return web.json_response({"error": f"names: {OWN_NAMES} or {KAFKA_NAMES} is expected"}, status=400)
        machine = await asyncio.to_thread(lambda: list(_collected(self._collectors.on_thread)))
        families: Iterator[Family | None] = chain(machine, _collected(self._collectors.on_loop))
        if names == KAFKA_NAMES:
            families = self._kafka_names.renamed(families)
        text = await in_slices(exposition(families), self._clock)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _maintain(self, request: web.Request) -> web.Response:
        action = cast("Action", request.match_info["action"])  # by the route
        if self._maintenance is None:
            return _refused(action, 503, STILL_STARTING)
        try:
            wanted = read_request(action, request.query.items(), await request.read())
            topics = selected_topics(wanted.topics, self._maintenance.topics())
        except (InvalidRequestError, UnknownTopicError) as error:
            return _refused(action, 400, str(error))
        if wanted.does_everything and action != "verify":
            self._maintenance.note_request(action)
        try:
            return await self._reported(action, wanted, _work(self._maintenance, action, topics, wanted))
        except StorageError as error:
            logger.error("%s on request failed: %s", action, error)  # noqa: TRY400 -- the error says all
            return _refused(action, 500, str(error))

    async def _describe_scrub(self, _: web.Request) -> web.Response:
        if self._maintenance is None:
            return _response(STARTING)
        return web.json_response({"directories": await asyncio.to_thread(_scrubbed, self._maintenance)})

    async def _reported(
        self, action: Action, wanted: MaintenanceRequest, work: Awaitable[Sequence[Report]]
    ) -> web.Response:
        started_s = self._clock.monotonic_s()
        reports = await work
        partitions = await asyncio.to_thread(lambda: [dataclasses.asdict(report) for report in reports])
        seconds = round(self._clock.monotonic_s() - started_s, 6)
        body = {"action": action, "dry_run": wanted.dry_run, "seconds": seconds, "partitions": partitions}
        if action == "verify" and self._maintenance is not None:
            body["scrub"] = await asyncio.to_thread(_scrubbed, self._maintenance)
        return web.json_response(body)

    async def _describe_strays(self, request: web.Request) -> web.Response:
        return _response(STARTING if self._strays is None else await self._strays.describe(request.query))

    async def _show_console(self, request: web.Request) -> web.StreamResponse:
        if self._console is None:
            raise web.HTTPNotFound
        return await self._console.answer(request)

    async def _change_strays(self, request: web.Request) -> web.Response:
        if self._strays is None:
            return _response(STARTING)
        adopts = request.match_info["action"] == "adopt"
        work = self._strays.adopt if adopts else self._strays.skip_producer_ids
        return _response(await work(await request.read()))


def _without_details(answer: web.StreamResponse) -> web.Response:
    """Returns the response to a health probe without a token: of its JSON fields only `status`, without reasons."""
    return web.json_response({"status": "ok" if answer.status == 200 else "failed"}, status=answer.status)


def _collected(collectors: Iterable[Collector]) -> Iterator[Family | None]:
    return chain.from_iterable(one.collect() for one in collectors)


def _response(answer: Response) -> web.Response:
    return web.json_response(answer.fields, status=answer.status)


def _work(
    maintenance: LogMaintenance, action: Action, topics: Collection[str] | None, wanted: MaintenanceRequest
) -> Awaitable[Sequence[Report]]:
    if action == "retention":
        return maintenance.apply_retention(topics, dry_run=wanted.dry_run)
    if action == "compaction":
        return maintenance.compact(topics, dry_run=wanted.dry_run, only_due=wanted.only_due)
    return maintenance.verify(topics, dry_run=wanted.dry_run)


def _scrubbed(maintenance: LogMaintenance) -> list[dict[str, object]]:
    damage = maintenance.damage()
    return [
        {**dataclasses.asdict(one), "damage": damage.get(one.directory, ())} for one in maintenance.scrub_progress()
    ]


def _refused(action: Action, status: int, reason: str) -> web.Response:
    return web.json_response({"action": action, "error": reason}, status=status)


def _guarded(guard: Guard) -> Middleware:
    """Returns the aiohttp middleware that refuses requests as `judge` says; the console's have a login of their own."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == CONSOLE or request.path.startswith(f"{CONSOLE}/"):
            return await handler(request)
        verdict = judge(guard, _asked(request))
        if isinstance(verdict, Refused):
            headers = {"WWW-Authenticate": "Bearer"} if verdict.status == UNAUTHORIZED else {}
            return web.json_response({"error": verdict.reason}, status=verdict.status, headers=headers)
        answer = await handler(request)
        return _without_details(answer) if verdict is Answered.STATUS_ALONE else answer

    return check


def _asked(request: web.Request) -> Asked:
    headers = (request.headers.get(name, "") for name in ("Origin", "Authorization", "Content-Type"))
    return Asked(request.method, request.path, request.host, *headers)
