"""One client connection: requests come in by frames, replies leave in the order of their requests.

    bytes → FrameBuffer → header → handler → a slot in `_pending` → … → socket, when all earlier slots have left

A handler may answer later (a future); younger requests are handled meanwhile, but their replies wait in line.
Two limits stop the reading: too many slots in line, or a socket that the peer does not drain. Frames that
had already arrived by then are copied to a backlog, which one receive buffer bounds, and are handled first when
the line moves again. So a slow or hostile peer costs no more than its own connection's share of memory.

What ends a connection: end of stream; bytes that are no request, or a request that is not served (logged, as
Kafka does, since no answer could be understood); an unexpected error of a handler (logged with its traceback).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from time import perf_counter
from typing import Protocol, cast

from millrace.errors import MillraceError, UnsupportedVersionError, WireError
from millrace.wire.api import ApiKey
from millrace.wire.encoder import Parts
from millrace.wire.frame import SIZE_BYTES, FrameBuffer
from millrace.wire.header import RequestHeader, encode_response_header, read_request_header
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.metrics import RequestMetrics
from millrace_broker.net.send import send

logger = logging.getLogger(__name__)

MAX_PENDING_REPLIES = 1024
SEND_BYTES = 1 << 20
WRITE_HIGH_WATER_BYTES = 4 << 20


class ConnectionOwner(Protocol):
    """The server, as its connections see it."""

    services: Services
    scratch: bytearray
    metrics: RequestMetrics

    def opened(self, connection: Connection) -> bool:
        """Whether the connection may stay."""
        ...

    def closed(self, connection: Connection) -> None:
        """The connection has ended."""
        ...


class _Slot:
    """A reply's place in line: the header at once, the message when it is there."""

    __slots__ = ("header", "message")

    def __init__(self, header: bytes) -> None:
        self.header = header
        self.message: Parts | asyncio.Future[Parts] | None = None


class Connection(asyncio.BufferedProtocol):
    """The broker's side of one socket."""

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._frames = FrameBuffer(owner.scratch, owner.services.config.socket_request_max_bytes)
        self._pending: deque[_Slot] = deque()
        self._backlog: deque[bytes] = deque()
        self._ready_bytes = 0
        self._socket_full = False
        self._draining = False
        self._transport: asyncio.Transport
        self._host = self.peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket, if the server has room."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
        self._host = str(host)
        self.peer = f"{host}:{port}"
        if not self._owner.opened(self):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything that waits."""
        if exc is not None:
            logger.debug("connection of %s broke: %s", self.peer, exc)
        self._backlog.clear()
        for slot in self._pending:
            if isinstance(slot.message, asyncio.Future):
                slot.message.cancel()
        self._pending.clear()
        self._owner.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Where the event loop puts the next bytes."""
        return self._frames.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle every whole request that has arrived, then send what is ready in one go."""
        try:
            for frame in self._frames.received(nbytes):
                if self._is_blocked:
                    self._backlog.append(bytes(frame))
                else:
                    self._handle(frame)
        except WireError as error:
            self._refuse(error)
        self._work_off_backlog()

    def pause_writing(self) -> None:
        """The peer does not drain its socket."""
        self._socket_full = True
        self._update_reading()

    def resume_writing(self) -> None:
        """The peer has drained its socket."""
        self._socket_full = False
        self._work_off_backlog()

    def drain(self) -> None:
        """Read no more; close as soon as every reply has left."""
        self._draining = True
        self._update_reading()
        self._close_if_drained()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    @property
    def _is_blocked(self) -> bool:
        return self._socket_full or len(self._pending) >= MAX_PENDING_REPLIES

    def _handle(self, frame: memoryview) -> None:
        header = read_request_header(frame)
        api = self._api(header)
        request = Request(header.api_version, header.client_id, frame[header.body_position :], self._host)
        started = perf_counter()
        reply = self._call(api, request)
        self._owner.metrics.count(header.api_key, len(frame), perf_counter() - started)
        if reply is not None:
            self._line_up(header, api, reply)

    def _api(self, header: RequestHeader) -> Api:
        api = self._owner.services.apis.get(header.api_key)
        if api is None:
            raise UnsupportedVersionError(f"API key {header.api_key} is not served")
        if header.api_version not in api.versions and api.key != ApiKey.API_VERSIONS:
            raise UnsupportedVersionError(
                f"{api.key.name} v{header.api_version} is not served; "
                f"v{api.versions.minimum} to v{api.versions.maximum} are"
            )
        return api

    def _call(self, api: Api, request: Request) -> Reply:
        try:
            return api.handle(self._owner.services, request)
        except MillraceError:
            raise
        except Exception as error:
            logger.exception("%s v%d of %s failed", api.key.name, request.version, self.peer)
            raise WireError(f"{api.key.name} v{request.version} failed") from error

    def _line_up(self, header: RequestHeader, api: Api, reply: Parts | asyncio.Future[Parts]) -> None:
        version = header.api_version if header.api_version in api.versions else 0
        slot = _Slot(encode_response_header(header.api_key, version, header.correlation_id))
        slot.message = reply
        self._pending.append(slot)
        if isinstance(reply, asyncio.Future):
            reply.add_done_callback(lambda done: self._answered(slot, done))
        else:
            self._ready_bytes += sum(map(len, reply))
            if self._ready_bytes >= SEND_BYTES or len(self._pending) >= MAX_PENDING_REPLIES:
                self._send_ready()

    def _answered(self, slot: _Slot, done: asyncio.Future[Parts]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            logger.error("a request of %s failed", self.peer, exc_info=error)
            self._transport.abort()
            return
        slot.message = done.result()
        self._send_ready()
        self._work_off_backlog()

    def _send_ready(self) -> None:
        parts: Parts = []
        while self._pending and isinstance(self._pending[0].message, list):
            slot = self._pending.popleft()
            message = cast("Parts", slot.message)
            size = len(slot.header) + sum(map(len, message))
            parts += (size.to_bytes(SIZE_BYTES, "big"), slot.header, *message)
        self._ready_bytes = 0
        if parts:
            send(self._transport, parts)
        self._update_reading()
        self._close_if_drained()

    def _work_off_backlog(self) -> None:
        try:
            while self._backlog and not self._is_blocked:
                self._handle(memoryview(self._backlog.popleft()))
        except WireError as error:
            self._refuse(error)
        self._send_ready()

    def _update_reading(self) -> None:
        if self._transport.is_closing():
            return
        if self._draining or self._is_blocked or self._backlog:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _refuse(self, error: MillraceError) -> None:
        logger.warning("closing the connection of %s: %s", self.peer, error)
        self._owner.metrics.refused += 1
        self._backlog.clear()
        self._draining = True
        self._send_ready()

    def _close_if_drained(self) -> None:
        if self._draining and not self._pending and not self._backlog:
            self._transport.close()
