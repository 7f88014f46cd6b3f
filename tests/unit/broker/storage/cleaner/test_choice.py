import pytest

from millrace_broker.storage.cleaner.choice import (
    Dirtiness,
    GroupLimits,
    SegmentSizes,
    dirtiness,
    end_of_cleanable,
    first_dirty_offset,
    group_sizes,
)
from millrace_broker.storage.retention import SegmentFacts

CLOSED = [
    SegmentFacts(base_offset=base, next_offset=base + 10, size_bytes=100, max_timestamp=1000 + base)
    for base in (0, 10, 20, 30)
]


@pytest.mark.parametrize(("checkpoint", "expected"), [(None, 5), (3, 5), (5, 5), (17, 17), (40, 40), (41, 5)])
def test_the_first_dirty_offset_is_the_checkpoints_where_that_can_be(checkpoint: int | None, expected: int) -> None:
    assert first_dirty_offset(checkpoint, log_start_offset=5, log_end_offset=40) == expected


@pytest.mark.parametrize(
    ("up_to_offset", "lag_ms", "expected"),
    [(100, 0, 40), (39, 0, 30), (5, 0, 0), (100, 10, 40), (100, 30, 20), (100, 1000, 0)],
)
def test_only_whole_segments_that_are_old_enough_are_cleanable(up_to_offset: int, lag_ms: int, expected: int) -> None:
    end = end_of_cleanable(CLOSED, up_to_offset=up_to_offset, min_compaction_lag_ms=lag_ms, now_ms=1040)
    assert end == expected


def test_a_log_without_closed_segments_has_nothing_to_clean() -> None:
    assert end_of_cleanable([], up_to_offset=9, min_compaction_lag_ms=0, now_ms=0) == 0
    assert dirtiness([], first_dirty_offset=0, end_offset=0).ratio == 0


def test_dirt_is_what_lies_between_the_first_dirty_offset_and_the_end() -> None:
    dirt = dirtiness(CLOSED, first_dirty_offset=15, end_offset=30)
    assert (dirt.clean_bytes, dirt.dirty_bytes) == (100, 200)
    assert dirt.ratio == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("clean", "dirty", "oldest_ms", "expected"),
    [
        (1, 1, -1, None),
        (1, 2, -1, "dirty ratio above min.cleanable.dirty.ratio"),
        (9, 1, 100, "older than max.compaction.lag.ms"),
        (9, 1, 101, None),
        (9, 0, 100, None),
        (0, 0, -1, None),
    ],
)
def test_a_log_is_due_by_its_dirty_ratio_or_its_oldest_dirty_record(
    clean: int, dirty: int, oldest_ms: int, expected: str | None
) -> None:
    dirt = Dirtiness(
        first_dirty_offset=0, end_offset=10, clean_bytes=clean, dirty_bytes=dirty, oldest_dirty_ms=oldest_ms
    )
    assert dirt.due_reason(min_ratio=0.5, max_compaction_lag_ms=99, now_ms=200) == expected


@pytest.mark.parametrize(
    ("sizes", "expected"), [([40, 40, 40], [2, 1]), ([100, 1], [1, 1]), ([300, 1], [1, 1]), ([10] * 10, [10]), ([], [])]
)
def test_neighbours_are_united_up_to_the_size_of_a_segment(sizes: list[int], expected: list[int]) -> None:
    members = [
        SegmentSizes(base_offset=slot * 10, next_offset=slot * 10 + 10, size_bytes=size, index_entries=1)
        for slot, size in enumerate(sizes)
    ]
    assert group_sizes(members, GroupLimits(size_bytes=100, index_entries=1000, offsets=1000)) == expected


def test_indexes_and_relative_offsets_bound_a_group_too() -> None:
    members = [
        SegmentSizes(base_offset=slot * 10, next_offset=slot * 10 + 10, size_bytes=1, index_entries=4)
        for slot in range(6)
    ]
    assert group_sizes(members, GroupLimits(size_bytes=100, index_entries=8, offsets=1000)) == [2, 2, 2]
    assert group_sizes(members, GroupLimits(size_bytes=100, index_entries=100, offsets=30)) == [3, 3]
