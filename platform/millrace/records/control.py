"""Control batches: the markers that end a transaction (docs/formats/producers.md, KIP-98), and what readers skip.

A control batch is a v2 batch with the control and transactional flags, one record, no codec and no sequence:

    key    := version i16 = 0, type i16              0 abort, 1 commit
    value  := version i16 = 0, coordinatorEpoch i32

Versions above 0 may append fields, so what follows the known ones is passed over. Other types belong to other
parts of Kafka (its metadata log) and end no transaction. A marker is written by the broker, never by a producer,
and never handed to applications.

A control batch without a producer and without the transactional flag, of a type of Millrace's own, stands where the
mirroring into a partition has ended. The producers before it were those of another cluster, whose ids say nothing of
the producers behind it. Readers pass over a type that they don't know.

    key    := version i16 = 0, type i16 = 30000
    value  := version i16 = 0, id of the mirrored topic uuid

Readers with `isolation.level=read_committed` pass over what Kafka's own consumer does. The answer to a fetch of
committed records names the aborted transactions among its batches, each by its producer and first offset. From that
offset on the producer's transactional batches are passed over, up to its next abort marker:

    offset   0     1     2     3        4        5     6
    batch    A     B     A     B        A abort  A     B commit        aborted = [(A, 0)]
    read           ✓           ✓                 ✓

An answer ends below the last stable offset, so every transaction in it is decided. A transaction that began before the
answer's first batch is named again in the next answer: each answer has its own filter.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple
from uuid import UUID

from millrace.errors import CorruptRecordError, InvalidRecordError
from millrace.records.batch import CONTROL_FLAG, NO_PRODUCER_ID, TRANSACTIONAL_FLAG, BatchHeader, check_crc
from millrace.records.record import BatchProducer, NewRecord, Record, decompress_body, encode_batch, records_of

KEY = struct.Struct(">hh")
VALUE = struct.Struct(">hi")
VERSION = 0
MIRROR_END_TYPE = 30_000
MIRROR_END_VALUE = struct.Struct(">h16s")


class ControlType(IntEnum):
    """The types of control records: transaction markers, by how the transaction ended."""

    ABORT = 0
    COMMIT = 1


_CONTROL_TYPES = {int(each): each for each in ControlType}


class EndTransactionMarker(NamedTuple):
    """A transaction marker: how a producer's transaction ended in a partition, and the coordinator's epoch."""

    control_type: ControlType
    coordinator_epoch: int


def encode_marker(marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, timestamp_ms: int) -> bytes:
    """Returns a marker as a control batch, to which the log gives an offset and a leader epoch."""
    record = NewRecord(
        key=KEY.pack(VERSION, marker.control_type),
        value=VALUE.pack(VERSION, marker.coordinator_epoch),
        timestamp_ms=timestamp_ms,
    )
    producer = BatchProducer(producer_id, producer_epoch)
    return encode_batch([record], producer=producer, flags=CONTROL_FLAG | TRANSACTIONAL_FLAG)


def decode_marker(header: BatchHeader, batch: memoryview) -> EndTransactionMarker | None:
    """Returns the marker in a control batch, of which `batch` is exactly the bytes; its CRC is not checked.

    None where compaction has removed the marker, or the control record is of another type. Raises CorruptRecordError
    for unreadable bytes, InvalidRecordError for a batch without the control flag or of several records.
    """
    record = _record_of(header, batch)
    control_type = None if record is None else _CONTROL_TYPES.get(_field(KEY, record.key, record.offset))
    if record is None or control_type is None:
        return None
    return EndTransactionMarker(control_type, _field(VALUE, record.value, record.offset))


def encode_mirror_end(topic_id: UUID, *, timestamp_ms: int) -> bytes:
    """Returns the control batch that ends the mirroring into a partition of the topic with this id."""
    record = NewRecord(
        key=KEY.pack(VERSION, MIRROR_END_TYPE),
        value=MIRROR_END_VALUE.pack(VERSION, topic_id.bytes),
        timestamp_ms=timestamp_ms,
    )
    return encode_batch([record], flags=CONTROL_FLAG)


def is_mirror_end(header: BatchHeader) -> bool:
    """Returns whether a batch ends a mirroring, as its header tells: a control batch without a producer."""
    return header.is_control and not header.is_transactional and header.producer_id == NO_PRODUCER_ID


def decode_mirror_end(header: BatchHeader, batch: memoryview) -> UUID | None:
    """Returns the id of the topic into which mirroring ended with a control batch; None for one of another type.

    `batch` is exactly the bytes of the batch; errors are those of `decode_marker`.
    """
    record = _record_of(header, batch)
    if record is None or _field(KEY, record.key, record.offset) != MIRROR_END_TYPE:
        return None
    return UUID(bytes=_field(MIRROR_END_VALUE, record.value, record.offset))


def _record_of(header: BatchHeader, batch: memoryview) -> Record | None:
    if not header.is_control:
        raise InvalidRecordError(f"batch at offset {header.base_offset} is no control batch")
    records = records_of(header, decompress_body(header, batch))
    if len(records) > 1:
        raise InvalidRecordError(f"control batch at offset {header.base_offset} holds {len(records)} records")
    return records[0] if records else None


def _field(form: struct.Struct, data: bytes | None, offset: int) -> Any:
    if data is None or len(data) < form.size:
        raise CorruptRecordError(f"control record at offset {offset} is cut short")
    version, field = form.unpack_from(data)
    if version < 0:
        raise CorruptRecordError(f"control record at offset {offset} has version {version}")
    return field


class AbortedTransactions:
    """Tells which batches of one fetch, passed to `has_aborted` in order, belong to aborted transactions."""

    def __init__(self, aborted: Iterable[tuple[int, int]] = ()) -> None:
        """Takes the (producer id, first offset) that a Fetch response names for a partition, in any order."""
        self._coming = deque(sorted(aborted, key=lambda transaction: transaction[1]))
        self._aborting: set[int] = set()

    def has_aborted(self, header: BatchHeader, batch: memoryview) -> bool:
        """Returns whether the batch's records belong to an aborted transaction; False for a marker.

        `batch` is exactly the bytes of the batch. Must be called for every batch in order, also for those of no
        interest. Raises RecordError for a marker that can't be read.
        """
        while self._coming and self._coming[0][1] <= header.last_offset:
            self._aborting.add(self._coming.popleft()[0])
        if header.producer_id not in self._aborting:
            return False
        if not header.is_control:
            return header.is_transactional
        check_crc(batch, 0, header)
        marker = decode_marker(header, batch)
        if marker is not None and marker.control_type is ControlType.ABORT:
            self._aborting.discard(header.producer_id)
        return False
