"""Batches out of place: blocks of a file that have changed places, or were written twice.

    bytes      [ 0 … 9 ][ 30 … 39 ][ 20 … 29 ][ 10 … 19 ][ 40 …
    read       [ 0 … 9 ][ 30 … 39 ]  damaged    damaged  [ 40 …        a hole at 10 … 29

Each is valid by its CRC and lies where others are expected, so it is set aside (`damage`). The offsets that it has are
then left out elsewhere, which looks like a gap that compaction has made. That they lie here shows that it is a hole.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import RecordError
from millrace.fs import FileSystem
from millrace_broker.storage.batches.salvage import ValidBatch, batch_behind, segment_bounds, valid_at
from millrace_broker.storage.segments.damage import DamagedRange
from millrace_broker.storage.segments.segment import LogSegment


def add_holes(fs: FileSystem, segment: LogSegment) -> tuple[DamagedRange, ...]:
    """Sets aside the gaps whose offsets are in damaged bytes; returns them. Raises OSError."""
    misplaced = [batch for one in segment.damage for batch in _valid_in(fs, segment, one)]
    if not misplaced:
        return ()
    found = tuple(
        gap
        for gap in _gaps(segment)
        if any(one.base_offset < gap.end_offset and gap.start_offset <= one.last_offset for one in misplaced)
    )
    for gap in found:
        segment.add_damage(gap)
    return found


def _valid_in(fs: FileSystem, segment: LogSegment, damaged: DamagedRange) -> Iterator[ValidBatch]:
    position, bounds = damaged.position, segment_bounds(damaged.end_position, segment.base_offset)
    while position < damaged.end_position:
        found = valid_at(fs, segment.fd, position, bounds) or batch_behind(fs, segment.fd, position, bounds)
        if found is None:
            return
        yield found
        position = found.end


def _gaps(segment: LogSegment) -> Iterator[DamagedRange]:
    """Yields the offsets that are left out, but for those of damage, up to the first batch that can't be read.

    A gap before a batch that the next one contradicts is none: no CRC covers a base offset.
    """
    known = sorted(segment.damage, key=lambda one: one.position)
    next_offset, gap = segment.base_offset, None
    try:
        for position, header in segment.headers(0):
            passed = (one.end_offset for one in known if one.end_position <= position)
            next_offset = max((next_offset, *passed))
            if gap is not None and header.base_offset >= next_offset:
                yield gap
            is_left_out = next_offset < header.base_offset
            reason = "their batches lie elsewhere in the file"
            gap = DamagedRange(next_offset, header.base_offset, position, position, reason) if is_left_out else None
            next_offset = max(next_offset, header.next_offset)
    except RecordError:
        return
    if gap is not None and next_offset <= segment.next_offset:
        yield gap
