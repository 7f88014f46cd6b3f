"""A connection to one broker with several requests in flight; nothing here waits.

    post ──► what waits to be written ──writable──► channel ──readable──► frames ──► the answer's own handler

Connecting, TLS, the negotiation of versions and authentication wait up to `request.timeout.ms`: `client.connection`
does them. A link whose session is about to end (KIP-368) takes no more requests; once all are answered, another
connection takes its place.

A channel is the socket itself, or TLS over it. TLS may want to read in order to write, and the other way round: `waits`
says for which the selector is to look, so that nothing is tried again before it can succeed. A record of TLS holds at
most 16 KiB, so one call takes all of it, and what stays behind lies in the socket, where the selector sees it.
"""

from __future__ import annotations

import selectors
import socket
import struct
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from enum import Enum, auto
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar, cast

from millrace.addresses import Address
from millrace.client.answers import RETRIABLE_CODES, TYPED_ERRORS, check
from millrace.client.connection import MAX_RESPONSE_BYTES, Connection
from millrace.clock import Clock
from millrace.errors import (
    AnswerLostError,
    BrokerError,
    ErrorCode,
    MillraceError,
    SecurityError,
    UnsupportedCodecError,
    UnsupportedVersionError,
)
from millrace.records.compression import Codec
from millrace.security.client_security import ClientSecurity
from millrace.times import EPOCH
from millrace.wire.api import ApiKey
from millrace.wire.cold import milliseconds
from millrace.wire.header import encode_request_header
from millrace.wire.messages import PRODUCE

if TYPE_CHECKING:
    import ssl

RECEIVE_BYTES = 64 << 10


class PlainChannel:
    """A channel without TLS: the socket itself, which never blocks; raises OSError where the peer is gone.

    Attributes:
        receive_waits_for: the selector's event after which `receive` is to be called.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.receive_waits_for = selectors.EVENT_READ

    def send(self, parts: Sequence[memoryview]) -> int:
        """Sends the parts in one system call; returns the number of bytes that the socket took, perhaps 0."""
        try:
            return self._socket.sendmsg(parts)
        except (BlockingIOError, InterruptedError):
            return 0

    def receive(self) -> bytes | None:
        """Returns received bytes, b"" at the end of the stream; None where the socket has none now."""
        try:
            return self._socket.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return None

    def waits(self, *, has_unsent: bool) -> int:
        """Returns EVENT_READ, with EVENT_WRITE as well while bytes are to be sent."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if has_unsent else 0)


class TlsChannel:
    """A channel with TLS. `send` takes a part whole or not at all; then the same part has to be passed again.

    Some TLS records of a part not taken may be sent already; OpenSSL continues after them.
    """

    def __init__(self, connected: ssl.SSLSocket) -> None:
        import ssl  # noqa: PLC0415 -- loaded where it is used

        self._socket = connected
        self._wants_read, self._wants_write = ssl.SSLWantReadError, ssl.SSLWantWriteError
        self._send_waits_for = selectors.EVENT_WRITE
        self.receive_waits_for = selectors.EVENT_READ

    def send(self, parts: Sequence[memoryview]) -> int:
        """Sends the first part, whole or not at all; returns the number of bytes sent."""
        self._send_waits_for = selectors.EVENT_WRITE
        try:
            return self._socket.send(parts[0])
        except self._wants_write:
            return 0
        except self._wants_read:
            self._send_waits_for = selectors.EVENT_READ
            return 0

    def receive(self) -> bytes | None:
        """Returns the bytes of one TLS record at most, b"" at the end of the stream; None where there are none now."""
        self.receive_waits_for = selectors.EVENT_READ
        try:
            return self._socket.recv(RECEIVE_BYTES)
        except self._wants_read:
            return None
        except self._wants_write:
            self.receive_waits_for = selectors.EVENT_WRITE
            return None

    def waits(self, *, has_unsent: bool) -> int:
        """Returns the selector events to wait for; TLS may have to write in order to read, and vice versa."""
        return self.receive_waits_for | (self._send_waits_for if has_unsent else 0)


Channel: TypeAlias = PlainChannel | TlsChannel
NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20


class ErrorAction(Enum):
    """The producer's reaction to a batch's error code (or success) in a response."""

    DONE = auto()
    AGAIN = auto()  # surely not appended
    UNSURE = auto()  # perhaps appended; again all the same
    TOO_LARGE = auto()  # not appended; its records may be, in smaller batches
    OUT_OF_LINE = auto()  # its number, or its epoch, does not follow on what the broker knows
    REFUSED = auto()


def action_for(code: int) -> ErrorAction:
    """Returns what to do with a batch that the response to a Produce request has this error code for."""
    match code:
        case ErrorCode.NONE | ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return ErrorAction.DONE
        case ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER | ErrorCode.UNKNOWN_PRODUCER_ID | ErrorCode.INVALID_PRODUCER_EPOCH:
            return ErrorAction.OUT_OF_LINE
        case ErrorCode.MESSAGE_TOO_LARGE:
            return ErrorAction.TOO_LARGE
        case ErrorCode.REQUEST_TIMED_OUT | ErrorCode.NETWORK_EXCEPTION:
            return ErrorAction.UNSURE
    if code == NOT_ENOUGH_REPLICAS_AFTER_APPEND:
        return ErrorAction.UNSURE
    kind = TYPED_ERRORS.get(code)
    return (
        ErrorAction.AGAIN if code in RETRIABLE_CODES or (kind is not None and kind.retriable) else ErrorAction.REFUSED
    )


Context = TypeVar("Context")
LAST_INFLEXIBLE_PRODUCE = 8
FIRST_PRODUCE_WITH_ZSTD = 7
SIZE_AND_CORRELATION_ID = struct.Struct(">ii")
PRODUCE_HEAD = struct.Struct(">hii")
INT16 = struct.Struct(">h")
NULL = INT16.pack(-1)
INT32 = struct.Struct(">i")
PARTITION_HEAD = struct.Struct(">ii")
SEND_PARTS = 64


class Produced(NamedTuple):
    """One partition's result in a Produce response."""

    topic: str
    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    message: str | None


def error_of(answer: Produced, subject: str) -> MillraceError:
    """Returns the error, about `subject`, that a partition's result tells of."""
    try:
        check(answer.error_code, subject, answer.message)
    except MillraceError as error:
        return error
    return MillraceError(subject)


class Waiting(NamedTuple, Generic[Context]):
    """A Produce request whose response has not come yet."""

    correlation_id: int
    deadline_s: float
    context: Context


class Link(Generic[Context]):
    """A non-blocking connection for Produce requests; each has a context, which is returned with its response.

    After AnswerLostError it can't be used any more.
    """

    def __init__(
        self, address: Address, *, client_id: str, timeout_s: float, clock: Clock, security: ClientSecurity,
        transactional_id: str | None = None,
    ) -> None:  # fmt: skip
        self.address = address
        self._transactional_id = transactional_id
        connection = Connection(address, client_id=client_id, timeout_s=timeout_s, clock=clock, security=security)
        self._client_id = client_id
        self._security = security
        self._ends_at_s = connection.authenticate_at_s
        self.produce_version = min(connection.version(ApiKey.PRODUCE), LAST_INFLEXIBLE_PRODUCE)
        self.socket = connection.hand_over()
        self._joins = security.context is not None
        self._channel: Channel = _channel(self.socket, security)
        self.waiting: deque[Waiting[Context]] = deque()
        self._correlation_id = 1 << 20
        self._unwritten: deque[memoryview] = deque()
        self._received = bytearray()

    @property
    def events(self) -> int:
        """The selector events of the socket after which `advance` is to be called."""
        return self._channel.waits(has_unsent=self.has_unwritten)

    @property
    def has_unwritten(self) -> bool:
        """Whether queued bytes are still to be written to the channel."""
        return bool(self._unwritten)

    @property
    def is_idle(self) -> bool:
        """Whether all requests are written, and answered as far as they have a response."""
        return not self.waiting and not self._unwritten

    def is_ending(self, now_s: float) -> bool:
        """Returns whether the SASL session is about to end, so that new requests belong on a new connection."""
        return self._ends_at_s is not None and now_s >= self._ends_at_s

    def check_codec(self, codec: Codec) -> None:
        """Raises UnsupportedCodecError for a codec that this broker does not support, as it is too old."""
        if codec is Codec.ZSTD and self.produce_version < FIRST_PRODUCE_WITH_ZSTD:
            raise UnsupportedCodecError(f"the broker at {self.address} does not take zstd")

    def post(
        self, batches: Sequence[tuple[str, int, bytes]], *, acks: int, timeout_ms: int, deadline_s: float,
        context: Context,
    ) -> None:  # fmt: skip
        """Sends a Produce request of (topic, partition, batch), one for each partition; acks=0 has no response."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = encode_request_header(ApiKey.PRODUCE, self.produce_version, self._correlation_id, self._client_id)
        parts = [
            header,
            encode_produce_head(acks, timeout_ms, batches, self._transactional_id),
            *encode_topics(batches),
        ]
        head = INT32.pack(sum(map(len, parts)))
        if self._joins:
            self._unwritten.append(memoryview(b"".join((head, *parts))))
        else:
            self._unwritten.append(memoryview(head + b"".join(parts[:2])))
            self._unwritten.extend(map(memoryview, parts[2:]))
        if acks:
            self.waiting.append(Waiting(self._correlation_id, deadline_s, context))
        self.write()

    def write(self) -> None:
        """Writes queued bytes to the channel until it would block."""
        unwritten = self._unwritten
        while unwritten:
            try:
                sent = self._channel.send([unwritten[index] for index in range(min(len(unwritten), SEND_PARTS))])
            except OSError as error:
                raise AnswerLostError(f"the broker at {self.address} broke off: {self._reason(error)}") from error
            if not sent:
                return
            while unwritten and sent >= len(unwritten[0]):
                sent -= len(unwritten.popleft())
            if sent:
                unwritten[0] = unwritten[0][sent:]

    def advance(self, events: int) -> list[tuple[Context, list[Produced]]]:
        """Writes and reads after these selector events; returns each response received as (context, its partitions)."""
        if self._unwritten:
            self.write()
        return self._read() if events & self._channel.receive_waits_for else []

    def _read(self) -> list[tuple[Context, list[Produced]]]:
        try:
            chunk = self._channel.receive()
        except OSError as error:
            raise AnswerLostError(f"the broker at {self.address} did not answer: {self._reason(error)}") from error
        if chunk is None:
            return []
        if not chunk:
            raise AnswerLostError(f"the broker at {self.address} closed the connection")
        self._received += chunk
        return self._answers()

    def close(self) -> None:
        """Closes the socket."""
        self.socket.close()

    def _reason(self, error: OSError) -> Exception:
        return self._security.explained(error, str(self.address)) or error

    def _answers(self) -> list[tuple[Context, list[Produced]]]:
        answers = []
        received, position = self._received, 0
        while len(received) - position >= SIZE_AND_CORRELATION_ID.size:
            size, correlation_id = SIZE_AND_CORRELATION_ID.unpack_from(received, position)
            if not INT32.size <= size <= MAX_RESPONSE_BYTES or not self.waiting:
                raise AnswerLostError(f"the broker at {self.address} answers {size} bytes that nobody asked for")
            if len(received) - position < INT32.size + size:
                break
            expected = self.waiting.popleft()
            if expected.correlation_id != correlation_id:
                self.waiting.appendleft(expected)
                raise AnswerLostError(f"the broker at {self.address} answers out of order")
            body = bytes(received[position + SIZE_AND_CORRELATION_ID.size : position + INT32.size + size])
            answers.append((expected.context, self._decode(body)))
            position += INT32.size + size
        del received[:position]
        return answers

    def _decode(self, body: bytes) -> list[Produced]:
        message = PRODUCE.decode_response(self.produce_version, body)
        return [
            Produced(
                topic.name, int(one.index), int(one.error_code), int(one.base_offset),
                _milliseconds(one.log_append_time), one.error_message,
            )
            for topic in message.responses
            for one in topic.partition_responses
        ]  # fmt: skip


def _channel(connected: socket.socket, security: ClientSecurity) -> Channel:
    return PlainChannel(connected) if security.context is None else TlsChannel(cast("ssl.SSLSocket", connected))


def _milliseconds(time: datetime | None) -> int:
    return -1 if time is None else milliseconds(time - EPOCH)


def encode_produce_head(
    acks: int, timeout_ms: int, batches: Sequence[tuple[str, int, bytes]], transactional_id: str | None = None
) -> bytes:
    """Returns the encoded beginning of a Produce request: transactional id, acks, timeout, number of topics."""
    name = NULL if transactional_id is None else encode_string(transactional_id)
    return name + PRODUCE_HEAD.pack(acks, timeout_ms, len({topic for topic, _, _ in batches}))


def encode_string(text: str) -> bytes:
    """Returns a string of the protocol: its length in bytes, then its UTF-8."""
    data = text.encode()
    return INT16.pack(len(data)) + data


def encode_topics(batches: Sequence[tuple[str, int, bytes]]) -> list[bytes]:
    """Returns the rest of a Produce request of v3 to v8 as parts: topics [name, partitions [index, records]].

    Each batch is a part of its own, which is not copied.
    """
    by_topic: dict[str, list[tuple[int, bytes]]] = {}
    for topic, partition, batch in batches:
        by_topic.setdefault(topic, []).append((partition, batch))
    parts: list[bytes] = []
    for topic, partitions in by_topic.items():
        parts.append(encode_string(topic) + INT32.pack(len(partitions)))
        for partition, batch in partitions:
            parts += (PARTITION_HEAD.pack(partition, len(batch)), batch)
    return parts


def is_for_good(error: MillraceError) -> bool:
    """Returns whether waiting does not mend what keeps a batch from being sent."""
    is_denied = isinstance(error, BrokerError) and error.broker_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return is_denied or isinstance(error, UnsupportedCodecError | UnsupportedVersionError | SecurityError)
