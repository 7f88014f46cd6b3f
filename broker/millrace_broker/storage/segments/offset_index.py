"""`<base offset>.index`: the positions of offsets in the segment (Kafka's format, docs/formats/segment.md).

    entry  := relative offset i32, position i32

The offset, relative to the segment's base offset, is that of the *last* record of the batch that begins at `position`.
There is one entry about every `index.interval.bytes`, so from `floor(offset)` a reader walks that far at most.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from typing import ClassVar

from millrace_broker.storage.segments.index_file import KEY, IndexFile

POSITION_BITS = 32
POSITION_MASK = (1 << POSITION_BITS) - 1


class OffsetIndex(IndexFile):
    """An index of entries (relative offset, position)."""

    __slots__ = ()

    ENTRY: ClassVar[struct.Struct] = struct.Struct(">ii")
    TYPE_CODES: ClassVar[tuple[str, str]] = ("i", "i")

    def _last_slot(self, entries: bytes, field: int, target: int) -> int:
        """Searches entries read as numbers of 64 bits, which sort as their offsets do."""
        if field != KEY:
            return super()._last_slot(entries, field, target)
        numbers = array("Q", entries)
        if sys.byteorder == "little":
            numbers.byteswap()
        return bisect_right(numbers, (target << POSITION_BITS) | POSITION_MASK) - 1
