"""The segments of a log as an immutable value: a reader that has taken it keeps it, whatever happens meanwhile."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Self

from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.retention import SegmentFacts
from millrace_broker.storage.segments.segment import LogSegment


class SegmentSequence(tuple[LogSegment, ...]):  # noqa: SLOT001 -- a tuple can have no slots of its own
    """A log's segments sorted by base offset, at least one; the last one, `active`, takes appends."""

    _bases: list[int]
    active: LogSegment

    def __new__(cls, segments: Iterable[LogSegment]) -> Self:
        """Takes the segments, which must be sorted."""
        sequence = super().__new__(cls, segments)
        sequence._bases = [segment.base_offset for segment in sequence]
        sequence.active = sequence[-1]
        return sequence

    def floor_index(self, offset: int) -> int:
        """Returns the index of the last segment that begins at or below an offset; 0 for an offset below them all."""
        above = bisect_right(self._bases, offset)
        return above - 1 if above else 0

    def holds(self, segments: Sequence[LogSegment]) -> bool:
        """Returns whether `segments` are in the sequence, side by side, without the active one."""
        index = self.floor_index(segments[0].base_offset)
        return self[index : index + len(segments)] == tuple(segments) and self.active not in segments

    def with_replaced(self, old: Sequence[LogSegment], *new: LogSegment) -> SegmentSequence:
        """Returns the sequence with `new` in the place of the neighbours `old`."""
        index = self.floor_index(old[0].base_offset)
        return SegmentSequence((*self[:index], *new, *self[index + len(old) :]))


def facts_of(segment: LogSegment) -> SegmentFacts:
    """Returns a segment's offsets, size and time, for retention and compaction. Raises StorageError.

    Damage hides the times of its records, which were written no later than the file was. So it is where only the time
    index says which one is the newest.
    """
    with storage_errors(segment.path):
        newest, is_known = segment.largest_timestamp, segment.is_newest_known and not segment.damage
        return SegmentFacts(
            base_offset=segment.base_offset,
            next_offset=segment.next_offset,
            size_bytes=segment.size_bytes,
            max_timestamp=newest if is_known else max(newest, segment.modified_ms),
        )
