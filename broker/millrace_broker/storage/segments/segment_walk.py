"""A walk over the batches of a segment, as recovery makes it, up to the first one that is not valid.

A batch is valid if its CRC, its codec and its offsets are: it follows on the batch before it, or comes behind a gap
that compaction or a repair has made. No CRC covers a base offset, so a batch behind a gap must not reach over that of
the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from millrace.errors import CorruptRecordError
from millrace.fs import FileSystem
from millrace.records.batch import CODEC_MASK, BatchHeader
from millrace.records.compression import Codec, codec_of
from millrace_broker.storage.batches.salvage import SearchBounds, valid_at
from millrace_broker.storage.batches.scan import MAX_RELATIVE_OFFSET, Placed, walk_batches
from millrace_broker.storage.segments.damage import RepairedRange, is_repaired

MAX_CODEC_ID = max(Codec)

Headers = list[BatchHeader]


class WalkedFrom(NamedTuple):
    """Where a walk begins and ends, and which offset is expected first.

    Offsets may be left out below `gaps_up_to_offset`, and in repaired ranges. The walk adds the first two batches of
    each leader in a row to `led`.
    """

    position: int
    end: int
    segment_base: int
    next_offset: int
    gaps_up_to_offset: int
    led: Headers
    repaired: tuple[RepairedRange, ...] = ()


def valid_batches(fs: FileSystem, fd: int, walk: WalkedFrom) -> Iterator[Placed]:
    """Yields (position, header) of each batch; raises RecordError where one is not valid. Raises OSError."""
    max_offset = walk.segment_base + MAX_RELATIVE_OFFSET
    next_offset, epoch, is_second = walk.next_offset, None, False
    for at, header, crc_holds in walk_batches(fs, fd, walk.end, walk.position):
        last_offset = header.base_offset + header.last_offset_delta
        # Many batches come by here, so what nearly all of them are is checked first, without a call.
        if not (
            crc_holds
            and header.base_offset == next_offset
            and last_offset <= max_offset
            and header.attributes & CODEC_MASK <= MAX_CODEC_ID
        ):
            _check(fs, fd, walk._replace(position=at, next_offset=next_offset), header, crc_holds=crc_holds)
        if is_second or header.partition_leader_epoch != epoch:
            walk.led.append(header)
            epoch, is_second = header.partition_leader_epoch, header.partition_leader_epoch != epoch
        yield at, header
        next_offset = last_offset + 1


def _check(fs: FileSystem, fd: int, walk: WalkedFrom, header: BatchHeader, *, crc_holds: bool) -> None:
    if not crc_holds:
        raise CorruptRecordError(f"the CRC-32C of the batch at offset {header.base_offset} does not match")
    codec_of(header.codec_id)
    expected = walk.next_offset
    may_leave_out = header.next_offset <= walk.gaps_up_to_offset or is_repaired(
        walk.repaired, expected, header.base_offset
    )
    is_after_gap = expected < header.base_offset and may_leave_out
    is_placed = header.base_offset == expected or (is_after_gap and not _is_contradicted(fs, fd, walk, header))
    if not is_placed or header.last_offset - walk.segment_base > MAX_RELATIVE_OFFSET:
        raise CorruptRecordError(f"offset {header.base_offset} where {expected} is expected")


def _is_contradicted(fs: FileSystem, fd: int, walk: WalkedFrom, header: BatchHeader) -> bool:
    bounds = SearchBounds(walk.end, walk.next_offset, walk.segment_base + MAX_RELATIVE_OFFSET)
    following = valid_at(fs, fd, walk.position + header.size_bytes, bounds)
    return following is not None and following.base_offset <= header.last_offset
