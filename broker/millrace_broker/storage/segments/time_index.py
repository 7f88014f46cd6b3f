"""`<base offset>.timeindex`: the largest timestamp up to an offset (Kafka's format, docs/formats/segment.md).

    entry  := timestamp i64 (ms), relative offset i32

Up to that offset, and at it, no record of the segment is newer than `timestamp`; records that are newer come later. The
last entry of a closed segment has the largest timestamp in the segment.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from millrace_broker.storage.segments.index_file import IndexFile


class TimeIndex(IndexFile):
    """An index of entries (timestamp, relative offset)."""

    __slots__ = ()

    ENTRY: ClassVar[struct.Struct] = struct.Struct(">qi")
    TYPE_CODES: ClassVar[tuple[str, str]] = ("q", "i")
