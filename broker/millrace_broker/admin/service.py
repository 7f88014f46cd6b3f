"""Opens the admin endpoint of a broker and writes its address to `admin.address` in the first data directory.

The HTTP server and the metrics library take as long to import as all the rest of the broker, so they are imported in a
worker thread, and only once clients are served or where the logs take long to open.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from millrace.addresses import Address, is_loopback
from millrace.clock import Clock
from millrace.errors import InvalidConfigError
from millrace.fs import FileSystem, write_file_durably
from millrace_broker.admin.guard import ConsoleAccess, Guard, kept_token, token_file
from millrace_broker.admin.health import Health
from millrace_broker.admin.maintenance import LogMaintenance
from millrace_broker.admin.stray_requests import StrayRequests
from millrace_broker.admin.vitals import Vitals
from millrace_broker.handlers.api import Services
from millrace_broker.metrics import ClockCounts, Durations, MaintenanceCounts, RequestMetrics
from millrace_broker.net.server import Server
from millrace_broker.startup.options import BrokerOptions

if TYPE_CHECKING:
    from ssl import SSLContext

    from millrace_broker.admin.collectors.all_collectors import Collectors
    from millrace_broker.admin.console.gateway import ConsoleGateway
    from millrace_broker.admin.endpoint import AdminEndpoint

logger = logging.getLogger(__name__)

ADDRESS_FILE = "admin.address"
KEY_BYTES = 32


class Served(NamedTuple):
    """The parts of a started broker that the endpoint reports on; `listeners` has their bound addresses by name."""

    maintenance: LogMaintenance
    strays: StrayRequests
    metrics: RequestMetrics
    services: Services
    server: Server
    vitals: Vitals
    counts: MaintenanceCounts
    loop_delays: Durations
    clock_counts: ClockCounts
    listeners: Mapping[str, Address]


class AdminService:
    """The admin endpoint of a broker, from when it begins to listen until the broker stops.

    `health` may wait for a disk, so a worker thread calls it; `state` returns more JSON fields of the health responses.
    """

    def __init__(
        self,
        options: BrokerOptions,
        fs: FileSystem,
        clock: Clock,
        health: Callable[[], Health],
        state: Callable[[], Mapping[str, object]],
    ) -> None:
        self._listen_at, self._tls = options.admin, options.admin_tls
        self._given_token = options.broker.admin_token
        self._token_file = token_file(options.broker.admin_token_file, options.data_dirs[0])
        self._has_authorizer = bool(options.broker.authorizer_class_name)
        self._console = options.console
        self._fs = fs
        self._clock = clock
        self._address_file = f"{options.data_dirs[0]}/{ADDRESS_FILE}"
        self._health = health
        self._state = state
        self._endpoint: AdminEndpoint | None = None
        self._address: Address
        self._guard: Guard

    @property
    def is_listening(self) -> bool:
        """Returns whether the endpoint has begun to listen."""
        return self._endpoint is not None

    async def listen(self) -> None:
        """Opens the endpoint, which reports the broker's health from now on.

        Raises SetupError where the address can't be bound, InvalidConfigError where the property `admin.token` is
        needed or the file of the token has none.
        """
        self._guard = await asyncio.to_thread(self._new_guard)
        self._endpoint = await asyncio.to_thread(self._new_endpoint)
        context = await asyncio.to_thread(_context, self._tls)
        host, port = await self._endpoint.start(self._listen_at.host, self._listen_at.port, self._guard, context)
        self._address = Address(host=host, port=port)
        logger.info("admin endpoint at %s://%s", "http" if context is None else "https", self._address)

    async def serve(self, served: Served) -> None:
        """Begins to serve metrics, maintenance, stray logs and the console; writes the endpoint's address to a file."""
        assert self._endpoint is not None
        collectors = await asyncio.to_thread(_collectors, served, self._clock)
        self._endpoint.serve(served.maintenance, served.strays, collectors, self._console_gateway(served))
        try:
            content = f"{self._address}\n".encode()
            await asyncio.to_thread(write_file_durably, self._fs, self._address_file, content)
        except OSError as error:  # a full disk is no reason not to serve what is on it
            logger.warning("%s is not written: %s", self._address_file, error)

    def remove_address(self) -> None:
        """Removes the file with the endpoint's address, also one left by a broker that was killed."""
        if self._fs.exists(self._address_file):
            self._fs.unlink(self._address_file)

    async def stop(self) -> None:
        """Closes the endpoint once the requests under way have been answered."""
        if self._endpoint is not None:
            await self._endpoint.stop()

    def _new_guard(self) -> Guard:
        if self._given_token:
            return Guard(self._given_token)
        if not is_loopback(self._listen_at.host):
            raise InvalidConfigError(f"the admin endpoint on {self._listen_at.host} needs the property admin.token")
        return Guard(kept_token(self._fs, self._token_file), reading_is_open=not self._has_authorizer)

    def _console_gateway(self, served: Served) -> ConsoleGateway | None:
        if self._console is None:
            return None
        from millrace_broker.admin.console.gateway import ConsoleGateway, ConsoleProcess  # noqa: PLC0415
        from millrace_broker.admin.console.own_troubles import own_troubles  # noqa: PLC0415

        def troubles() -> list[str]:
            memory_bytes, now_ms = served.server.memory.used_bytes, self._clock.monotonic_ms()
            return own_troubles(self._health(), memory_bytes, served.clock_counts.last, now_ms)

        address = served.listeners[self._console.listener]
        is_open = self._guard.reading_is_open and not self._console.may_change
        process = ConsoleProcess(self._console.settings(str(address.from_this_machine), has_login=not is_open))
        access = ConsoleAccess("" if is_open else self._guard.token, secrets.token_bytes(KEY_BYTES), self._clock)
        logger.info("console at the admin endpoint: /console/")
        return ConsoleGateway(process, access, troubles, may_change=self._console.may_change)

    def _new_endpoint(self) -> AdminEndpoint:
        from millrace_broker.admin.endpoint import AdminEndpoint  # noqa: PLC0415

        return AdminEndpoint(self._clock, self._health, self._state)


def _context(properties: Mapping[str, str] | None) -> SSLContext | None:
    """Returns the endpoint's SSL context; None without TLS, whose modules are then not imported."""
    if properties is None:
        return None
    from millrace.security.tls import server_context  # noqa: PLC0415

    return server_context(properties)


def _collectors(served: Served, clock: Clock) -> Collectors:
    from millrace_broker.admin.collectors.all_collectors import broker_collectors  # noqa: PLC0415
    from millrace_broker.admin.collectors.machine import Machine  # noqa: PLC0415

    services, server, vitals = served.services, served.server, served.vitals
    machine = Machine(
        vitals.facts,
        vitals.folders,
        served.counts,
        served.loop_delays,
        clock,
        served.clock_counts,
        services.controller is not None,
        served.maintenance.scrub_progress,
    )
    return broker_collectors(
        served.metrics, services, machine, lambda: server.connection_count, lambda: server.memory.used_bytes
    )
