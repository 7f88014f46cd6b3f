"""Control batches: the markers that end a transaction (spec A6; KIP-98).

    batch   := header with the control and transactional bits and the producer's id and epoch, one record
    key     := version i16 = 0, type i16           0 abort, 1 commit
    value   := version i16 = 0, coordinator epoch i32

Written by the broker, never by a producer, and never handed to an application. Fields that a later version
appends are passed over.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from millrace.errors import InvalidRecordError
from millrace.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader
from millrace.records.record import BatchProducer, NewRecord, decode_batch, encode_batch

VERSION = 0
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class ControlType(IntEnum):
    """How a transaction ended."""

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    """A marker: what became of the transaction, and which coordinator says so."""

    control_type: ControlType
    coordinator_epoch: int


def encode_marker(marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, timestamp_ms: int) -> bytes:
    """The control batch of a marker."""
    record = NewRecord(
        key=_KEY.pack(VERSION, marker.control_type),
        value=_VALUE.pack(VERSION, marker.coordinator_epoch),
        timestamp_ms=timestamp_ms,
    )
    producer = BatchProducer(producer_id, producer_epoch)
    return encode_batch([record], producer=producer, flags=CONTROL_FLAG | TRANSACTIONAL_FLAG)


def decode_marker(header: BatchHeader, batch: memoryview) -> EndTransactionMarker | None:
    """The marker in a control batch; None where compaction took it, or where it is of a kind that is not known.

    Raises RecordError for what can't be read.
    """
    record = next(decode_batch(header, batch), None)
    if record is None:
        return None
    key, value = record.key or b"", record.value or b""
    if len(key) < _KEY.size:
        raise InvalidRecordError(f"control record at offset {record.offset}: a key of {len(key)} bytes")
    version, control_type = _KEY.unpack_from(key)
    if version < 0 or control_type not in set(ControlType):
        return None
    if len(value) < _VALUE.size:
        raise InvalidRecordError(f"control record at offset {record.offset}: a value of {len(value)} bytes")
    return EndTransactionMarker(ControlType(control_type), _VALUE.unpack_from(value)[1])
