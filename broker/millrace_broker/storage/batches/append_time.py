"""`message.timestamp.type=LogAppendTime`: the broker's time in place of the producer's (KIP-32).

Attribute bit 3 is set and maxTimestamp becomes the time of the append, which every record of the batch then bears. The
CRC covers both, so it is computed again. The records stay as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

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
    return memoryview(copy), [(position, _stamp(copy, position, header, now_ms)) for position, header in found]


def _stamp(batches: bytearray, position: int, header: BatchHeader, now_ms: int) -> BatchHeader:
    attributes = header.attributes | TIMESTAMP_TYPE_FLAG
    _ATTRIBUTES.pack_into(batches, position + ATTRIBUTES_POSITION, attributes)
    _TIMESTAMP.pack_into(batches, position + MAX_TIMESTAMP_POSITION, now_ms)
    crc = compute_crc(batches, position, header.size_bytes)
    _CRC.pack_into(batches, position + CRC_POSITION, crc)
    return header._replace(attributes=attributes, max_timestamp=now_ms, crc=crc)
