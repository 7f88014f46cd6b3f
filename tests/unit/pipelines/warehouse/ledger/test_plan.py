"""Which offsets a load reads, and in which tasks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_pipelines.spark.brokers import LogOffsets
from millrace_pipelines.spark.errors import OffsetsLostError
from millrace_pipelines.warehouse.ledger.ledger import Ledger, LedgerEntry, swap
from millrace_pipelines.warehouse.ledger.plan import (
    MIN_RECORDS_PER_TASK,
    LostRange,
    OffsetRange,
    plan_load,
    records_per_task,
    split_ranges,
)


def ledger(**partitions):
    entries = {int(name[1:]): LedgerEntry(*offsets) for name, offsets in partitions.items()}
    return Ledger("events", "id", entries)


def test_a_first_load_reads_the_whole_log():
    plan = plan_load(ledger(), {0: LogOffsets(5, 9), 1: LogOffsets(0, 0)})
    assert plan.ranges == (OffsetRange(0, 5, 9),)
    assert plan.following == {0: LedgerEntry(5, 9), 1: LedgerEntry(0, 0)}


def test_a_later_load_reads_what_is_new():
    plan = plan_load(ledger(p0=(5, 9), p1=(0, 4)), {0: LogOffsets(6, 12), 1: LogOffsets(0, 4), 2: LogOffsets(0, 3)})
    assert plan.ranges == (OffsetRange(0, 9, 12), OffsetRange(2, 0, 3))
    assert plan.following == {0: LedgerEntry(5, 12), 1: LedgerEntry(0, 4), 2: LedgerEntry(0, 3)}
    assert plan.lost == ()


def test_offsets_lost_to_retention_are_named():
    log = {0: LogOffsets(20, 30), 1: LogOffsets(8, 8)}
    with pytest.raises(OffsetsLostError, match=r"partition 0: 9-19, partition 1: 4-7.*--accept-lost-offsets"):
        plan_load(ledger(p0=(5, 9), p1=(0, 4)), log)


def test_accepted_losses_are_part_of_the_plan():
    log = {0: LogOffsets(20, 30), 1: LogOffsets(8, 8)}
    plan = plan_load(ledger(p0=(5, 9), p1=(0, 4)), log, accept_lost_offsets=True)
    assert plan.lost == (LostRange(0, 9, 20, "retention"), LostRange(1, 4, 8, "retention"))
    assert plan.ranges == (OffsetRange(0, 20, 30),)
    assert plan.following == {0: LedgerEntry(5, 30), 1: LedgerEntry(0, 8)}


def test_a_partition_that_came_since_the_last_load_lacks_what_retention_took_of_it():
    log = {0: LogOffsets(0, 4), 1: LogOffsets(5, 10)}
    with pytest.raises(OffsetsLostError, match=r"partition 1: 0-4"):
        plan_load(ledger(p0=(0, 4)), log)
    plan = plan_load(ledger(p0=(0, 4)), log, accept_lost_offsets=True)
    assert plan.lost == (LostRange(1, 0, 5, "retention"),)
    assert plan.ranges == (OffsetRange(1, 5, 10),)
    assert plan.following[1] == LedgerEntry(0, 10)


@given(st.integers(0, 10**6), st.integers(1, 10**5), st.integers(1, 5000))
def test_tasks_cover_a_range_and_stay_small(from_offset, offsets, max_records):
    tasks = split_ranges([OffsetRange(3, from_offset, from_offset + offsets)], max_records)
    position = from_offset
    for task in tasks:
        assert task.partition == 3
        assert task.from_offset == position
        assert 0 < task.offsets <= max_records
        position = task.until_offset
    assert position == from_offset + offsets


@pytest.mark.parametrize(
    ("partitions", "cores", "tasks"),
    [
        ([750_000] * 2, 2, [750_000] * 2),  # one for each core
        ([500_000] * 3, 2, [250_000] * 6),  # three would keep one core waiting for the third
        ([1_000_000], 4, [250_000] * 4),  # cores share a partition
        ([1_000_000, 100_000], 2, [500_000, 500_000, 100_000]),
        ([500, 500], 16, [500, 500]),  # too small to be worth more
        ([2_500_000], 1, [833_333, 833_333, 833_334]),  # no larger than allowed
        ([], 2, []),
    ],
)
def test_tasks_are_few_and_cores_are_done_together(partitions, cores, tasks):
    ranges = [OffsetRange(number, 0, offsets) for number, offsets in enumerate(partitions)]
    size = records_per_task(ranges, cores, 1_000_000)
    assert [task.offsets for task in split_ranges(ranges, size)] == tasks


@given(st.lists(st.integers(1, 10**7), min_size=1, max_size=5), st.integers(1, 64), st.integers(1, 10**7))
def test_tasks_are_within_the_bound_and_not_tiny(offsets, cores, max_records):
    ranges = [OffsetRange(number, 0, count) for number, count in enumerate(offsets)]
    size = records_per_task(ranges, cores, max_records)
    assert min(MIN_RECORDS_PER_TASK, max_records) <= size <= max_records


def test_a_swap_names_the_versions_before_and_after():
    expected, transactions = swap(ledger(p0=(5, 9)), {0: LedgerEntry(5, 12), 1: LedgerEntry(2, 3)})
    assert expected == {"millrace/id/0": 9, "millrace/id/1": None}
    assert transactions == {"millrace/id/0": 12, "millrace/id/1": 3, "millrace/id/1/start": 2}
