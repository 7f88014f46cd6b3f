"""One client connection: it reads requests from frames, and sends replies in the order of their requests.

    bytes → FrameBuffer → header → handler → a slot in `_pending` → … → socket, when all earlier slots have left

Once a connection's turn is over (`TURN_S`), its requests wait in the backlog while the other connections have theirs. A
request that may take long is handled in turns (`net.long_requests`); those behind it wait until it is answered.

A handler may answer later by a future. Later requests are handled meanwhile, but their replies wait in line. So do the
other replies to requests that were handled together with it. A request that is to be handled in its turn, as those of
a group's members are, waits until all earlier ones are answered, and those behind it wait, too.

Reading stops when too many requests or too many bytes of replies wait in line, when the peer does not drain its socket,
or when an incomplete frame needs more memory than there is (`net.memory`). Requests whose replies come later count with
their own bytes: so no peer writes so far ahead of the followers that its requests time out and it sends them again.

A connection is muted, which means that it is not read either, while its client is throttled (`net.slot`). The
reply that tells the client of it leaves at once (KIP-219).

Frames that have arrived by then are copied to a backlog, which one receive buffer bounds, and are handled first when
the line moves again. So a slow or hostile peer costs no more than its own connection's share of memory.

A connection ends with the stream, on bytes that are not a request, on a request that is not served, and on an
unexpected error of a handler. The last three are logged, and get no answer, which the client could not understand.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

from millrace.addresses import PLAINTEXT
from millrace.clock import Clock
from millrace.descriptor_pool import NO_DESCRIPTOR
from millrace.errors import MillraceError, WireError
from millrace.wire.encoder import Parts
from millrace.wire.frame import FrameBuffer, framed
from millrace.wire.header import read_request_header
from millrace_broker.handlers.api import Api, InTurns, Reply, Request, Services
from millrace_broker.metrics import RequestMetrics, RequestTimes
from millrace_broker.net.foreign_protocols import no_request
from millrace_broker.net.long_requests import TURN_S, LongRequests
from millrace_broker.net.memory import MemoryInFlight
from millrace_broker.net.request_log import RequestLog
from millrace_broker.net.send import Outgoing
from millrace_broker.net.slot import LONG_BYTES, Slot, Waited, served, takes_long, throttled
from millrace_broker.security.client_session import ClientSession, Gate, Principal

logger = logging.getLogger(__name__)

MAX_PENDING_REPLIES = 1024
MAX_PENDING_BYTES = 4 << 20  # more than are gathered for one send
MAX_TOGETHER = 64
SMALL_READ_BYTES = 64 << 10
SEND_BYTES = 1 << 20
WRITE_HIGH_WATER_BYTES = 1 << 20


class ConnectionOwner(Protocol):
    """What a connection needs of the server that accepted it: shared buffers, memory accounts, services, logs."""

    services: Services
    scratch: bytearray
    metrics: RequestMetrics
    clock: Clock
    memory: MemoryInFlight
    strangers_memory: MemoryInFlight  # of who has not authenticated, but has to
    request_log: RequestLog
    long_requests: LongRequests

    def opened(self, connection: Connection) -> bool:
        """Returns whether a new connection is admitted; False where a limit of connections is reached."""
        ...

    def closed(self, connection: Connection) -> None:
        """Forgets a connection that has ended."""
        ...


class Connection(asyncio.BufferedProtocol):
    """The broker's side of one client connection: it takes requests, and sends their replies in the same order."""

    def __init__(
        self,
        owner: ConnectionOwner,
        listener: str = PLAINTEXT,
        new_gate: NewGate | None = None,
    ) -> None:
        """Takes the server, the listener's name, and what makes the SASL login; None where clients need no login."""
        self._owner = owner
        self._memory = owner.memory if new_gate is None else owner.strangers_memory
        self._new_gate = new_gate
        self._gate: Gate | None = None
        self._now_s = owner.clock.monotonic_s
        self._quotas = owner.services.quotas
        self._frames = FrameBuffer(owner.scratch, owner.services.config.socket_request_max_bytes)
        self._pending: deque[Slot] = deque()
        self._backlog: deque[tuple[float, bytes]] = deque()
        self._backlog_bytes = self._ready_bytes = 0
        self._pending_bytes = 0  # of replies that are there, and of requests that wait for theirs
        self._held_bytes = 0
        self._in_line = 0  # requests whose reply has not left
        self._together: Slot | None = None
        self._awaits_turn = False  # the first request of the backlog, until all earlier ones are answered
        self._is_turn_over, self._turn_ends_s = False, 0.0
        self._long_bytes = 0  # of a request that is handled in turns
        self._socket_full = False
        self.is_reading, self._is_muted = True, False
        self._unmuting: asyncio.TimerHandle | None = None
        self._needs_memory = False
        self._draining = False
        self._transport: asyncio.Transport
        self._outgoing: Outgoing
        self.session = ClientSession("?", listener)
        self.peer = "?"
        self.descriptor = NO_DESCRIPTOR
        self.last_active = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the socket's transport; closes the connection at once where the server does not admit it."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
        self.session = replace(self.session, host=host)
        if self._new_gate is not None:
            self._gate = self._new_gate(self)
        self.peer = f"{host}:{port}"
        peer_socket = transport.get_extra_info("socket")
        self.descriptor = NO_DESCRIPTOR if peer_socket is None else peer_socket.fileno()
        self.last_active = self._now_s()
        self._outgoing = Outgoing(
            self._transport,
            uses_sendfile=self._owner.services.config.fetch_sendfile_enable,
            on_sent=self._work_off_backlog,
            on_failure=self._cut_off,
        )
        if not self._owner.opened(self):
            self._transport.abort()
        self._update_reading()

    def authenticated(self, principal: Principal) -> None:
        """Sets the session's principal to the one that the peer's TLS certificate maps to."""
        self.session = replace(self.session, principal=principal)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drops waiting requests and replies, cancels their futures, and gives back the memory that they held."""
        if exc is not None:
            logger.debug("connection of %s broke: %s", self.peer, exc)
        self._backlog.clear()
        self._outgoing.clear()
        self._end_mute()
        self._memory.forget(self)
        if self._gate is not None:
            self._gate.close()
        for slot in self._pending:
            if slot.future is not None:
                slot.future.cancel()
        self._pending.clear()
        self._owner.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Returns the buffer into which the next bytes are received; a small one where memory is short."""
        return self._frames.writable(SMALL_READ_BYTES) if self._memory.is_short else self._frames.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """Handles every complete request in the received bytes, then sends all replies that are ready."""
        arrived = self.last_active = self._now_s()
        self._turn_ends_s = arrived + TURN_S
        try:
            for frame in self._frames.received(nbytes):
                if self._together is None and self._is_blocked:  # what waits to be handled together does not block
                    self._backlog.append((arrived, bytes(frame)))
                    self._backlog_bytes += len(frame)
                else:
                    self._take(frame, arrived)
            self._handle_together()
        except WireError as error:
            self._refuse(error)
        if self._backlog:
            self._work_off_backlog()
        else:
            self._send_ready()

    def mute(self, throttle_ms: int | None = None) -> None:
        """Handles no requests for `throttle_ms`, or until `unmute` where that is None; replies are sent meanwhile."""
        loop = asyncio.get_running_loop()
        if self._unmuting is not None and throttle_ms is not None:
            throttle_ms = max(throttle_ms, int((self._unmuting.when() - loop.time()) * 1000))
        self._end_mute()
        self._is_muted = True
        self._owner.metrics.muted += 1
        self._unmuting = None if throttle_ms is None else loop.call_later(throttle_ms / 1000, self.unmute)

    def unmute(self) -> None:
        """Ends what `mute` began, and handles the requests that have arrived meanwhile."""
        self._end_mute()
        self._work_off_backlog()

    def memory_is_free(self) -> None:
        """Goes on reading a request that had to wait for memory, if there is enough by now."""
        self._update_reading()

    def trim(self) -> None:
        """Shrinks the receive buffer, which keeps memory for the next incomplete request."""
        self._frames.trim()
        self._account()

    @property
    def is_waiting(self) -> bool:
        """Returns whether the peer waits for a reply that is not ready yet, as in a long poll."""
        return bool(self._pending) and not self._socket_full

    def pause_writing(self) -> None:
        """Stops sending, as the peer does not read what was sent."""
        self._socket_full = self._outgoing.is_paused = True
        self._update_reading()

    def resume_writing(self) -> None:
        """Goes on sending soon, as the peer reads again: a write that fails here would end the connection twice."""
        self._socket_full = self._outgoing.is_paused = False
        self.last_active = self._now_s()
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._outgoing.resume()
        self._work_off_backlog()

    def limit_frames(self, max_frame_bytes: int) -> None:
        """Sets the largest size of a frame that is accepted from now on, in bytes."""
        self._frames.max_frame_bytes = max_frame_bytes

    def welcome(self) -> None:
        """Accounts the connection's memory as an authenticated client's; other clients' memory has its own limit."""
        self._memory.forget(self)
        self._memory, self._held_bytes = self._owner.memory, 0
        self._account()

    def open_gate(self) -> None:
        """Removes the SASL login, so that from now on every request is handled."""
        self._gate = None

    def tell(self, message: bytes) -> None:
        """Sends bytes as a frame that answers no request, such as a SASL token, after the replies that are ready."""
        self._send_ready()
        self._outgoing.send([framed(message)])

    def drain(self) -> None:
        """Stops reading, and closes the connection as soon as every reply has been sent."""
        self._draining = True
        if self._is_muted:
            self.unmute()
        self._update_reading()
        self._close_if_drained()

    def abort(self) -> None:
        """Closes the connection at once, and drops the replies that wait."""
        self._transport.abort()

    @property
    def _is_blocked(self) -> bool:
        return (
            self._socket_full
            or self._is_muted
            or self._outgoing.is_busy
            or self._in_line >= MAX_PENDING_REPLIES
            or self._pending_bytes >= MAX_PENDING_BYTES
            or self._awaits_turn
            or self._is_turn_over
            or self._long_bytes > 0
        )

    def _end_mute(self) -> None:
        if self._unmuting is not None:
            self._unmuting.cancel()
            self._unmuting = None
        if self._is_muted:
            self._is_muted = False
            self._owner.metrics.muted -= 1

    def _cut_off(self, error: Exception) -> None:
        """Closes the connection as a reply can't be completed; logs that as an error, unless the client has gone."""
        level = logging.DEBUG if isinstance(error, ConnectionError) else logging.ERROR
        logger.log(level, "closing the connection of %s in the middle of a reply: %s", self.peer, error)
        self._transport.abort()

    def _take(self, frame: memoryview, arrived: float) -> None:
        """Handles the request in a frame, or keeps it, to be handled with the next ones of its API and version."""
        if self._gate is not None and not self._gate.admits(frame):
            return
        header = read_request_header(frame)
        api_key, version, _, client_id, body_position, size_bytes = header
        slot, body = self._together, frame[body_position:]
        if slot is None or slot.version != version or slot.api_key != api_key or slot.leaves_out(size_bytes, body):
            if slot is not None:
                self._handle_together()
            api = served(self._owner.services.apis, header)
            if api.in_turn and any(earlier.parts is None for earlier in self._pending):
                self._hold_until_its_turn(frame, arrived)
                return
            is_long = api.is_long if size_bytes <= LONG_BYTES else takes_long(api, version, body)
            slot = self._together = Slot(api, api_key, version, arrived, is_long=is_long)
        slot.headers.append(header)
        slot.bytes_in += size_bytes
        slot.requests.append(tuple.__new__(Request, (version, client_id, body, self.session)))
        if slot.is_alone or len(slot.headers) >= MAX_TOGETHER:
            self._handle_together()

    def _hold_until_its_turn(self, frame: memoryview, arrived: float) -> None:
        self._backlog.appendleft((arrived, bytes(frame)))
        self._backlog_bytes += len(frame)
        self._awaits_turn = True

    def _handle_together(self) -> None:
        slot, self._together = self._together, None
        if slot is None:
            return
        started = self._now_s()
        answers = [self._handle_alone(slot)] if slot.is_alone else self._call(slot.api, slot.requests)
        handled = slot.answered = self._now_s()
        slot.times = tuple.__new__(RequestTimes, (slot.arrived, started, handled))
        slot.count = self._owner.metrics.handled(
            slot.api_key, len(slot.requests), slot.bytes_in, started - slot.arrived, handled - started
        )
        slot.requests = []
        self._line_up(slot, answers)
        if handled > self._turn_ends_s and not self._is_turn_over:
            self._is_turn_over = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_turn_over = False
        self._work_off_backlog()

    def _handle_alone(self, slot: Slot) -> Reply:
        if slot.is_long:
            kept = slot.requests[0]._replace(body=memoryview(bytes(slot.requests[0].body)))
            return self._begin(slot, lambda: self._handled(slot.api, kept))
        (reply,) = self._call(slot.api, slot.requests)
        return self._begin(slot, reply.work) if isinstance(reply, InTurns) else reply

    def _begin(self, slot: Slot, work: Callable[[], Reply]) -> Reply:
        """Returns the future reply of `work`, which takes long; the connection's later requests wait for it."""
        self._long_bytes = slot.bytes_in
        return self._owner.long_requests.begin(work, self._long_request_is_handled)

    def _handled(self, api: Api, request: Request) -> Reply:
        (reply,) = self._call(api, [request])
        return reply.work() if isinstance(reply, InTurns) else reply

    def _long_request_is_handled(self) -> None:
        self._long_bytes = 0
        self._work_off_backlog()

    def _call(self, api: Api, requests: list[Request]) -> Sequence[Any]:
        services = self._owner.services
        try:
            return [api.handle(services, requests[0])] if api.handle_all is None else api.handle_all(services, requests)
        except MillraceError:
            raise
        except Exception as error:
            logger.exception("%s v%d of %s failed", api.key.name, requests[0].version, self.peer)
            raise WireError(f"{api.key.name} v{requests[0].version} failed") from error

    def _line_up(self, slot: Slot, answers: Sequence[Reply | WireError]) -> None:
        self._pending.append(slot)
        self._in_line += len(slot.headers)
        if self._quotas.is_enabled:
            answers = self._throttled(slot, answers)
        taken_bytes = slot.take_replies(answers)
        if taken_bytes is None:
            self._wait_for(slot, answers)
        else:
            self._ready_bytes += taken_bytes
            self._pending_bytes += taken_bytes
            if self._ready_bytes >= SEND_BYTES or self._in_line >= MAX_PENDING_REPLIES:
                self._send_ready()
        if isinstance(answers[-1], WireError):
            raise answers[-1]

    def _throttled(self, slot: Slot, answers: Sequence[Reply | WireError]) -> Sequence[Reply | WireError]:
        """Returns the replies with throttle times, and mutes the connection so long; unchanged if one is a future."""
        if any(isinstance(answer, asyncio.Future) for answer in answers):
            return answers
        services, now_ms = self._owner.services, self._owner.clock.monotonic_ms()
        told, throttle_ms = throttled(slot, answers, services, self.session, now_ms)
        if throttle_ms:
            self.mute(throttle_ms)
        return told

    def _wait_for(self, slot: Slot, answers: Sequence[Reply | WireError]) -> None:
        later = [answer for answer in answers if isinstance(answer, asyncio.Future)]
        self._pending_bytes += slot.bytes_in
        slot.future = waited_for = later[0] if len(later) == 1 else asyncio.gather(*later)
        waited_for.add_done_callback(lambda done: self._answered(slot, answers, done))

    def _answered(self, slot: Slot, answers: Sequence[Reply | WireError], done: Waited) -> None:
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or isinstance(error, asyncio.CancelledError):  # `gather` raises it, and is not cancelled
            return
        if isinstance(error, WireError):  # as where a request is refused at once
            slot.answered, slot.parts = self._now_s(), []
            self._pending_bytes -= slot.bytes_in
            self._refuse(error)
            return
        if error is not None:
            logger.error("a request of %s failed", self.peer, exc_info=error)
            self._transport.abort()
            return
        slot.answered = self._now_s()
        replies: Sequence[Reply | WireError] = [
            answer.result() if isinstance(answer, asyncio.Future) else answer for answer in answers
        ]
        if self._quotas.is_enabled:
            replies = self._throttled(slot, replies)
        self._pending_bytes += (slot.take_replies(replies) or 0) - slot.bytes_in
        self._send_ready()
        self._work_off_backlog()

    def _send_ready(self) -> None:
        parts: Parts = []
        now = self._now_s()
        while self._pending and (ready := self._pending[0].parts) is not None:
            slot = self._pending.popleft()
            parts += ready
            self._in_line -= len(slot.headers)
            self._pending_bytes -= slot.bytes_out
            slot.count.sent(len(slot.headers), slot.bytes_out, slot.times, slot.answered, now)
            if self._owner.request_log.is_on:
                for header, reply_bytes in zip(slot.headers, slot.reply_bytes, strict=False):
                    self._owner.request_log.note(self.peer, header, slot.times, reply_bytes, now)
        self._ready_bytes = 0
        self._awaits_turn = self._awaits_turn and bool(self._pending)
        if parts:
            self.last_active = now
            self._outgoing.send(parts)
        self._update_reading()
        if self._draining:
            self._close_if_drained()

    def _work_off_backlog(self) -> None:
        if self._backlog and (now := self._now_s()) > self._turn_ends_s:
            self._turn_ends_s = now + TURN_S
        try:
            while self._backlog and not self._is_blocked:
                arrived, frame = self._backlog.popleft()
                self._backlog_bytes -= len(frame)
                self._take(memoryview(frame), arrived)
                if not self._backlog or self._backlog[0][0] != arrived:
                    self._handle_together()
        except WireError as error:
            self._refuse(error)
        self._send_ready()

    def _update_reading(self) -> None:
        if self._transport.is_closing():
            return
        self._needs_memory = False
        if growth_bytes := self._frames.growth_bytes:
            self._needs_memory = not self._memory.may_grow(self, growth_bytes)
            if not self._needs_memory:
                self._frames.grow()
        self._account()
        is_reading = not (self._draining or self._backlog or self._needs_memory or self._is_blocked)
        if is_reading != self.is_reading:
            self.is_reading = is_reading
            self._transport.resume_reading() if is_reading else self._transport.pause_reading()

    def _account(self) -> None:
        unsent = self._transport.get_write_buffer_size()
        held = self._frames.held_bytes + self._backlog_bytes + self._long_bytes + unsent
        if held != self._held_bytes:
            self._held_bytes = held
            self._memory.hold(self, held)

    def _refuse(self, error: WireError) -> None:
        try:
            self._handle_together()  # the requests before the bytes that are refused
        except WireError as earlier:
            error = earlier
        uses_tls = self._transport.get_extra_info("ssl_object") is not None
        reason = no_request(error, uses_tls=uses_tls, uses_sasl=self._new_gate is not None)
        logger.warning("closing the connection of %s on listener %s: %s", self.peer, self.session.listener, reason)
        self._owner.metrics.refused += 1
        self._backlog.clear()
        self._backlog_bytes = 0
        self._draining = True
        self._send_ready()

    def _close_if_drained(self) -> None:
        if self._draining and not self._pending and not self._backlog and not self._outgoing.is_busy:
            self._transport.close()


NewGate = Callable[[Connection], Gate]
