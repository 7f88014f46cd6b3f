"""`<base offset>.index`: where in the segment an offset lies (Kafka's format).

    entry  := relative offset i32, position i32

Relative to the segment's base offset, the offset is that of the *last* record of the batch that begins at
`position`. One entry about every `index.interval.bytes`, so from `floor(offset)` a reader walks that far at most.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from typing import ClassVar

from millrace_broker.storage.index_file import KEY, IndexFile

POSITION_BITS = 32
POSITION_MASK = (1 << POSITION_BITS) - 1


class OffsetIndex(IndexFile):
    """Entries (relative offset, position)."""

    __slots__ = ()

    ENTRY: ClassVar[struct.Struct] = struct.Struct(">ii")
    TYPE_CODES: ClassVar[tuple[str, str]] = ("i", "i")

    def _last_slot(self, entries: bytes, field: int, target: int) -> int:
        """An entry read as one number of 64 bits stands where its offset does."""
        if field != KEY:
            return super()._last_slot(entries, field, target)
        numbers = array("Q", entries)
        if sys.byteorder == "little":
            numbers.byteswap()
        return bisect_right(numbers, (target << POSITION_BITS) | POSITION_MASK) - 1
