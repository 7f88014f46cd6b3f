"""The offsets and times of a batch's records, without the records, in memory that does not grow with what they hold.

A batch of some kilobytes can hold millions of records, or one of half a gigabyte. So it is decompressed chunk by chunk,
with a pause at each (`millrace.turns`), and what is neither offset nor time is passed over. Raises CorruptRecordError
for what can't be read so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from millrace.errors import CorruptRecordError
from millrace.records.batch import HEADER_BYTES, BatchHeader
from millrace.records.compression import codec_of, decompressed_chunks
from millrace.records.varint import decode_varint
from millrace.turns import pause

START_BYTES = 31  # at most, of a record up to the end of its offset: three numbers and the attributes


class TimedOffset(NamedTuple):
    """The time and the offset of one record."""

    timestamp_ms: int
    offset: int


class _Bytes:
    """The bytes of a batch's records, of which only those are kept that are looked at."""

    def __init__(self, header: BatchHeader, batch: memoryview) -> None:
        self._chunks = decompressed_chunks(codec_of(header.codec_id), batch[HEADER_BYTES:])
        self.data = b""
        self.at = 0

    def fill(self) -> None:
        """Sees to it that the start of the next record is there, if it comes at all."""
        while len(self.data) - self.at < START_BYTES and (chunk := next(self._chunks, None)) is not None:
            pause()
            passed = max(self.at - len(self.data), 0)  # of a record that runs over what there is
            self.data = self.data[self.at :] + bytes(chunk)
            self.at = passed


def record_times(header: BatchHeader, batch: memoryview) -> Iterator[TimedOffset]:
    """Yields time and offset of each record of a batch, of which `batch` is exactly the bytes."""
    found = _Bytes(header, batch)
    before = -1
    for _ in range(header.record_count):
        found.fill()
        length, position = decode_varint(found.data, found.at)
        timestamp_delta, delta_position = decode_varint(found.data, position + 1)
        offset_delta, _ = decode_varint(found.data, delta_position)
        if length < 0 or not before < offset_delta <= header.last_offset_delta:
            raise CorruptRecordError(f"length {length}, offset delta {offset_delta} behind {before}")
        found.at, before = position + length, offset_delta
        timestamp_ms = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
        yield TimedOffset(timestamp_ms, header.base_offset + offset_delta)
