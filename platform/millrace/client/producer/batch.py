"""Records of one partition that share a batch, from the first `send` to the reports of their delivery.

Records lie in the form that the record kernel writes: (offset delta, timestamp delta, key, value, headers). Once the
batch is on its way they are only kept as far as reports need them: their times.

A batch that a broker finds too large is split in two, and each again, down to the one record that is (KIP-126). One
that was given as a whole (`ready_batch`) is not.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from millrace.clock import Clock, SystemClock
from millrace.errors import ClientError, DeliveryTimeoutError, MillraceError
from millrace.kernel import native
from millrace.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    sealed_batch,
)
from millrace.records.compression import Codec, compress
from millrace.records.record import Header, NewRecord, decode_records, encode_bodies_plainly

PlacedRecord = tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]
RECORD_OVERHEAD_BYTES = 24  # for a record's lengths and deltas, which seldom take more than half of it
MAX_SEQUENCE = 2**31 - 1


class Identity(NamedTuple):
    """The producer id and epoch by which brokers recognize a batch that was sent before (KIP-98)."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    is_transactional: bool = False


NOBODY = Identity()


@dataclass(slots=True, eq=False)
class Batch:
    """A batch of records to send, filled under the accumulator's lock; after that only the sender's thread changes it.

    `callbacks` are pairs of a record's index and the function to call with its report.
    """

    topic: str
    partition: int
    base_timestamp_ms: int
    ready_s: float
    deadline_s: float
    clock: Clock
    records: list[PlacedRecord] = field(default_factory=list)
    record_count: int = 0
    size_bytes: int = 0
    callbacks: list[tuple[int, Callable[[Any], None]]] = field(default_factory=list)
    identity: Identity = NOBODY
    sequence: int = NO_SEQUENCE
    attempts: int = 0
    last_error: str = "it was not sent"
    order: tuple[int, ...] = ()
    may_be_appended: bool = False
    base_offset: int = -1
    log_append_time_ms: int = -1
    error: MillraceError | None = None
    is_done: bool = False
    parts: tuple[Batch, Batch] | None = None
    _is_released: bool = False
    _body: Buffer = b""
    _timestamp_deltas: list[int] | None = None
    _finished: threading.Lock = field(default_factory=threading.Lock)
    _done: threading.Event | None = None

    @property
    def name(self) -> str:
        """The name of the partition: `topic-0`."""
        return f"{self.topic}-{self.partition}"

    @property
    def count(self) -> int:
        """The number of the batch's records."""
        return self.record_count or len(self.records)

    @property
    def may_be_split(self) -> bool:
        """Whether a batch that is too large can be sent as two."""
        return self.count > 1

    @property
    def subject(self) -> str:
        """What errors of the batch's sending are about."""
        return f"produce to {self.name}"

    @property
    def is_released(self) -> bool:
        """Whether all callbacks of the batch, or of the parts into which it was split, have been called."""
        return self._is_released if self.parts is None else all(part.is_released for part in self.parts)

    def release(self) -> None:
        """Marks the batch as released: all of its callbacks have been called."""
        self._is_released = True

    def find(self, index: int) -> tuple[Batch, int]:
        """Returns the batch that has a record (after a split a part of this one) and the record's index there."""
        batch = self
        while batch.parts is not None:
            first, second = batch.parts
            batch, index = (first, index) if index < first.count else (second, index - first.count)
        return batch, index

    def timestamp_of(self, index: int) -> int:
        """Returns the timestamp that the producer gave a record, in milliseconds."""
        if self._timestamp_deltas is None:
            return self.base_timestamp_ms + self.records[index][1]
        return self.base_timestamp_ms + (self._timestamp_deltas[index] if self._timestamp_deltas else 0)

    def encode(self, codec: Codec) -> bytes:
        """Returns the batch's bytes, with its identity and sequence; its records are encoded only the first time."""
        if not self.record_count:
            self._encode_records(codec)
        deltas = self._timestamp_deltas
        header = BatchHeader(
            base_offset=0,
            attributes=codec | (TRANSACTIONAL_FLAG if self.identity.is_transactional else 0),
            last_offset_delta=self.record_count - 1,
            base_timestamp=self.base_timestamp_ms,
            max_timestamp=self.base_timestamp_ms + (max(deltas) if deltas else 0),
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self.sequence,
            record_count=self.record_count,
        )
        return sealed_batch(header, self._body)

    def wait(self, timeout_s: float | None) -> bool:
        """Waits until the batch is done or split; returns False once the timeout has passed."""
        if self.is_done:
            return True
        with self._finished:
            if self._done is None:
                self._done = threading.Event()
                if self.is_done:
                    self._done.set()
        return self._done.wait(timeout_s)

    def finish(self, error: MillraceError | None = None, base_offset: int = -1, log_append_time_ms: int = -1) -> None:
        """Stores the batch's error or base offset, and wakes the threads that wait; the sender calls the callbacks."""
        if not self.record_count:
            self.record_count = len(self.records)
        self.error, self.base_offset, self.log_append_time_ms = error, base_offset, log_append_time_ms
        self._end()

    def split(self, codec: Codec) -> tuple[Batch, Batch]:
        """Splits the batch into two of about the same size, under the same sequence numbers, and returns them.

        The batch must have been sent, and have two records or more.
        """
        records = [
            (one.offset, one.timestamp_ms - self.base_timestamp_ms, one.key, one.value, one.headers)
            for one in decode_records(self.encode(codec))
        ]
        sizes = list(accumulate(size_bytes_of(key, value, headers) for _, _, key, value, headers in records))
        middle = min(bisect_left(sizes, sizes[-1] / 2) + 1, len(records) - 1)
        self.parts = (
            self._part(records[:middle], 0, sizes[middle - 1]),
            self._part(records[middle:], middle, sizes[-1] - sizes[middle - 1]),
        )
        self._end()
        return self.parts

    def _part(self, records: list[PlacedRecord], begin: int, size_bytes: int) -> Batch:
        part = Batch(
            topic=self.topic,
            partition=self.partition,
            base_timestamp_ms=self.base_timestamp_ms,
            ready_s=self.ready_s,
            deadline_s=self.deadline_s,
            clock=self.clock,
        )
        part.records = [(index, *record[1:]) for index, record in enumerate(records)]
        part.size_bytes = size_bytes
        part.callbacks = [(index - begin, one) for index, one in self.callbacks if 0 <= index - begin < len(records)]
        part.order = (*self.order, begin)
        part.may_be_appended = self.may_be_appended
        if self.sequence != NO_SEQUENCE:
            part.identity, part.sequence = self.identity, (self.sequence + begin) & MAX_SEQUENCE
        return part

    def _end(self) -> None:
        with self._finished:
            self.is_done = True
            if self._done is not None:
                self._done.set()
        self._body = b""

    def _encode_records(self, codec: Codec) -> None:
        records = self.records
        body = write_records(records)
        self._body = compress(codec, body) if codec else body
        deltas = [record[1] for record in records]
        self._timestamp_deltas = deltas if any(deltas) else []
        self.record_count = len(records)
        self.records = []


def size_bytes_of(key: bytes | None, value: bytes | None, headers: tuple[Header, ...]) -> int:
    """Returns how many bytes a record counts for in a batch and in the buffer: at least its encoded size."""
    size_bytes = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    return size_bytes + headers_size_bytes(headers) if headers else size_bytes


def headers_size_bytes(headers: tuple[Header, ...]) -> int:
    """Returns for how many bytes a record's headers count in `size_bytes_of`."""
    return sum(RECORD_OVERHEAD_BYTES + 4 * len(name) + len(value or b"") for name, value in headers)


def write_records(records: list[PlacedRecord]) -> bytes:
    """Returns the encoded records of a batch; uses the record kernel (C code) if it is compiled."""
    if native is not None:
        return native.write_records(records)
    return encode_bodies_plainly(
        [(record[0], NewRecord(record[3], record[2], record[1], record[4])) for record in records], 0
    )


class ProducerRecord(NamedTuple):
    """A record to send; the producer encodes key and value, and chooses the partition if it is None."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: tuple[Header, ...] = ()


class DeliveryReport(NamedTuple):
    """Where a record was appended, or the error for which it was not.

    The offset is -1 where it is not known: with acks=0, or when a broker had the record from an earlier attempt.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    error: MillraceError | None = None


OnDelivery = Callable[[DeliveryReport], None]


class Delivery:
    """A handle on one record, returned by `send`, by which any thread waits for the record's report."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def __repr__(self) -> str:
        return f"Delivery({self.report() if self.done() else 'pending'})"

    def done(self) -> bool:
        """Returns whether the report is there: the record is acknowledged or given up."""
        batch, _ = self._batch.find(self._index)
        return batch.is_done and batch.parts is None

    def report(self, timeout_s: float | None = None) -> DeliveryReport:
        """Returns the report, with its error if there is one.

        Raises DeliveryTimeoutError if it does not come in time.
        """
        now_s = self._batch.clock.monotonic_s
        deadline_s = None if timeout_s is None else now_s() + timeout_s
        while True:
            batch, index = self._batch.find(self._index)
            if not batch.wait(None if deadline_s is None else max(deadline_s - now_s(), 0.0)):
                raise DeliveryTimeoutError(f"no report of a record for {batch.name} within {timeout_s} s")
            if batch.parts is None:
                return report_of(batch, index)

    def result(self, timeout_s: float | None = None) -> DeliveryReport:
        """Returns the report of a record that was appended; raises the record's error if it was not."""
        report = self.report(timeout_s)
        if report.error is not None:
            raise report.error
        return report


class HandedOver(Delivery):
    """The handle that `send` returns for a record that the application's event handler gets; it never has a report."""

    __slots__ = ()

    def __init__(self) -> None:
        now = SystemClock()
        batch = Batch(topic="", partition=-1, base_timestamp_ms=-1, ready_s=0.0, deadline_s=0.0, clock=now)
        super().__init__(batch, 0)

    def done(self) -> bool:
        """Returns False always, as only the application's event handler knows."""
        return False

    def report(self, timeout_s: float | None = None) -> DeliveryReport:  # noqa: ARG002
        """Raises ClientError always, as only the application's event handler knows what became of the record."""
        raise ClientError("the producer's handlers hear of the record; there is no report of it")


HANDED_OVER = HandedOver()


def report_of(batch: Batch, index: int) -> DeliveryReport:
    """Returns the report of one record of a batch that is done."""
    offset = batch.base_offset + index if batch.base_offset >= 0 else -1
    timestamp_ms = batch.log_append_time_ms if batch.log_append_time_ms >= 0 else batch.timestamp_of(index)
    return DeliveryReport(batch.topic, batch.partition, offset, timestamp_ms, batch.error)
