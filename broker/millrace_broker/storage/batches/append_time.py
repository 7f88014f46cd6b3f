"""Times in the header of a batch that the broker sets itself. The CRC covers them, so it is computed again.

With `message.timestamp.type=LogAppendTime` (KIP-32) attribute bit 3 is set and maxTimestamp becomes the time of the
append, which every record of the batch then bears. With CreateTime maxTimestamp is the largest of the records' times:
retention and look-ups by time go by it, so a producer is not believed. The records stay as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from millrace.fs import Buffer
from millrace.records.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    compute_crc,
)

MAX_TIMESTAMP_POSITION = 35
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")
_CRC = struct.Struct(">I")


def stamped(
    batches: memoryview, found: Sequence[tuple[int, BatchHeader]], now_ms: int
) -> tuple[memoryview, list[tuple[int, BatchHeader]]]:
    """Returns a copy of the batches that bears `now_ms`, with its (position, header) pairs."""
    copy = bytearray(batches)
    return memoryview(copy), [
        (position, _stamp(copy, position, header, header.attributes | TIMESTAMP_TYPE_FLAG, now_ms))
        for position, header in found
    ]


def with_largest_time(batch: memoryview, header: BatchHeader, largest: int) -> Buffer:
    """Returns the batch with this maxTimestamp: itself, or a copy where the header says otherwise."""
    if header.max_timestamp == largest:
        return batch
    copy = bytearray(batch)
    _stamp(copy, 0, header, header.attributes, largest)
    return copy


def _stamp(batches: bytearray, position: int, header: BatchHeader, attributes: int, max_timestamp: int) -> BatchHeader:
    _ATTRIBUTES.pack_into(batches, position + ATTRIBUTES_POSITION, attributes)
    _TIMESTAMP.pack_into(batches, position + MAX_TIMESTAMP_POSITION, max_timestamp)
    crc = compute_crc(batches, position, header.size_bytes)
    _CRC.pack_into(batches, position + CRC_POSITION, crc)
    return header._replace(attributes=attributes, max_timestamp=max_timestamp, crc=crc)
