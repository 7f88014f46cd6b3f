"""The segments of a log as an immutable value: a reader that has taken it keeps it, whatever happens meanwhile."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.retention import SegmentFacts
from millrace_broker.storage.segments.segment import LogSegment


class SegmentSequence:
    """Segments sorted by base offset, at least one; the last one is active."""

    __slots__ = ("_bases", "_segments", "active")

    def __init__(self, segments: Iterable[LogSegment]) -> None:
        self._segments = tuple(segments)
        self._bases = [segment.base_offset for segment in self._segments]
        self.active = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    @overload
    def __getitem__(self, index: int) -> LogSegment: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[LogSegment, ...]: ...
    def __getitem__(self, index: int | slice) -> LogSegment | tuple[LogSegment, ...]:
        return self._segments[index]

    def floor_index(self, offset: int) -> int:
        """Returns the index of the segment whose range the offset falls in; 0 for an offset below them all."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def holds(self, segments: Sequence[LogSegment]) -> bool:
        """Returns whether these are here, side by side, and the active one is not among them."""
        index = self.floor_index(segments[0].base_offset)
        return self._segments[index : index + len(segments)] == tuple(segments) and self.active not in segments

    def with_replaced(self, old: Sequence[LogSegment], new: LogSegment) -> SegmentSequence:
        """Returns the segments with one in the place of several neighbours."""
        index = self.floor_index(old[0].base_offset)
        return SegmentSequence((*self._segments[:index], new, *self._segments[index + len(old) :]))


def facts_of(segment: LogSegment) -> SegmentFacts:
    """Returns what retention and compaction look at when they choose. Raises StorageError."""
    with storage_errors(segment.path):
        return SegmentFacts(
            base_offset=segment.base_offset,
            next_offset=segment.next_offset,
            size_bytes=segment.size_bytes,
            max_timestamp=segment.largest_timestamp,
        )
