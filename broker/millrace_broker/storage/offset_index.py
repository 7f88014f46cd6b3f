"""`<base offset>.index`: where in the segment an offset lies (Kafka's format).

    entry  := relative offset i32, position i32

Relative to the segment's base offset, the offset is that of the *last* record of the batch that begins at
`position`. One entry about every `index.interval.bytes`, so from `floor(offset)` a reader walks that far at most.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from millrace_broker.storage.index_file import IndexFile


class OffsetIndex(IndexFile):
    """Entries (relative offset, position)."""

    ENTRY: ClassVar[struct.Struct] = struct.Struct(">ii")
    TYPE_CODES: ClassVar[tuple[str, str]] = ("i", "i")
