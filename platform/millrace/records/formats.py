"""What a log or a fetch may hold: batches of v2 and, where it is older, message sets of v0 and v1 before them.

All have the same start: offset i64, size i32 of what follows, and the magic as the fifth byte of that.

    offset  0         8      12                16
            offset    size   …                 magic
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from millrace.records.batch import LOG_OVERHEAD_BYTES, MAGIC_POSITION, MAGIC_V2, Buffer, walk
from millrace.records.message_set import MAGIC_V1

SIZE = struct.Struct(">i")
SIZE_POSITION = 8
OFFSET = struct.Struct(">q")


def runs(buffer: Buffer) -> Iterator[tuple[int, memoryview]]:
    """Yields (magic, bytes) of neighbours in one format: MAGIC_V2 for batches, MAGIC_V1 for messages of v0 or v1.

    A tail that is cut short, or of no known format, belongs to the last run; the decoder of the run judges it.
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
    """Returns the offset that the first batch or message of a run states."""
    return int(OFFSET.unpack_from(run)[0])


def next_offset(buffer: Buffer, position: int) -> int:
    """Returns the offset after the last whole batch or message; `position` where there is none.

    Raises RecordError as `walk` does.
    """
    for magic, run in runs(buffer):
        if magic == MAGIC_V2:
            for _, header in walk(run):
                position = header.next_offset
        else:
            position = _after_messages(run, position)
    return position


def _after_messages(run: memoryview, position: int) -> int:
    at = 0
    while len(run) - at >= LOG_OVERHEAD_BYTES:
        (size,) = SIZE.unpack_from(run, at + SIZE_POSITION)
        if size < 0 or at + LOG_OVERHEAD_BYTES + size > len(run):
            break
        position = first_offset(run[at:]) + 1
        at += LOG_OVERHEAD_BYTES + size
    return position
