"""Giving batches their place at the end of a log: offset and leader epoch, all that a broker writes anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from millrace.fs import Buffer
from millrace.records.batch import LOG_OVERHEAD_BYTES, NO_TIMESTAMP, PLACE, BatchHeader

Batches = Sequence[tuple[int, BatchHeader]]


class LogAppendInfo(NamedTuple):
    """Where appended batches are.

    `log_append_time_ms` is -1 where records keep the producer's time; of a repeated batch it is the time that is kept.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    max_timestamp: int


class Placed(NamedTuple):
    """A batch on its way into a segment; `max_timestamp` is the largest so far of all that are placed together."""

    position: int
    size_bytes: int
    last_offset: int
    max_timestamp: int


def place(view: memoryview, found: Batches, offset: int, leader_epoch: int) -> tuple[list[Buffer], list[Placed]]:
    """What to write for the batches in `view`, and where each will be; `offset` is the first one's."""
    buffers: list[Buffer] = []
    placed: list[Placed] = []
    max_timestamp = NO_TIMESTAMP
    for position, header in found:
        size_bytes = header.batch_length + LOG_OVERHEAD_BYTES
        buffers.append(PLACE.pack(offset, header.batch_length, leader_epoch))
        buffers.append(view[position + PLACE.size : position + size_bytes])
        offset += header.last_offset_delta + 1
        max_timestamp = max(max_timestamp, header.max_timestamp)
        placed.append(Placed(position, size_bytes, offset - 1, max_timestamp))
    return buffers if len(found) == 1 else [b"".join(buffers)], placed
