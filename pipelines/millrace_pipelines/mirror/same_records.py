"""Whether two logs have the same records at an offset: the last batch that was mirrored, and the source's there.

Two batches with the same base offset and the same CRC are the same: a broker changes nothing that the CRC covers. Where
compaction has written one of them again, what is left decides: a record that both have must be equal in both, and in a
log that is not compacted none may be missing.

The batch that ends a mirroring is never compacted away. A source without it is not what has written the target last.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from millrace.records.batch import BatchHeader, Buffer, check_crc, walk
from millrace.records.control import is_mirror_end
from millrace.records.record import Record, decompress_body, records_of


class Sameness(Enum):
    """The result of a comparison; UNKNOWN where a log shows no batch there yet."""

    SAME = "same"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


class _Batch(NamedTuple):
    header: BatchHeader
    data: memoryview

    def records(self) -> dict[int, Record]:
        check_crc(self.data, 0, self.header)
        return {one.offset: one for one in records_of(self.header, decompress_body(self.header, self.data))}


def compared(ours: Buffer, theirs: Buffer, at: int, *, is_compacted: bool) -> Sameness:
    """Returns whether two answers to a fetch at offset `at` begin with the same records.

    `is_compacted` says that compaction may have removed records of either. Raises RecordError for damage.
    """
    mine, other = _first(ours, at), _first(theirs, at)
    if mine is None or other is None:
        return Sameness.UNKNOWN
    if mine.header.base_offset == other.header.base_offset and mine.header.crc == other.header.crc:
        return Sameness.SAME
    if is_mirror_end(mine.header):
        return Sameness.DIFFERENT
    return _compared_records(mine, other, is_compacted)


def _compared_records(mine: _Batch, other: _Batch, is_compacted: bool) -> Sameness:
    left, right = mine.records(), other.records()
    if any(left[offset] != right[offset] for offset in left.keys() & right.keys()):
        return Sameness.DIFFERENT
    if is_compacted:
        return Sameness.SAME
    begin = max(mine.header.base_offset, other.header.base_offset)
    until = min(mine.header.next_offset, other.header.next_offset)
    odd = (offset for offset in left.keys() ^ right.keys() if begin <= offset < until)
    return Sameness.DIFFERENT if begin >= until or any(True for _ in odd) else Sameness.SAME


def _first(records: Buffer, at: int) -> _Batch | None:
    """Returns the first whole batch that has the offset, or one above it; None where there is none."""
    view = memoryview(records)
    for position, header in walk(view):
        if header.next_offset > at:
            return _Batch(header, view[position : position + header.size_bytes])
    return None
