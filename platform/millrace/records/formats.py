"""What a log or a fetch may hold: batches of v2 and, where it is older, message sets of v0 and v1 before them.

All have the same start: offset i64, size i32 of what follows, and the magic as the fifth byte of that.

    offset  0         8      12                16
            offset    size   …                 magic
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from millrace.records.batch import LOG_OVERHEAD_BYTES, MAGIC_POSITION, MAGIC_V2, Buffer
from millrace.records.message_set import MAGIC_V1

SIZE = struct.Struct(">i")
SIZE_POSITION = 8
OFFSET = struct.Struct(">q")


def runs(buffer: Buffer) -> Iterator[tuple[int, memoryview]]:
    """Yields (MAGIC_V2, bytes) of consecutive v2 batches, and (MAGIC_V1, bytes) of consecutive v0 and v1 messages.

    An incomplete or unknown entry at the end belongs to the last of these, for its decoder to judge.
    """
    view = memoryview(buffer)
    begin = position = 0
    magic = None
    while len(view) - position > MAGIC_POSITION:
        following = MAGIC_V1 if view[position + MAGIC_POSITION] < MAGIC_V2 else MAGIC_V2
        if magic is not None and following != magic:
            yield magic, view[begin:position]
            begin = position
        magic = following
        (size,) = SIZE.unpack_from(view, position + SIZE_POSITION)
        if size <= MAGIC_POSITION - LOG_OVERHEAD_BYTES:
            break
        position += LOG_OVERHEAD_BYTES + size
    if magic is not None:
        yield magic, view[begin:]


def first_offset(run: Buffer) -> int:
    """Returns the offset field of the first batch or message in these bytes."""
    return int(OFFSET.unpack_from(run)[0])


def message_offsets(run: memoryview) -> Iterator[int]:
    """Yields the offset of each whole v0 or v1 message; that of a wrapper is the offset of its last message."""
    at = 0
    while len(run) - at >= LOG_OVERHEAD_BYTES:
        (size,) = SIZE.unpack_from(run, at + SIZE_POSITION)
        if size < 0 or at + LOG_OVERHEAD_BYTES + size > len(run):
            break
        yield first_offset(run[at:])
        at += LOG_OVERHEAD_BYTES + size
