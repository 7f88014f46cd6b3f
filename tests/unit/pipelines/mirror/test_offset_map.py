"""The offset map of one partition against a plain list of pairs of offsets, and the bytes of its runs."""

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.config import MAX_LONG
from millrace.errors import RecordError
from millrace.records.varint import encode_varint
from millrace_pipelines.mirror.offset_map import (
    MappedRuns,
    OffsetMap,
    OffsetMapError,
    Run,
    decode_runs,
    encode_runs,
    joined,
)

GAPS = st.sampled_from([0, 0, 0, 1, 2, 7])
STEPS = st.lists(st.tuples(GAPS, GAPS, st.integers(1, 5)), min_size=1, max_size=30)


def placed(steps, source=0, target=0):
    """Runs as a mirror makes them, of (gap at the source, gap at the target, number of records)."""
    runs = []
    for source_gap, target_gap, count in steps:
        runs.append(Run(source + source_gap, target + target_gap, count))
        source, target = runs[-1].source_end, runs[-1].target_end
    return runs


def map_of(runs):
    found = OffsetMap()
    for run in runs:
        found.add(run)
    return found


def pairs(runs):
    return [(run.source + index, run.target + index) for run in runs for index in range(run.length)]


def naive(here, there, offset):
    """The first mirrored record that is not below the offset, or the end."""
    return next((to for at, to in zip(here, there, strict=True) if at >= offset), there[-1] + 1)


@given(STEPS)
def test_each_offset_becomes_that_of_the_first_mirrored_record_not_below_it(steps):
    runs = placed(steps)
    sources, targets = zip(*pairs(runs), strict=True)
    found = map_of(runs)
    for offset in range(-1, sources[-1] + 3):
        assert found.to_target(offset) == naive(sources, targets, offset)
    for offset in range(-1, targets[-1] + 3):
        assert found.to_source(offset) == naive(targets, sources, offset)


@given(STEPS)
def test_there_and_back_reads_nothing_twice_and_skips_nothing(steps):
    runs = placed(steps)
    sources, targets = zip(*pairs(runs), strict=True)
    found = map_of(runs)
    for offset in range(sources[-1] + 3):
        back = found.to_source(found.to_target(offset))
        assert bisect_left(sources, back) == bisect_left(sources, offset)
        assert back == offset or offset not in sources
    for offset in range(targets[-1] + 3):
        back = found.to_target(found.to_source(offset))
        assert bisect_left(targets, back) == bisect_left(targets, offset)


@given(STEPS)
def test_runs_that_continue_each_other_are_one(steps):
    found = map_of(placed(steps))
    assert len(found) == 1 + sum(any(gaps) for *gaps, _ in steps[1:])
    assert joined(placed(steps)) == list(found)
    assert pairs(found) == pairs(placed(steps))


def test_an_empty_map_translates_nothing():
    found = OffsetMap()
    assert (found.to_target(5), found.to_source(5), found.last, found.next_source) == (None, None, None, 0)


def test_who_has_read_all_of_the_target_goes_on_where_the_source_is_mirrored_up_to():
    found = OffsetMap()
    found.go_on(MappedRuns(110, [Run(100, 40, 3)]))
    assert [found.to_source(offset) for offset in (42, 43, 44, 1000)] == [102, 110, 110, 110]
    assert [found.to_target(offset) for offset in (102, 103, 110, 1000)] == [42, 43, 43, 43]


@pytest.mark.parametrize("run", [Run(104, 50, 1), Run(105, 44, 1), Run(0, 0, 1)])
def test_a_run_below_the_end_is_refused(run):
    with pytest.raises(OffsetMapError, match="begins below"):
        map_of([Run(100, 40, 5), run])


@pytest.mark.parametrize(
    ("first", "left"),
    [
        (Run(110, 60, 1), [Run(100, 40, 5), Run(106, 45, 2), Run(110, 60, 1)]),
        (Run(107, 60, 1), [Run(100, 40, 5), Run(106, 45, 1), Run(107, 60, 1)]),
        (Run(105, 60, 1), [Run(100, 40, 5), Run(105, 60, 1)]),
        (Run(103, 60, 1), [Run(100, 40, 3), Run(103, 60, 1)]),
        (Run(0, 60, 9), [Run(0, 60, 9)]),
        (Run(200, 42, 1), [Run(100, 40, 2), Run(200, 42, 1)]),
        (Run(200, 0, 1), [Run(200, 0, 1)]),
    ],
)
def test_runs_of_a_source_that_was_cut_or_made_once_more_replace_what_was_there(first, left):
    found = OffsetMap()
    found.go_on(MappedRuns(109, [Run(100, 40, 5), Run(106, 45, 2)]))
    found.go_on(MappedRuns(first.source_end + 1, [first]))
    assert list(found) == left
    assert found.next_source == first.source_end + 1


@given(STEPS, st.integers(0, 3), st.integers(0, MAX_LONG - 1000), st.integers(0, MAX_LONG - 1000))
def test_runs_come_back_from_their_bytes(steps, beyond, source, target):
    runs = placed(steps, source, target)
    mapped = MappedRuns(runs[-1].source_end + beyond, runs)
    assert decode_runs(encode_runs(mapped)) == mapped


def test_runs_in_bytes_are_as_drawn():
    mapped = MappedRuns(110, [Run(100, 40, 3), Run(105, 43, 2)])
    drawn = bytes((1,)) + b"".join(map(encode_varint, (110, 2, 100, 40, 3, 2, 0, 2)))
    assert encode_runs(mapped) == drawn
    assert encode_runs(MappedRuns(7, [])) == bytes((1, 14, 0))


WRONG = {
    "nothing": b"",
    "another version": bytes((2, 14, 0)),
    "cut short": bytes((1, 14)),
    "more runs than bytes": bytes((1, 14, 100, 0, 0, 2)),
    "fewer than no runs": bytes((1, 14, 1)),
    "bytes behind": bytes((1, 14, 0, 0)),
    "no records": bytes((1, 14, 2, 0, 0, 0)),
    "negative offset": bytes((1, 14, 2, 1, 0, 2)),
    "runs that overlap": bytes((1, 40, 4, 0, 0, 4, 1, 0, 2)),
    "the next source offset is inside": bytes((1, 2, 2, 0, 0, 4)),
    "beyond every log": bytes((1, *encode_varint(MAX_LONG), 2, *encode_varint(MAX_LONG), 0, 2)),
}


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_bytes_that_are_no_runs_are_refused(value):
    with pytest.raises(RecordError):
        decode_runs(value)


@given(STEPS, st.data())
def test_a_changed_byte_gives_an_error_or_another_map_that_is_in_order(steps, data):
    runs = placed(steps)
    value = bytearray(encode_runs(MappedRuns(runs[-1].source_end, runs)))
    value[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        mapped = decode_runs(bytes(value))
    except RecordError:
        return
    assert decode_runs(encode_runs(mapped)) == mapped


@pytest.mark.parametrize("mapped", [MappedRuns(9, [Run(0, 0, 0)]), MappedRuns(0, [Run(0, 0, 1)]), MappedRuns(-1, [])])
def test_runs_that_are_none_are_not_written(mapped):
    with pytest.raises(OffsetMapError):
        encode_runs(mapped)
