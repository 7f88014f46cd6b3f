"""Control batches: the markers that end a transaction (spec A6; KIP-98).

A control batch is a v2 batch with the control and transactional flags, one record, no codec and no sequence:

    key    := version i16 = 0, type i16              0 abort, 1 commit
    value  := version i16 = 0, coordinatorEpoch i32

Versions above 0 may append fields, so what follows the known ones is passed over. Other types belong to other
parts of Kafka (its metadata log) and are no end of a transaction. A marker is never handed to applications.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from millrace.errors import CorruptRecordError, InvalidRecordError
from millrace.records.batch import (
    CONTROL_FLAG,
    NO_LEADER_EPOCH,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    check_crc,
    new_header,
)
from millrace.records.record import Record, decode_batch, encode_records

KEY = struct.Struct(">hh")
VALUE = struct.Struct(">hi")
VERSION = 0


class ControlType(IntEnum):
    """How a transaction ended."""

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    """The end of one producer's transaction in one partition."""

    type: ControlType
    coordinator_epoch: int


def encode_marker_batch(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The control batch of a marker."""
    header = new_header(base_offset, attributes=CONTROL_FLAG | TRANSACTIONAL_FLAG)._replace(
        partition_leader_epoch=leader_epoch, producer_id=producer_id, producer_epoch=producer_epoch
    )
    key = KEY.pack(VERSION, marker.type)
    value = VALUE.pack(VERSION, marker.coordinator_epoch)
    return encode_records(header, [Record(base_offset, timestamp_ms, key, value)])


def decode_marker_batch(header: BatchHeader, batch: memoryview) -> EndTransactionMarker:
    """The marker of a control batch, of which `batch` is exactly the bytes, its CRC checked.

    Raises CorruptRecordError for what can't be read, InvalidRecordError for a batch that is none, or of another type.
    """
    if not header.is_control:
        raise InvalidRecordError(f"batch at offset {header.base_offset} is no control batch")
    check_crc(batch, 0, header)
    records = list(decode_batch(header, batch))
    if len(records) != 1:
        raise InvalidRecordError(f"control batch at offset {header.base_offset} holds {len(records)} records, not one")
    return decode_marker(records[0])


def decode_marker(record: Record) -> EndTransactionMarker:
    """The marker in a control record; errors as those of `decode_marker_batch`."""
    _, type_id = _fields(KEY, record.key, record.offset)
    if type_id not in tuple(ControlType):
        raise InvalidRecordError(f"control record at offset {record.offset} of type {type_id} ends no transaction")
    _, coordinator_epoch = _fields(VALUE, record.value, record.offset)
    return EndTransactionMarker(ControlType(type_id), coordinator_epoch)


def _fields(form: struct.Struct, data: bytes | None, offset: int) -> tuple[int, int]:
    if data is None or len(data) < form.size:
        raise CorruptRecordError(f"control record at offset {offset} is cut short")
    version, field = form.unpack_from(data)
    if version < 0:
        raise CorruptRecordError(f"control record at offset {offset} has version {version}")
    return version, field
