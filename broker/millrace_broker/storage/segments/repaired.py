"""Repaired ranges: offsets that a repair has given up, so that a log without them is whole.

    batches    [ 0 ... 39 ]            [ 100 ... 119 ]
    repaired                40 ... 99

A reader passes over such a range as over one that compaction has emptied. It need not be exact: it may reach over
batches that are there. What it allows is only that none are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class RepairedRange(NamedTuple):
    """Offsets from `start_offset` up to `end_offset` that may be missing."""

    start_offset: int
    end_offset: int


def is_repaired(repaired: Sequence[RepairedRange], start_offset: int, end_offset: int) -> bool:
    """Returns whether the offsets from one up to another may be missing."""
    return any(one.start_offset <= start_offset and end_offset <= one.end_offset for one in repaired)


def batches_end(repaired: Sequence[RepairedRange], base_offset: int, next_base: int) -> int:
    """Returns where a closed segment must reach: to where the next one begins, or to a repaired range before that."""
    starts = (one.start_offset for one in repaired if one.start_offset < next_base <= one.end_offset)
    return max(min(starts, default=next_base), base_offset)


def behind(repaired: Sequence[RepairedRange], offset: int) -> int:
    """Returns the end of the range that an offset lies in; the offset itself without one."""
    return max((one.end_offset for one in repaired if one.start_offset <= offset < one.end_offset), default=offset)


def joined(ranges: Iterable[RepairedRange]) -> tuple[RepairedRange, ...]:
    """Returns the ranges sorted, and as one where they touch; those of no offsets are left out."""
    found: list[RepairedRange] = []
    for one in sorted(each for each in ranges if each.start_offset < each.end_offset):
        if found and one.start_offset <= found[-1].end_offset:
            found[-1] = RepairedRange(found[-1].start_offset, max(found[-1].end_offset, one.end_offset))
        else:
            found.append(one)
    return tuple(found)


def below(repaired: Iterable[RepairedRange], offset: int) -> tuple[RepairedRange, ...]:
    """Returns what is left of the ranges in a log that was cut at an offset."""
    return joined(RepairedRange(one.start_offset, min(one.end_offset, offset)) for one in repaired)
