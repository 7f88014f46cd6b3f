"""Gives batches the offsets and the leader epoch of the end of a log, all that a broker changes in them.

What several producers appended is placed together and written together. Small batches are copied into one buffer, which
costs less than handing each to the operating system.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from millrace.errors import MillraceError
from millrace.fs import Buffer
from millrace.records.batch import LOG_OVERHEAD_BYTES, NO_TIMESTAMP, PLACE, BatchHeader

Batches = Sequence[tuple[int, BatchHeader]]
Append = tuple[memoryview, Batches]  # the bytes of one append, and (position, header) of each batch in them

COPIED_BYTES_MAX = 128 << 10
BUFFERS_MAX = 1024  # IOV_MAX of Linux
PARTS_OF_A_BATCH = 2


class AppendOrigin(Enum):
    """Who appends to a leader's log, which decides how a batch with a producer id is checked (Kafka's AppendOrigin).

    A CLIENT's batch must follow on the sequence and epoch that the log has of its producer, and may be no control
    batch. Of a COORDINATOR's batch only the epoch is checked; its control batch is the marker that ends a transaction.

    A follower doesn't use this: `Log.append_as_follower` appends batches as they came from the leader.
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"


class LogAppendInfo(NamedTuple):
    """The offsets and timestamps that the batches of one append have in the log.

    `log_append_time_ms` is -1 where records keep their producer's time; for a repeated batch it is that of the first.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    max_timestamp: int


class Placement(NamedTuple):
    """The bytes that one write will add to a log, and the offsets and timestamps that those bytes bring.

    `batches` holds (position in the write, last offset, largest timestamp of the append up to this batch) of each
    batch. `appends` holds the offsets and times that each append gets.
    """

    buffers: Sequence[Buffer]
    size_bytes: int
    batches: list[tuple[int, int, int]]
    appends: list[LogAppendInfo]
    last_offset: int
    max_timestamp: int


def place(run: Sequence[Append], offset: int, leader_epoch: int) -> Placement:
    """Returns what to write for several appends: their batches one behind another, the first record at `offset`."""
    if len(run) > 1 or len(run[0][1]) > 1:
        return _place_batches(run, offset, leader_epoch)
    # Most appends are one batch that comes alone: the same without loops.
    ((view, ((position, header),)),) = run
    _, length, _, _, _, _, last_offset_delta, _, max_timestamp, _, _, _, _ = header
    max_timestamp = max(max_timestamp, NO_TIMESTAMP)
    size_bytes, last_offset = length + LOG_OVERHEAD_BYTES, offset + last_offset_delta
    buffers = PLACE.pack(offset, length, leader_epoch), view[position + PLACE.size : position + size_bytes]
    batches = [(0, last_offset, max_timestamp)]
    info = tuple.__new__(LogAppendInfo, (offset, last_offset, NO_TIMESTAMP, max_timestamp))
    return tuple.__new__(Placement, (buffers, size_bytes, batches, [info], last_offset, max_timestamp))


def _place_batches(run: Sequence[Append], offset: int, leader_epoch: int) -> Placement:
    buffers: list[Buffer] = []
    batches: list[tuple[int, int, int]] = []
    appends: list[LogAppendInfo] = []
    end = 0
    newest = NO_TIMESTAMP
    for view, found in run:
        first_offset, max_timestamp = offset, NO_TIMESTAMP
        for position, header in found:
            _, length, _, _, _, _, last_offset_delta, _, newest_of_batch, _, _, _, _ = header
            size_bytes = length + LOG_OVERHEAD_BYTES
            buffers.append(PLACE.pack(offset, length, leader_epoch))
            buffers.append(view[position + PLACE.size : position + size_bytes])
            offset += last_offset_delta + 1
            max_timestamp = max(max_timestamp, newest_of_batch)
            batches.append((end, offset - 1, max_timestamp))
            end += size_bytes
        newest = max(newest, max_timestamp)
        # As `LogAppendInfo(...)` does, at half the cost; likewise above.
        appends.append(tuple.__new__(LogAppendInfo, (first_offset, offset - 1, NO_TIMESTAMP, max_timestamp)))
    return Placement(_joined(buffers, end), end, batches, appends, offset - 1, newest)


def _joined(buffers: list[Buffer], size_bytes: int) -> list[Buffer]:
    if len(buffers) == PARTS_OF_A_BATCH or (size_bytes > COPIED_BYTES_MAX and len(buffers) <= BUFFERS_MAX):
        return buffers
    return [b"".join(buffers)]


def only_place(outcomes: Sequence[LogAppendInfo | MillraceError]) -> LogAppendInfo:
    """Returns the offsets of the only append in `outcomes`, or raises the error that it failed with."""
    (outcome,) = outcomes
    if isinstance(outcome, MillraceError):
        raise outcome
    return outcome
