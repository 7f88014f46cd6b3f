"""Damage that a read meets is set aside there and then, so that what lies around it can be read.

A read goes by headers and meets what is no header, or reaches over the file's end. The damage may lie before that, as
in a length. So batches are checked from an index entry before the read on, and where the first one is not valid, a
damaged range begins. The search for the next valid batch goes no further than the next index entry that names one, so
it is short: there is an entry for each `index.interval.bytes`. Where no batch is damaged the offset index is, and the
segment is read without it. The next start that walks the segment makes it again. A read does not compare CRCs, so it
doesn't meet damage inside a batch: the reader does.

A gap between two valid batches is damage, too, from the offset on from which the log leaves out none: a hole, that is a
damaged range of no bytes.

Batches may be out of place: blocks of a file that have changed places, or were written twice.

    bytes      [ 0 … 9 ][ 30 … 39 ][ 20 … 29 ][ 10 … 19 ][ 40 …
    read       [ 0 … 9 ][ 30 … 39 ]  damaged    damaged  [ 40 …        a hole at 10 … 29

Each is valid by its CRC and lies where others are expected, so it is set aside. Its offsets are left out elsewhere,
which looks like a gap that compaction has made. That they lie here shows that it is a hole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from millrace.config import MAX_LONG
from millrace.errors import RecordError
from millrace.fs import FileSystem
from millrace.records.batch import BatchHeader
from millrace_broker.storage.batches.salvage import SearchBounds, ValidBatch, batch_behind, segment_bounds, valid_at
from millrace_broker.storage.segments.damage import (
    ENDS_EARLY,
    AllowedGaps,
    DamagedRange,
    DamagedRangeError,
    MissingBatchesError,
    Synced,
    WalkedFrom,
    are_still_there,
    damaged_from,
    intact_bytes,
    is_valid_again,
    valid_batches,
)
from millrace_broker.storage.segments.segment import LogSegment

logger = logging.getLogger(__name__)

Outcome = TypeVar("Outcome")


def add_holes(fs: FileSystem, segment: LogSegment) -> tuple[DamagedRange, ...]:
    """Adds damaged ranges for missing offsets whose batches lie, out of place, in damaged bytes; returns the ranges.

    Raises OSError.
    """
    misplaced = [batch for one in segment.damage for batch in _valid_in(fs, segment, one)]
    if not misplaced:
        return ()

    def is_misplaced(gap: DamagedRange) -> bool:
        return any(one.base_offset < gap.end_offset and gap.start_offset <= one.last_offset for one in misplaced)

    found = tuple(filter(is_misplaced, _gaps(segment)))
    for gap in found:
        segment.add_damage(gap)
    return found


def add_known_holes(fs: FileSystem, segment: LogSegment, holes: Iterable[DamagedRange]) -> None:
    """Adds holes that were known before a segment was walked again, but for what was filled or is damage already.

    Where offsets may be left out, a walk finds none. Raises OSError.
    """
    for hole in holes:
        is_found = any(
            one.start_offset < hole.end_offset and hole.start_offset < one.end_offset for one in segment.damage
        )
        if not is_found and are_still_there(fs, segment.fd, (hole,), segment.base_offset):
            segment.add_damage(hole)


def _valid_in(fs: FileSystem, segment: LogSegment, damaged: DamagedRange) -> Iterator[ValidBatch]:
    position, bounds = damaged.position, segment_bounds(damaged.end_position, segment.base_offset)
    while position < damaged.end_position:
        found = valid_at(fs, segment.fd, position, bounds) or batch_behind(fs, segment.fd, position, bounds)
        if found is None:
            return
        yield found
        position = found.end


def _gaps(segment: LogSegment) -> Iterator[DamagedRange]:
    """Yields ranges of offsets that no batch has and no damage explains, up to the first batch that can't be read.

    A gap counts only if the next batch confirms it, as no CRC covers a base offset.
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


def past_damage(
    fs: FileSystem, segment: LogSegment, offset: int, gapless_from: int, work: Callable[[], Outcome]
) -> Outcome:
    """Returns the result of `work`, a read of a segment from `offset` on, repeated after each damage that it meets.

    That damage becomes a damaged range, which reads pass over. Raises RecordError where no batch is damaged,
    DamagedRangeError where `offset` itself is, or OSError.
    """
    while True:
        try:
            return work()
        except DamagedRangeError as error:
            if not is_valid_again(fs, segment.fd, error.damaged, segment.base_offset):
                raise
            segment.damage = tuple(one for one in segment.damage if one != error.damaged)
            logger.warning("%s: offset %d can be read again", segment.path, error.damaged.start_offset)
        except RecordError as error:
            if set_aside_from(fs, segment, offset, gapless_from):
                continue
            if not segment.trusts_index:
                raise
            segment.trusts_index = False
            logger.warning("%s: its indexes contradict the log, and are not used: %s", segment.path, error)


def headers_past_damage(fs: FileSystem, segment: LogSegment, offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yields (position, header) of a segment's batches from the one that holds `offset` on.

    A header that can't be read tells of damage, which becomes a damaged range and is passed over. Raises RecordError
    where no batch is damaged, or OSError.
    """
    while True:
        try:
            position = segment.position_of(offset) if offset > segment.base_offset else 0
            for at, header in segment.headers(position):
                yield at, header
                offset = header.next_offset
        except RecordError:
            if not set_aside_from(fs, segment, offset, MAX_LONG):
                raise
        else:
            return


def set_aside(fs: FileSystem, segment: LogSegment, position: int, expected_offset: int, reason: str) -> None:
    """Adds to a segment the damaged range that begins at `position` with `expected_offset`. Raises OSError."""
    trusted = _next_trusted(fs, segment, position, expected_offset)
    later = [(one.position, one.start_offset) for one in segment.damage if one.position > position]
    later += [] if trusted is None else [(trusted.position, trusted.base_offset)]
    end, end_offset = min([*later, (segment.size_bytes, segment.next_offset)])
    bounds = segment_bounds(end, segment.base_offset, expected_offset)
    found = damaged_from(fs, segment.fd, position, bounds, Synced(end_offset=end_offset, is_end=True), reason)
    _add(segment, found)
    for one in add_holes(fs, segment):
        logger.error("%s: %s", segment.path, one)


def _add(segment: LogSegment, found: DamagedRange) -> None:
    segment.add_damage(found)
    logger.error("%s: %s", segment.path, found)


def set_aside_from(fs: FileSystem, segment: LogSegment, offset: int, gapless_from: int) -> bool:
    """Finds the first damage from the batch of an offset on, and adds it to the segment; returns false without any.

    A gap is damage where the log leaves out no offset, which is from `gapless_from` on, and where no repair made it.
    """
    position, expected = _trusted_before(fs, segment, offset)
    for start, end in intact_bytes(segment.damage, position, segment.size_bytes):
        passed = (one.end_offset for one in segment.damage if one.end_position <= start)
        position, expected = start, max((expected, *passed))
        try:
            walk = walk_of(segment, start, end, expected, gapless_from)
            for at, header in valid_batches(fs, segment.fd, walk):
                position, expected = at + header.size_bytes, header.next_offset
        except MissingBatchesError as error:
            _add(segment, DamagedRange(expected, error.end_offset, position, position, str(error)))
            return True
        except RecordError as error:
            set_aside(fs, segment, position, expected, str(error))
            return True
    return False


def set_aside_end(segment: LogSegment, offset: int) -> None:
    """Adds to a closed segment the hole from an offset up to the segment behind it, which begins too late."""
    end, reason = segment.size_bytes, ENDS_EARLY
    _add(segment, DamagedRange(offset, segment.next_offset, end, end, reason))


def walk_of(segment: LogSegment, position: int, end: int, expected: int, gapless_from: int) -> WalkedFrom:
    """Returns the walk over a segment's batches between two positions, the first of which is to be at `expected`."""
    base_offset, next_offset = segment.base_offset, segment.next_offset
    return WalkedFrom(
        position, end, base_offset, expected, AllowedGaps(next_offset), [], segment.repaired, gapless_from
    )


def _trusted_before(fs: FileSystem, segment: LogSegment, offset: int) -> tuple[int, int]:
    """Returns (position, base offset) of a valid batch in front of the one that has `offset`, to search from there."""
    try:
        floor = segment.offset_index.floor(offset - segment.base_offset) if segment.trusts_index else None
        before = None if floor is None else segment.offset_index.floor(floor[0] - 1)
        found = None if before is None else _named_by(fs, segment, before)
    except RecordError:  # of the index: all batches in front are searched
        found = None
    return (0, segment.base_offset) if found is None else (found.position, found.base_offset)


def _next_trusted(fs: FileSystem, segment: LogSegment, position: int, expected_offset: int) -> ValidBatch | None:
    """Returns the first valid batch behind `position` to which an index entry leads; None without one."""
    least = expected_offset - segment.base_offset
    later = (one for one in segment.offset_index if one[1] > position and one[0] >= least)
    return next((found for one in later if (found := _named_by(fs, segment, one)) is not None), None)


def _named_by(fs: FileSystem, segment: LogSegment, entry: tuple[int, int]) -> ValidBatch | None:
    last_offset = segment.base_offset + entry[0]
    found = valid_at(fs, segment.fd, entry[1], SearchBounds(segment.size_bytes, segment.base_offset, last_offset))
    return found if found is not None and found.last_offset == last_offset else None


def note_missing(segment: LogSegment, end_offset: int) -> None:
    """Adds a damaged range from a segment's end up to `end_offset`, if the segment ends before that."""
    if segment.next_offset < end_offset:
        position = segment.size_bytes
        missing = DamagedRange(segment.next_offset, end_offset, position, position, ENDS_EARLY)
        segment.add_damage(missing)
        segment.next_offset = end_offset
