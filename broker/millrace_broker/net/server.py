"""The listening sockets and their connections, on one event loop.

A connection that neither sends nor takes a byte for `connections.max.idle.ms` is closed, unless it waits for an answer.

`drain` is the graceful end. The server accepts no connections and reads no requests any more, answers waiting fetches
with what there is, and sends every reply; connections that still have replies after the timeout are cut off.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from millrace.addresses import Address
from millrace.clock import Clock
from millrace.descriptor_pool import OTHER_USES
from millrace.errors import InvalidConfigError, SetupError
from millrace.wire.frame import SCRATCH_BYTES
from millrace_broker.handlers.api import Services
from millrace_broker.metrics import RequestMetrics
from millrace_broker.net.admission import BROKER, Accepting, Admission, ConnectionRates, Scopes
from millrace_broker.net.connection import Connection, NewGate
from millrace_broker.net.cycle_collector import CycleCollector
from millrace_broker.net.long_requests import LongRequests
from millrace_broker.net.memory import MemoryInFlight
from millrace_broker.net.request_log import RequestLog
from millrace_broker.net.tls import RECEIVE_BYTES, TlsLayer
from millrace_broker.properties.listeners import Listener
from millrace_broker.quotas.measures import QuotaWindows

if TYPE_CHECKING:
    from millrace_broker.net.tls_listener import TlsListener

logger = logging.getLogger(__name__)

BACKLOG = 512
IDLE_CHECKS = 10  # within connections.max.idle.ms
STALLED_S = 10.0  # that a request may go without a byte while others wait for its memory
STALLED_CHECKS = 10  # within that time
STRANGERS_PART = 16  # of the memory for requests is that of clients which have not logged in, where they have to
KEPT_PART = 8  # one in eight descriptors is never a connection's


class Server:
    """Accepts connections for the broker's services, on all of its listeners.

    `spared_listener` is the listener of other brokers, to which the broker-wide limits of connections do not apply.
    """

    def __init__(
        self, services: Services, metrics: RequestMetrics, clock: Clock, spared_listener: str | None = None
    ) -> None:
        self.services = services
        self.metrics = metrics
        self.clock = clock
        config = services.config
        self.scratch = bytearray(SCRATCH_BYTES)
        limit_bytes = config.queued_bytes_limit
        self.memory = MemoryInFlight(limit_bytes, self._reclaim_memory, "requests")
        self.strangers_memory = MemoryInFlight(
            limit_bytes // STRANGERS_PART, self._reclaim_memory, "clients that have not logged in"
        )
        self.request_log = RequestLog(services)
        self.cycles = CycleCollector()
        self.long_requests = LongRequests(clock, self.cycles)
        self._spared_listener = spared_listener
        self._admission = Admission(_last_descriptors(), spared_listener)
        self._accepting = Accepting(
            ConnectionRates(QuotaWindows(config.quota_window_num, config.quota_window_size_seconds * 1000)),
            self._rate_limits,
            services.quotas.connection_rate,
            services.quotas.counts,
            now_ms=clock.monotonic_ms,
            call_later=lambda delay_s, action: asyncio.get_running_loop().call_later(delay_s, action),
        )
        self._connections: set[Connection] = set()
        self._all_closed = asyncio.Event()
        self._listening: list[asyncio.Server] = []
        self._tls: list[TlsListener] = []
        self._tls_scratch = memoryview(bytearray(RECEIVE_BYTES))
        self._idle_timer: asyncio.TimerHandle | None = None
        self._stalled_timer: asyncio.TimerHandle | None = None

    @property
    def connection_count(self) -> int:
        """Returns the number of open connections."""
        return len(self._connections)

    async def listen(self, listener: Listener, new_gate: NewGate | None = None) -> Address:
        """Binds one more listener, and returns the address that was bound; `serve` begins to accept connections.

        `new_gate` makes the SASL login of a connection, which holds its requests back until the client has logged in.
        Raises SetupError where the address can't be bound, InvalidConfigError where the certificates can't be used.
        """
        loop = asyncio.get_running_loop()
        made = await self._protocols(listener, new_gate)
        host, port = listener.address
        try:
            listening = await loop.create_server(made, host, port, backlog=BACKLOG, start_serving=False)
        except OSError as error:
            raise _cannot_listen(listener.address, error) from error
        self._listening.append(listening)
        return Address(*listening.sockets[0].getsockname()[:2])

    async def renew_certificates(self, properties: Mapping[str, str]) -> None:
        """Makes new connections use the certificates in the files that `properties`, the broker's newest, name.

        Certificates that can't be used are logged, and the former ones stay in use.
        """
        for listener in self._tls:
            try:
                is_new = await asyncio.to_thread(listener.renew, properties)
            except InvalidConfigError as error:
                logger.error("listener %s keeps its former certificates: %s", listener.name, error)  # noqa: TRY400
            else:
                if is_new:
                    logger.info("listener %s uses new certificates", listener.name)

    def check_certificates(self, properties: Mapping[str, str]) -> None:
        """Raises InvalidConfigError where a TLS listener can't use the certificates or settings in these properties."""
        for listener in self._tls:
            listener.check(properties)

    async def _protocols(self, listener: Listener, new_gate: NewGate | None) -> Callable[[], asyncio.BaseProtocol]:
        """Returns a function that makes the asyncio protocol of a listener's connection. Raises InvalidConfigError."""
        if not listener.protocol.uses_tls:
            return lambda: Connection(self, listener.name, new_gate)
        # A broker without TLS is spared the time and memory of what reads certificates.
        from millrace_broker.net.tls_listener import TlsListener  # noqa: PLC0415

        try:
            secured = await asyncio.to_thread(TlsListener, listener)
        except InvalidConfigError as error:
            raise InvalidConfigError(f"listener {listener.name}: {error}") from error
        self._tls.append(secured)
        return lambda: TlsLayer(Connection(self, secured.name, new_gate), secured, self._tls_scratch, self.metrics)

    async def serve(self) -> None:
        """Begins to accept connections.

        Raises SetupError where another process has begun to listen at an address first.
        """
        for listening in self._listening:
            bound = Address(*listening.sockets[0].getsockname()[:2])
            try:
                await listening.start_serving()
            except OSError as error:
                raise _cannot_listen(bound, error) from error
        self._check_idle()
        self._check_stalled()

    async def drain(self, timeout_s: float) -> None:
        """Stops accepting and reading, sends all replies, and closes connections that are open after `timeout_s`."""
        for listening in self._listening:
            listening.close()
        for timer in (self._idle_timer, self._stalled_timer):
            if timer is not None:
                timer.cancel()
        self.services.replicas.purgatory.expire_all()
        for connection in tuple(self._connections):
            connection.drain()
        if not self._connections:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_closed.wait(), timeout_s)
        if self._connections:
            logger.warning("cutting off %d connections that did not drain", len(self._connections))
            for connection in tuple(self._connections):
                connection.abort()

    def opened(self, connection: Connection) -> bool:
        """Adds a new connection and returns True; returns False, and logs the limit, where a limit is reached."""
        session, limits = connection.session, self.services.configs.connection_limits
        limit = self._admission.admit(session.host, session.listener, limits, connection.descriptor)
        if limit is not None:
            logger.warning("refusing %s on listener %s: %s", connection.peer, session.listener, limit)
            return False
        self._connections.add(connection)
        self._all_closed.clear()
        self._accepting.take(connection)
        return True

    def closed(self, connection: Connection) -> None:
        """Stops counting a connection that has ended."""
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        self.cycles.connection_ended()
        self._admission.leave(connection.session.host, connection.session.listener)
        if not self._connections:
            self._all_closed.set()

    def _rate_limits(self, listener: str) -> Scopes:
        """Returns the limits of new connections per second: the listener's, and the broker's unless that is spared."""
        limits = self.services.configs.connection_limits
        own = {listener: limits.per_second(listener)}
        return own if listener == self._spared_listener else {BROKER: limits.per_second(BROKER), **own}

    def _check_idle(self) -> None:
        max_idle_s = self.services.config.connections_max_idle_ms / 1000
        if max_idle_s < 0:
            return
        now = self.clock.monotonic_s()
        for connection in tuple(self._connections):
            if now - connection.last_active > max_idle_s and not connection.is_waiting:
                logger.info(
                    "closing the connection of %s: idle for %d s", connection.peer, now - connection.last_active
                )
                self.metrics.idle_closed += 1
                connection.abort()
        self._idle_timer = asyncio.get_running_loop().call_later(max_idle_s / IDLE_CHECKS, self._check_idle)

    def _check_stalled(self) -> None:
        since_s = self.clock.monotonic_s() - STALLED_S
        stalled = [one for memory in (self.memory, self.strangers_memory) for one in memory.stalled(since_s)]
        if stalled:
            logger.warning(
                "closing %d connections: nothing has come of their requests for %d s, and others wait for the memory",
                len(stalled), STALLED_S,
            )  # fmt: skip
            self.metrics.idle_closed += len(stalled)
            for connection in stalled:
                connection.abort()
        self._stalled_timer = asyncio.get_running_loop().call_later(STALLED_S / STALLED_CHECKS, self._check_stalled)

    def _reclaim_memory(self) -> None:
        for connection in tuple(self._connections):
            connection.trim()


async def check_addresses(addresses: Iterable[Address]) -> None:
    """Binds each address for a moment; raises SetupError where one can't be bound."""
    loop = asyncio.get_running_loop()
    for address in addresses:
        try:
            probe = await loop.create_server(asyncio.Protocol, *address, start_serving=False)
        except OSError as error:
            raise _cannot_listen(address, error) from error
        probe.close()


def _cannot_listen(address: Address, error: OSError) -> SetupError:
    reason = "is in use" if error.errno == errno.EADDRINUSE else f"can't be bound: {error.strerror or error}"
    return SetupError(f"address {address} {reason}")


def _last_descriptors() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit - min(OTHER_USES, limit // KEPT_PART)
