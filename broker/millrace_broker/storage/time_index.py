"""`<base offset>.timeindex`: how far timestamps have come up to an offset (Kafka's format).

    entry  := timestamp i64 (ms), relative offset i32

Up to and with that offset no record of the segment is newer than `timestamp`, which is the largest so far; records
with a larger one come later. A closed segment's last entry is the largest timestamp in the segment.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from millrace_broker.storage.index_file import IndexFile


class TimeIndex(IndexFile):
    """Entries (timestamp, relative offset)."""

    __slots__ = ()

    ENTRY: ClassVar[struct.Struct] = struct.Struct(">qi")
    TYPE_CODES: ClassVar[tuple[str, str]] = ("q", "i")
