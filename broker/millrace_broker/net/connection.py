"""One client connection: requests come in by frames, replies leave in the order of their requests.

    bytes → FrameBuffer → header → handler → a slot in `_pending` → … → socket, when all earlier slots have left

A handler may answer later (a future); younger requests are handled meanwhile, but their replies wait in line.
Three limits stop the reading: too many slots in line, a socket that the peer does not drain, and memory in flight
(`net.memory`), where a frame that is cut short needs more of it. Frames that
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
from millrace_broker.metrics import ApiCount, RequestMetrics
from millrace_broker.net.memory import MemoryInFlight
from millrace_broker.net.request_log import RequestLog, RequestTimes
from millrace_broker.net.send import Outgoing

logger = logging.getLogger(__name__)

MAX_PENDING_REPLIES = 1024
SMALL_READ_BYTES = 64 << 10
SEND_BYTES = 1 << 20
WRITE_HIGH_WATER_BYTES = 1 << 20


class ConnectionOwner(Protocol):
    """The server, as its connections see it."""

    services: Services
    scratch: bytearray
    metrics: RequestMetrics
    memory: MemoryInFlight
    request_log: RequestLog

    def opened(self, connection: Connection) -> bool:
        """Whether the connection may stay."""
        ...

    def closed(self, connection: Connection) -> None:
        """The connection has ended."""
        ...


class _Slot:
    """A reply's place in line: the header at once, the message when it is there."""

    __slots__ = ("count", "header", "message", "times")

    def __init__(self, header: bytes, count: ApiCount, times: RequestTimes) -> None:
        self.header = header
        self.count = count
        self.times = times
        self.message: Parts | asyncio.Future[Parts] | None = None


class Connection(asyncio.BufferedProtocol):
    """The broker's side of one socket."""

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._frames = FrameBuffer(owner.scratch, owner.services.config.socket_request_max_bytes)
        self._pending: deque[_Slot] = deque()
        self._backlog: deque[tuple[float, bytes]] = deque()
        self._backlog_bytes = 0
        self._ready_bytes = 0
        self._held_bytes = 0
        self._arrived = 0.0
        self._socket_full = False
        self._needs_memory = False
        self._draining = False
        self._transport: asyncio.Transport
        self._outgoing: Outgoing
        self.host = "?"
        self.peer = "?"
        self.last_active = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket, if the server has room."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        self.host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
        self.peer = f"{self.host}:{port}"
        self.last_active = perf_counter()
        self._outgoing = Outgoing(
            self._transport,
            uses_sendfile=self._owner.services.config.fetch_sendfile_enable,
            on_sent=self._work_off_backlog,
            on_failure=self._cut_off,
        )
        if not self._owner.opened(self):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything that waits."""
        if exc is not None:
            logger.debug("connection of %s broke: %s", self.peer, exc)
        self._backlog.clear()
        self._outgoing.clear()
        self._owner.memory.forget(self)
        for slot in self._pending:
            if isinstance(slot.message, asyncio.Future):
                slot.message.cancel()
        self._pending.clear()
        self._owner.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Where the event loop puts the next bytes."""
        return self._frames.writable(SMALL_READ_BYTES) if self._owner.memory.is_short else self._frames.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle every whole request that has arrived, then send what is ready in one go."""
        self._arrived = self.last_active = perf_counter()
        try:
            for frame in self._frames.received(nbytes):
                if self._is_blocked:
                    self._backlog.append((self._arrived, bytes(frame)))
                    self._backlog_bytes += len(frame)
                else:
                    self._handle(frame, self._arrived)
        except WireError as error:
            self._refuse(error)
        self._work_off_backlog()

    def memory_is_free(self) -> None:
        """Read on, if there is enough by now."""
        self._update_reading()

    def trim(self) -> None:
        """Give back the memory that is kept for a next request."""
        self._frames.trim()
        self._account()

    @property
    def is_waiting(self) -> bool:
        """Whether the peer waits for an answer that is not there yet, as a long poll does."""
        return bool(self._pending) and not self._socket_full

    def pause_writing(self) -> None:
        """The peer does not drain its socket."""
        self._socket_full = self._outgoing.is_paused = True
        self._update_reading()

    def resume_writing(self) -> None:
        """The peer has drained its socket."""
        self._socket_full = self._outgoing.is_paused = False
        self.last_active = perf_counter()
        self._outgoing.resume()
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
        return self._socket_full or bool(self._outgoing) or len(self._pending) >= MAX_PENDING_REPLIES

    def _cut_off(self, error: Exception) -> None:
        """A reply can't be brought to its end."""
        logger.error("closing the connection of %s amid a reply: %s", self.peer, error)
        self._transport.abort()

    def _handle(self, frame: memoryview, arrived: float) -> None:
        header = read_request_header(frame)
        api = self._api(header)
        request = Request(header.api_version, header.client_id, frame[header.body_position :], self.host)
        started = perf_counter()
        reply = self._call(api, request)
        times = RequestTimes(header, len(frame), arrived, started, perf_counter())
        count = self._owner.metrics.count(header.api_key, times)
        if reply is None:
            self._owner.request_log.note(self.peer, times, 0, times.handled)
        else:
            self._line_up(_Slot(self._response_header(header, api), count, times), reply)

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

    def _response_header(self, header: RequestHeader, api: Api) -> bytes:
        version = header.api_version if header.api_version in api.versions else 0
        return encode_response_header(header.api_key, version, header.correlation_id)

    def _line_up(self, slot: _Slot, reply: Parts | asyncio.Future[Parts]) -> None:
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
        now = perf_counter()
        while self._pending and isinstance(self._pending[0].message, list):
            slot = self._pending.popleft()
            message = cast("Parts", slot.message)
            size = len(slot.header) + sum(map(len, message))
            parts += (size.to_bytes(SIZE_BYTES, "big"), slot.header, *message)
            slot.count.bytes_out += size
            slot.count.total_seconds += now - slot.times.arrived
            self._owner.request_log.note(self.peer, slot.times, size, now)
        self._ready_bytes = 0
        if parts:
            self.last_active = now
            self._outgoing.send(parts)
        self._update_reading()
        self._close_if_drained()

    def _work_off_backlog(self) -> None:
        try:
            while self._backlog and not self._is_blocked:
                arrived, frame = self._backlog.popleft()
                self._backlog_bytes -= len(frame)
                self._handle(memoryview(frame), arrived)
        except WireError as error:
            self._refuse(error)
        self._send_ready()

    def _update_reading(self) -> None:
        if self._transport.is_closing():
            return
        self._take_memory()
        if self._draining or self._is_blocked or self._backlog or self._needs_memory:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _take_memory(self) -> None:
        growth_bytes = self._frames.growth_bytes
        self._needs_memory = growth_bytes > 0 and not self._owner.memory.may_grow(self, growth_bytes)
        if growth_bytes and not self._needs_memory:
            self._frames.grow()
        self._account()

    def _account(self) -> None:
        held = self._frames.held_bytes + self._backlog_bytes + self._transport.get_write_buffer_size()
        if held != self._held_bytes:
            self._held_bytes = held
            self._owner.memory.hold(self, held)

    def _refuse(self, error: MillraceError) -> None:
        logger.warning("closing the connection of %s: %s", self.peer, error)
        self._owner.metrics.refused += 1
        self._backlog.clear()
        self._backlog_bytes = 0
        self._draining = True
        self._send_ready()

    def _close_if_drained(self) -> None:
        if self._draining and not self._pending and not self._backlog and not self._outgoing:
            self._transport.close()
