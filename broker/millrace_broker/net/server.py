"""The listening socket and its connections, on one event loop.

`drain` is the graceful end: no new connections, no new requests, waiting fetches answered with what there is,
every reply sent; what has not left within the time allowed is cut off.
"""

from __future__ import annotations

import asyncio
import errno
import logging

from millrace.errors import SetupError
from millrace.wire.frame import SCRATCH_BYTES
from millrace_broker.handlers.api import Services
from millrace_broker.metrics import RequestMetrics
from millrace_broker.net.connection import Connection

logger = logging.getLogger(__name__)

BACKLOG = 512


class Server:
    """Accepts connections for the broker's services."""

    def __init__(self, services: Services, metrics: RequestMetrics) -> None:
        self.services = services
        self.metrics = metrics
        self.scratch = bytearray(SCRATCH_BYTES)
        self._connections: set[Connection] = set()
        self._all_closed = asyncio.Event()
        self._listener: asyncio.Server | None = None

    @property
    def connection_count(self) -> int:
        """Connections that are open."""
        return len(self._connections)

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Bind, without serving yet; the address that was bound. SetupError where it is in use or not ours."""
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(
                lambda: Connection(self), host, port, backlog=BACKLOG, start_serving=False
            )
        except OSError as error:
            reason = "is in use" if error.errno == errno.EADDRINUSE else f"can't be bound: {error.strerror or error}"
            raise SetupError(f"address {host}:{port} {reason}") from error
        bound: tuple[str, int] = self._listener.sockets[0].getsockname()[:2]
        return bound

    async def serve(self) -> None:
        """Begin to accept."""
        assert self._listener is not None
        await self._listener.start_serving()

    async def drain(self, timeout_s: float) -> None:
        """Stop serving as the module's text says, within `timeout_s`."""
        if self._listener is not None:
            self._listener.close()
        self.services.replicas.purgatory.expire_all()
        for connection in tuple(self._connections):
            connection.drain()
        if not self._connections:
            return
        try:
            await asyncio.wait_for(self._all_closed.wait(), timeout_s)
        except TimeoutError:
            logger.warning("cutting off %d connections that did not drain", len(self._connections))
            for connection in tuple(self._connections):
                connection.abort()

    def opened(self, connection: Connection) -> bool:
        """Keep a new connection, if there is room."""
        if len(self._connections) >= self.services.config.max_connections:
            logger.warning("refusing %s: max.connections=%d", connection.peer, self.services.config.max_connections)
            return False
        self._connections.add(connection)
        self._all_closed.clear()
        return True

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self._connections.discard(connection)
        if not self._connections:
            self._all_closed.set()
