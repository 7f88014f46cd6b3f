"""Damage that is set aside: the bytes stay, the range is named, and what lies around it is read.

    offsets    40 ..... 99 │ 100 ...... 119 │ 120 ....
    bytes      [ batches  ]│? ? ? ? ? ? ? ? │[ batches
                           position         end_position

A damaged range begins where a batch was expected and none is valid, and ends where the next valid one begins
(`salvage.batch_behind`). A range of no bytes stands for batches that are missing: a segment that ends before the next
one begins. A range of no offsets stands for bytes behind the last batch.

A read of an offset in the range is CORRUPT_MESSAGE. One that begins before it may go over its bytes as they are: the
reader finds them by the CRC, and may keep them.

Which bytes were synced, and so are set aside and not cut, says `Synced`:

| segment | synced | its last offset |
|---|---|---|
| closed | all | the one before the next segment's base offset |
| the newest, after a clean stop | all | the one before the recovery point, if that is known |
| the newest, after a crash | what began below the recovery point | any |

A repair gives up such offsets, so that a log without them is whole (`RepairedRange`):

    batches    [ 0 ... 39 ]            [ 100 ... 119 ]
    repaired                40 ... 99

A reader passes over such a range as over one that compaction has emptied. It need not be exact: it may reach over
batches that are there. What it allows is only that none are.

A walk over the batches of a segment, as recovery makes it, ends at the first one that is not valid (`valid_batches`). A
batch is valid if its CRC, its codec and its offsets are: it follows on the batch before it, or comes behind a gap
that compaction or a repair has made. No CRC covers a base offset, so a batch behind a gap must not reach over that of
the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from millrace.config import MAX_LONG
from millrace.errors import CorruptRecordError, RecordError
from millrace.fs import FileSystem
from millrace.records.batch import CODEC_MASK, BatchHeader
from millrace.records.compression import Codec, codec_of
from millrace_broker.storage.batches.salvage import CHUNK_BYTES, SearchBounds, ValidBatch, batch_behind, valid_at
from millrace_broker.storage.batches.scan import MAX_RELATIVE_OFFSET, Placed, scan_headers, walk_batches

MAX_CODEC_ID = max(Codec)
Headers = list[BatchHeader]


ENDS_EARLY = "the segment ends too early"


class DamagedRange(NamedTuple):
    """The offsets from `start_offset` to before `end_offset`, which a segment can't give, and where their bytes are."""

    start_offset: int
    end_offset: int
    position: int
    end_position: int
    reason: str

    @property
    def is_hole(self) -> bool:
        """Whether no bytes are in the place of the missing batches."""
        return self.position == self.end_position

    def __str__(self) -> str:
        size_bytes = self.end_position - self.position
        where = f"{size_bytes} bytes at position {self.position}"
        if self.start_offset == self.end_offset:
            return f"{where} are no batch: {self.reason}"
        what = "missing" if self.is_hole else "damaged"
        return f"offsets {self.start_offset} to {self.end_offset - 1} are {what}, {where}: {self.reason}"


class Synced(NamedTuple):
    """The part of a segment that was synced: every batch with a base offset below `up_to`.

    The synced batches end at `end_offset`, None where that is not known; `is_end` says that no others follow.
    """

    up_to: int = 0
    end_offset: int | None = None
    is_end: bool = False


NOTHING_SYNCED = Synced()


class DamagedRangeError(CorruptRecordError, retriable=False):
    """Says that an offset to be read lies in a damaged range; the next batch is at `end_offset`."""

    def __init__(self, path: str, damaged: DamagedRange) -> None:
        super().__init__(f"{path}: {damaged}")
        self.damaged = damaged
        self.end_offset = damaged.end_offset


def damaged_from(  # noqa: PLR0917 -- bytes of a file, and what is known of them
    fs: FileSystem, fd: int, position: int, bounds: SearchBounds, synced: Synced, reason: str
) -> DamagedRange:
    """Returns the damaged range from `position` to the next valid batch; the offset missing first is `bounds.lowest`.

    Raises OSError.
    """
    expected, end_offset = bounds.lowest, synced.end_offset
    if synced.is_end and end_offset is not None:
        bounds = bounds._replace(highest=min(bounds.highest, end_offset - 1))
    found = _in_order(fs, fd, position, bounds) if expected <= bounds.highest else None
    if found is not None and found.base_offset <= (MAX_LONG if end_offset is None else end_offset):
        return DamagedRange(expected, found.base_offset, position, found.position, reason)
    end_offset = expected + 1 if end_offset is None else max(expected, end_offset)
    return DamagedRange(expected, end_offset, position, bounds.end, reason)


def is_valid_again(fs: FileSystem, fd: int, damaged: DamagedRange, segment_base: int) -> bool:
    """Returns whether a valid batch begins where damage was found: the file was replaced, or a read had failed."""
    try:
        bounds = SearchBounds(fs.size(fd), damaged.start_offset, segment_base + MAX_RELATIVE_OFFSET)
        found = valid_at(fs, fd, damaged.position, bounds)
    except FileNotFoundError:  # the file is gone, and its descriptor was given back
        return False
    return found is not None and found.base_offset == damaged.start_offset < damaged.end_offset


def is_synced(fs: FileSystem, fd: int, position: int, bounds: SearchBounds, synced: Synced, *, truncate: bool) -> bool:
    """Returns whether any bytes from `position` on were synced, so that they are damaged and not a lost tail.

    The offset `bounds.lowest` is expected there. With `truncate`, bytes at the end of the synced batches are a lost
    tail, unless a batch with an older offset lies behind them that is not in front of them, too.
    """
    expected = bounds.lowest
    if expected < synced.up_to and not (truncate and expected == synced.end_offset):
        return True
    older = SearchBounds(bounds.end, bounds.highest - MAX_RELATIVE_OFFSET, min(expected, synced.up_to) - 1)
    if older.highest < older.lowest:
        return False
    found = valid_at(fs, fd, position, older) or batch_behind(fs, fd, position, older)
    return found is not None and not _is_before(fs, fd, position, found.base_offset)


def _is_before(fs: FileSystem, fd: int, position: int, base_offset: int) -> bool:
    """Returns whether a batch with this base offset lies before `position`; false where damage comes first."""
    with suppress(RecordError):
        return any(header.base_offset == base_offset for _, header in scan_headers(fs, fd, 0, position))
    return False


def are_still_there(fs: FileSystem, fd: int, named: Sequence[DamagedRange], segment_base: int) -> bool:
    """Returns whether a segment's file still has the damage in `named`: it may have been replaced or repaired.

    No batch must begin where damage does, and it must end at the named next batch, or at the file's end.
    """
    if not named:
        return True
    size_bytes = fs.size(fd)
    return all(
        not is_valid_again(fs, fd, one, segment_base) and _ends_as_named(fs, fd, one, size_bytes, segment_base)
        for one in named
    )


def _ends_as_named(fs: FileSystem, fd: int, damaged: DamagedRange, size_bytes: int, segment_base: int) -> bool:
    if damaged.end_position >= size_bytes:
        return damaged.end_position == size_bytes
    found = valid_at(
        fs, fd, damaged.end_position, SearchBounds(size_bytes, segment_base, segment_base + MAX_RELATIVE_OFFSET)
    )
    return found is not None and found.base_offset == damaged.end_offset


def _in_order(fs: FileSystem, fd: int, position: int, bounds: SearchBounds) -> ValidBatch | None:
    """Returns the first valid batch behind damage that is in its place: blocks of a file may have been swapped.

    It is out of place if a longer run of batches follows whose offsets are below its own. Runs are compared up to
    `CHUNK_BYTES`.
    """
    found = batch_behind(fs, fd, position, bounds)
    while found is not None:
        last = _end_of_run(fs, fd, found, bounds)
        following = valid_at(fs, fd, last.end, bounds) or batch_behind(fs, fd, last.end, bounds)
        if following is None or following.base_offset > last.last_offset:
            break
        if _end_of_run(fs, fd, following, bounds).end - following.position <= last.end - found.position:
            break
        found = following
    return found


def _end_of_run(fs: FileSystem, fd: int, first: ValidBatch, bounds: SearchBounds) -> ValidBatch:
    last = first
    while last.position - first.position < CHUNK_BYTES:
        following = valid_at(fs, fd, last.end, bounds)
        if following is None or following.base_offset <= last.last_offset:
            break
        last = following
    return last


def covering(damage: Sequence[DamagedRange], offset: int) -> DamagedRange | None:
    """Returns the damaged range that an offset lies in; None if it lies in none."""
    return next((one for one in damage if one.start_offset <= offset < one.end_offset), None)


def undamaged_around(path: str, damage: Sequence[DamagedRange], offset: int, size_bytes: int) -> tuple[int, int]:
    """Returns (position, end position) of the bytes between two damaged ranges in which the batch of an offset must be.

    Raises DamagedRangeError where the offset lies in a damaged range.
    """
    damaged = covering(damage, offset)
    if damaged is not None:
        raise DamagedRangeError(path, damaged)
    position = max((one.end_position for one in damage if one.end_offset <= offset), default=0)
    behind = next((one for one in damage if one.start_offset > offset), None)
    return position, size_bytes if behind is None else behind.position


def intact_bytes(damage: Sequence[DamagedRange], position: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields (position, end position) of each undamaged stretch between `position` and `end`."""
    for one in damage:
        if one.end_position > position or one.position >= position:
            if position < min(one.position, end):
                yield position, min(one.position, end)
            position = max(position, one.end_position)
    if position < end:
        yield position, end


def with_added(damage: Sequence[DamagedRange], added: DamagedRange) -> tuple[DamagedRange, ...]:
    """Returns the damaged ranges and `added`, sorted by position.

    A hole right behind other damage is one range with it: nothing says how many offsets damaged bytes have had, and a
    batch that heals them is whole.
    """
    found: list[DamagedRange] = []
    for one in sorted((*damage, added), key=lambda one: (one.position, one.start_offset)):
        before = found[-1] if found else None
        is_behind = before is not None and (before.end_position, before.end_offset) == (one.position, one.start_offset)
        if before is not None and is_behind and one.is_hole:
            found[-1] = before._replace(end_offset=one.end_offset)
        else:
            found.append(one)
    return tuple(found)


class RepairedRange(NamedTuple):
    """The offsets that a repair has given up, from `start_offset` to before `end_offset`."""

    start_offset: int
    end_offset: int


def is_repaired(repaired: Sequence[RepairedRange], start_offset: int, end_offset: int) -> bool:
    """Returns whether one repaired range covers all offsets from `start_offset` to before `end_offset`."""
    return any(one.start_offset <= start_offset and end_offset <= one.end_offset for one in repaired)


def batches_end(repaired: Sequence[RepairedRange], base_offset: int, next_base: int) -> int:
    """Returns where a segment's batches must end: at the next segment, or where a repaired range up to it begins."""
    starts = (one.start_offset for one in repaired if one.start_offset < next_base <= one.end_offset)
    return max(min(starts, default=next_base), base_offset)


def behind(repaired: Sequence[RepairedRange], offset: int) -> int:
    """Returns the end of the repaired range that an offset lies in; the offset itself if it lies in none."""
    return max((one.end_offset for one in repaired if one.start_offset <= offset < one.end_offset), default=offset)


def joined(ranges: Iterable[RepairedRange]) -> tuple[RepairedRange, ...]:
    """Returns the ranges sorted, with touching ones made one, and empty ones left out."""
    found: list[RepairedRange] = []
    for one in sorted(each for each in ranges if each.start_offset < each.end_offset):
        if found and one.start_offset <= found[-1].end_offset:
            found[-1] = RepairedRange(found[-1].start_offset, max(found[-1].end_offset, one.end_offset))
        else:
            found.append(one)
    return tuple(found)


def below(repaired: Iterable[RepairedRange], offset: int) -> tuple[RepairedRange, ...]:
    """Returns the repaired ranges without what lies at or above `offset`, where their log is cut."""
    return joined(RepairedRange(one.start_offset, min(one.end_offset, offset)) for one in repaired)


class MissingBatchesError(CorruptRecordError):
    """Says that a valid batch, at `end_offset`, begins where an earlier one is expected, and none may be left out."""

    def __init__(self, expected: int, end_offset: int) -> None:
        super().__init__(f"offset {end_offset} where {expected} is expected")
        self.end_offset = end_offset


class AllowedGaps(NamedTuple):
    """Offsets may be left out in front of batches that end at or below `up_to`, and of those that begin by `below`."""

    up_to: int = 0
    below: int = 0


class WalkedFrom(NamedTuple):
    """The part of a segment's file that `valid_batches` reads, from `position` to `end`, and what it expects there.

    The first batch is to have `next_offset`. Offsets may be left out where `gaps` allows it, and in repaired ranges; in
    front of a batch that begins above `gapless_from` that is damage all the same. `led` gets the first two headers of
    each run of batches with one leader epoch.
    """

    position: int
    end: int
    segment_base: int
    next_offset: int
    gaps: AllowedGaps
    led: Headers
    repaired: tuple[RepairedRange, ...] = ()
    gapless_from: int = MAX_LONG


def valid_batches(fs: FileSystem, fd: int, walk: WalkedFrom) -> Iterator[Placed]:
    """Yields (position, header) of each batch in part of a file; raises RecordError for an invalid one, OSError."""
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
    expected, base_offset = walk.next_offset, header.base_offset
    is_given_up = is_repaired(walk.repaired, expected, base_offset)
    may_leave_out = header.next_offset <= walk.gaps.up_to or base_offset <= walk.gaps.below or is_given_up
    is_after_gap = expected < base_offset and may_leave_out and not _is_contradicted(fs, fd, walk, header)
    is_placed = base_offset == expected or is_after_gap
    if not is_placed or header.last_offset - walk.segment_base > MAX_RELATIVE_OFFSET:
        raise CorruptRecordError(f"offset {base_offset} where {expected} is expected")
    if is_after_gap and base_offset > walk.gapless_from and not is_given_up:
        raise MissingBatchesError(expected, base_offset)


def _is_contradicted(fs: FileSystem, fd: int, walk: WalkedFrom, header: BatchHeader) -> bool:
    bounds = SearchBounds(walk.end, walk.next_offset, walk.segment_base + MAX_RELATIVE_OFFSET)
    following = valid_at(fs, fd, walk.position + header.size_bytes, bounds)
    return following is not None and following.base_offset <= header.last_offset
