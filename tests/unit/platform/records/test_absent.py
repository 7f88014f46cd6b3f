"""Which offsets hold no record, computed from what was read: held against sets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import CorruptRecordError
from millrace.records.absent import absent_offsets, as_intervals, coarse, count_of, intervals_of, joined
from millrace.records.intervals import Interval

WANTED = Interval(10, 60)
OFFSETS = st.sets(st.integers(WANTED.from_offset, WANTED.until_offset - 1))


def offsets_in(intervals):
    return [offset for begin, end in intervals for offset in range(begin, end)]


@given(OFFSETS)
def test_intervals_have_just_the_offsets(offsets):
    rising = np.array(sorted(offsets), np.int64)
    found = intervals_of(rising)
    assert offsets_in(found) == sorted(offsets)
    assert count_of(found) == len(offsets)
    assert (found[1:, 0] > found[:-1, 1]).all()


@given(st.lists(st.integers(0, 50), min_size=2))
def test_offsets_that_do_not_rise_are_damage(offsets):
    if offsets != sorted(set(offsets)):
        with pytest.raises(CorruptRecordError, match="the one before it"):
            intervals_of(np.array(offsets, np.int64))


@given(OFFSETS, st.lists(st.integers(0, 2), min_size=50, max_size=50))
def test_what_none_accounts_for_is_absent(offsets, owners):
    parts = [[one for one in sorted(offsets) if owners[one - WANTED.from_offset] == owner] for owner in range(3)]
    accounted = [intervals_of(np.array(part, np.int64)) for part in parts]
    absent = absent_offsets(accounted, WANTED)
    assert offsets_in(absent) == sorted(set(range(*WANTED)) - offsets)


@pytest.mark.parametrize(
    "accounted",
    [[(10, 20), (19, 30)], [(10, 20), (10, 20)], [(9, 12)], [(55, 61)], [(-(2**63), 2)], [(70, 80)]],
    ids=["overlap", "twice", "begins before", "ends behind", "least", "outside"],
)
def test_what_is_there_twice_or_outside_is_damage(accounted):
    with pytest.raises(CorruptRecordError, match="again"):
        absent_offsets([as_intervals([one]) for one in accounted], WANTED)


def test_nothing_that_was_read_leaves_all_absent():
    assert absent_offsets([], WANTED).tolist() == [list(WANTED)]
    assert absent_offsets([as_intervals([WANTED])], WANTED).tolist() == []


def test_coarse_intervals_have_all_offsets_and_are_bounded():
    many = as_intervals([(1, 2), (4, 6), (9, 10)])
    assert coarse(many, 3) == [(1, 2), (4, 6), (9, 10)]
    assert coarse(many, 2) == [(1, 2), (4, 10)]
    assert coarse(many, 1) == [(1, 10)]
    assert coarse(joined([]), 2) == []
