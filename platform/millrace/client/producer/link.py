"""A connection to one broker with several requests in flight; nothing here waits.

    post ──► what waits to be written ──writable──► socket ──readable──► frames ──► the answer's own handler

Connecting, and the negotiation of versions, wait up to `request.timeout.ms`: `client.connection` does them.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Generic, NamedTuple, TypeVar

from millrace.addresses import Address
from millrace.client.connection import MAX_RESPONSE_BYTES, Connection
from millrace.clock import Clock
from millrace.errors import AnswerLostError, UnsupportedCodecError
from millrace.records.compression import Codec
from millrace.wire.api import ApiKey
from millrace.wire.cold import milliseconds
from millrace.wire.header import encode_request_header
from millrace.wire.messages import PRODUCE

Context = TypeVar("Context")
LAST_INFLEXIBLE_PRODUCE = 8
FIRST_PRODUCE_WITH_ZSTD = 7
SIZE_AND_CORRELATION_ID = struct.Struct(">ii")
PRODUCE_HEAD = struct.Struct(">hhi")
INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
PARTITION_HEAD = struct.Struct(">ii")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RECEIVE_BYTES = 64 << 10
SEND_PARTS = 64


class Produced(NamedTuple):
    """A broker's answer for one partition."""

    topic: str
    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    message: str | None


class Waiting(NamedTuple, Generic[Context]):
    """A request that has no answer yet."""

    correlation_id: int
    deadline_s: float
    context: Context


class Link(Generic[Context]):
    """A connection that never blocks. A posted request has a context, which comes back with its answer.

    After AnswerLostError it can't be used any more.
    """

    def __init__(self, address: Address, *, client_id: str, timeout_s: float, clock: Clock) -> None:
        self.address = address
        self._connection = Connection(address, client_id=client_id, timeout_s=timeout_s, clock=clock)
        self._client_id = client_id
        self.produce_version = min(self._connection.version(ApiKey.PRODUCE), LAST_INFLEXIBLE_PRODUCE)
        self.socket = self._connection.detach()
        self.waiting: deque[Waiting[Context]] = deque()
        self._correlation_id = 1 << 20
        self._unwritten: deque[memoryview] = deque()
        self._received = bytearray()

    @property
    def wants_to_write(self) -> bool:
        """Whether bytes wait for room in the socket."""
        return bool(self._unwritten)

    def check_codec(self, codec: Codec) -> None:
        """Raises UnsupportedCodecError for a codec that this broker is too old for."""
        if codec is Codec.ZSTD and self.produce_version < FIRST_PRODUCE_WITH_ZSTD:
            raise UnsupportedCodecError(f"the broker at {self.address} does not take zstd")

    def post(
        self, batches: Sequence[tuple[str, int, bytes]], *, acks: int, timeout_ms: int, deadline_s: float,
        context: Context,
    ) -> None:  # fmt: skip
        """Sends a Produce request of (topic, partition, batch), one per partition; with acks=0 no answer is awaited."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = encode_request_header(ApiKey.PRODUCE, self.produce_version, self._correlation_id, self._client_id)
        parts = [header, encode_produce_head(acks, timeout_ms, batches), *encode_topics(batches)]
        self._unwritten.append(memoryview(INT32.pack(sum(map(len, parts))) + b"".join(parts[:2])))
        self._unwritten.extend(map(memoryview, parts[2:]))
        if acks:
            self.waiting.append(Waiting(self._correlation_id, deadline_s, context))
        self.write()

    def write(self) -> None:
        """Writes what the socket takes."""
        unwritten = self._unwritten
        while unwritten:
            try:
                sent = self.socket.sendmsg([unwritten[index] for index in range(min(len(unwritten), SEND_PARTS))])
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                raise AnswerLostError(f"the broker at {self.address} broke off: {error}") from error
            while unwritten and sent >= len(unwritten[0]):
                sent -= len(unwritten.popleft())
            if sent:
                unwritten[0] = unwritten[0][sent:]

    def read(self) -> list[tuple[Context, list[Produced]]]:
        """Returns the answers that have come."""
        try:
            chunk = self.socket.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            raise AnswerLostError(f"the broker at {self.address} did not answer: {error}") from error
        if not chunk:
            raise AnswerLostError(f"the broker at {self.address} closed the connection")
        self._received += chunk
        return self._answers()

    def close(self) -> None:
        """Closes the socket."""
        self.socket.close()

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


def _milliseconds(time: datetime | None) -> int:
    return -1 if time is None else milliseconds(time - EPOCH)


def encode_produce_head(acks: int, timeout_ms: int, batches: Sequence[tuple[str, int, bytes]]) -> bytes:
    """Returns transactional id (null), acks, timeout, and the number of topics, encoded."""
    return PRODUCE_HEAD.pack(-1, acks, timeout_ms) + INT32.pack(len({topic for topic, _, _ in batches}))


def encode_topics(batches: Sequence[tuple[str, int, bytes]]) -> list[bytes]:
    """Returns topics [name, partitions [index, records]] of Produce 3 to 8, the records as separate parts."""
    by_topic: dict[str, list[tuple[int, bytes]]] = {}
    for topic, partition, batch in batches:
        by_topic.setdefault(topic, []).append((partition, batch))
    parts: list[bytes] = []
    for topic, partitions in by_topic.items():
        name = topic.encode()
        parts.append(INT16.pack(len(name)) + name + INT32.pack(len(partitions)))
        for partition, batch in partitions:
            parts += (PARTITION_HEAD.pack(partition, len(batch)), batch)
    return parts
