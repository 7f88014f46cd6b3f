"""Which offsets of an interval hold no record: computed from the offsets that were read, not from their number.

    wanted            100 ─────────────────────────── 120
    records           100 ── 103         108 ── 111
    passed over                                   112 ── 113        markers, aborted transactions
    absent                       104 ── 107               114 ── 119

Intervals are int64 arrays of shape (n, 2), a row for each: the first offset, and the one after the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from millrace.errors import CorruptRecordError
from millrace.records.intervals import Interval

Intervals = npt.NDArray[np.int64]
NO_INTERVALS: Intervals = np.zeros((0, 2), np.int64)


def intervals_of(offsets: npt.NDArray[np.int64]) -> Intervals:
    """Returns the offsets as rows (from, until); raises CorruptRecordError unless they rise."""
    if not len(offsets):
        return NO_INTERVALS
    steps = np.diff(offsets)
    falls = np.flatnonzero(steps <= 0)
    if len(falls):
        before, after = offsets[falls[0]], offsets[falls[0] + 1]
        raise CorruptRecordError(f"a record has offset {after}, and the one before it has offset {before}")
    ends = np.flatnonzero(steps > 1)
    return np.column_stack((offsets[np.r_[0, ends + 1]], offsets[np.r_[ends, len(offsets) - 1]] + 1))


def absent_offsets(accounted: Iterable[Intervals], wanted: Interval) -> Intervals:
    """Returns the offsets of `wanted` that no `accounted` interval has; intervals may come in any order.

    Raises CorruptRecordError where `accounted` intervals overlap, or one lies outside of `wanted`.
    """
    there = joined(accounted)
    there = there[np.argsort(there[:, 0], kind="stable")]
    begins, ends = np.append(there[:, 0], wanted.until_offset), np.insert(there[:, 1], 0, wanted.from_offset)
    wrong = np.flatnonzero(begins < ends)
    if len(wrong):
        raise CorruptRecordError(f"offsets before {ends[wrong[0]]} were read, and then offset {begins[wrong[0]]} again")
    gaps = begins > ends
    return np.column_stack((ends[gaps], begins[gaps]))


def joined(parts: Iterable[Intervals]) -> Intervals:
    """Returns the rows (from, until) of all arrays in one array."""
    return np.concatenate([NO_INTERVALS, *parts])


def count_of(intervals: Intervals) -> int:
    """Returns how many offsets the intervals have in total."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())


def coarse(intervals: Intervals, limit: int) -> list[tuple[int, int]]:
    """Returns at most `limit` (from, until) pairs; if there are more, one pair spans all from the `limit`-th on."""
    shown = [(int(begin), int(end)) for begin, end in intervals[:limit]]
    return [*shown[:-1], (shown[-1][0], int(intervals[-1, 1]))] if shown else []


def as_intervals(spans: Sequence[tuple[int, int]]) -> Intervals:
    """Returns an array of intervals from (from, until) pairs."""
    return np.array(spans, np.int64).reshape(-1, 2)
