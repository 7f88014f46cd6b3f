"""Checks batches before they are sent, so that no answer to a fetch has damage or a gap where that can be known.

    a segment   [ checked │ checked │ not yet ......................... ]
    a read              [ known │ at most CHECK_BYTES or CHECK_BATCHES ]     the answer ends there, or before damage

A read goes by headers and by the index; that alone would pass damage on. So what a reader is to get of a closed
segment is walked first: lengths, CRC, codec, leader epochs, and that each batch follows on the one before it. Each
stretch is walked once while the segment is open, since to walk a megabyte in batches of 16 KB takes 0.5 ms, as long as
to send it: what rots later is found by `verify`, and by followers, which compare every CRC and tell their leader. A
file that was cut since then is noticed by each read. What this process has appended to the active segment was checked
then.

The event loop walks, as it reads; so an answer from a stretch that is new ends after a mebibyte.

A segment's stretches are at most `MAX_STRETCHES`; the shortest are forgotten, and walked again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from millrace.errors import RecordError
from millrace.fs import FileSystem
from millrace_broker.storage.batches.scan import Located, offset_at
from millrace_broker.storage.segments.batch_epochs import Entries, EpochComparison, WrongEpoch
from millrace_broker.storage.segments.damage import WalkedFrom, valid_batches
from millrace_broker.storage.segments.damage_search import set_aside_from, walk_of
from millrace_broker.storage.segments.segment import LogSegment

CHECK_BYTES = 1 << 20
CHECK_BATCHES = 1000
MAX_STRETCHES = 16


class Stretch(NamedTuple):
    """Bytes of whole batches that were checked: they follow on `first_offset`, and `next_offset` follows on them."""

    position: int
    end: int
    first_offset: int
    next_offset: int


class CheckedBytes:
    """The stretches of one segment that were checked, sorted by position; none overlaps another."""

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        self._stretches: list[Stretch] = []

    def at(self, position: int) -> Stretch | None:
        """Returns the stretch that has the byte at a position; None without one."""
        slot = bisect_right(self._stretches, position, key=lambda one: one.position) - 1
        found = self._stretches[slot] if slot >= 0 else None
        return found if found is not None and position < found.end else None

    def add(self, added: Stretch) -> None:
        """Adds a stretch, and joins those that overlap it, or touch it without a gap between their offsets."""
        apart: list[Stretch] = []
        for one in self._stretches:
            if _are_one(one, added):
                first, last = min(one, added), max(one, added, key=lambda each: each.end)
                added = Stretch(first.position, last.end, first.first_offset, last.next_offset)
            else:
                apart.append(one)
        if len(apart) >= MAX_STRETCHES:
            apart.remove(min(apart, key=lambda one: one.end - one.position))
        self._stretches = sorted([*apart, added])


def _are_one(one: Stretch, other: Stretch) -> bool:
    before, behind = min(one, other), max(one, other)
    return behind.position < before.end or (behind.position == before.end and behind.first_offset == before.next_offset)


def checked(  # noqa: PLR0917 -- a read of a segment, and what is known of both
    fs: FileSystem,
    segment: LogSegment,
    known: CheckedBytes,
    offset: int,
    found: Located,
    gapless_from: int,
    entries: Callable[[], Entries],
) -> tuple[Located, Sequence[WrongEpoch]]:
    """Returns as much of the batches found from `offset` on as is valid and may be looked at in one go.

    It ends before damage that is known, and sets aside what it meets behind the first batch. Beside it are the batches,
    of those that were looked at, with another leader epoch than the log's `entries` say. Raises RecordError where the
    first batch is damaged, or one before it is missing, and OSError.
    """
    end = known_end(segment, found)
    stretch = known.at(found.position)
    if stretch is None:
        position, expected = found.position, min(offset, offset_at(fs, segment.fd, found.position))
    else:
        position, expected = min(stretch.end, end), stretch.next_offset
    wrong: Sequence[WrongEpoch] = ()
    if position < end:
        epochs = EpochComparison(entries())
        walk = walk_of(segment, position, end, expected, gapless_from)
        end, next_offset, is_damaged = _valid_part(fs, segment, walk, epochs)
        if end > position:
            known.add(Stretch(position, end, expected, next_offset))
        if is_damaged:
            set_aside_from(fs, segment, next_offset, gapless_from)
        epochs.finish()
        wrong = epochs.wrong
    size_bytes = end - found.position
    data = None if found.data is None or wrong else found.data[:size_bytes]  # what is mended is read again
    return Located(found.position, size_bytes, data), wrong


def _valid_part(
    fs: FileSystem, segment: LogSegment, walk: WalkedFrom, epochs: EpochComparison
) -> tuple[int, int, bool]:
    """Returns (position, offset) where a walk's valid batches end, or have been enough, and whether damage follows.

    Raises RecordError where the segment is damaged at the beginning of the walk, and OSError.
    """
    end, next_offset = walk.position, walk.next_offset
    try:
        for count, (position, header) in enumerate(valid_batches(fs, segment.fd, walk), start=1):
            end, next_offset = position + header.size_bytes, header.next_offset
            epochs.note(position, header)
            if end - walk.position >= CHECK_BYTES or count >= CHECK_BATCHES:
                break
    except RecordError:
        if end == walk.position:
            raise
        return end, next_offset, True
    return end, next_offset, False


def known_end(segment: LogSegment, found: Located) -> int:
    """Returns the position where batches end that were found, or the first damage behind the beginning of them."""
    later = (one.position for one in segment.damage if one.position > found.position)
    return min([found.position + found.size_bytes, *later])
