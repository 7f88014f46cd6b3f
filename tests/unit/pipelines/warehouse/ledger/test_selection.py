"""What users select, in offsets: above all spans of time, in partitions whose timestamps rise and in others."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest

from millrace_pipelines.spark.brokers import LogOffsets, TopicSource
from millrace_pipelines.spark.errors import OffsetsLostError
from millrace_pipelines.warehouse.errors import ModeError
from millrace_pipelines.warehouse.ledger.ledger import Ledger, LedgerEntry
from millrace_pipelines.warehouse.ledger.plan import OffsetRange, Selection, plan_reload, requested_ranges

SOURCE = TopicSource("127.0.0.1:1", "events")
TIMES = {0: [8, 9, 11, 9.5, 10, 12], 1: [1, 2, 3], 2: [20, 21]}
LOG = {partition: LogOffsets(0, len(times)) for partition, times in TIMES.items()}
LEDGER = Ledger("events", "id", {partition: LedgerEntry(0, log.end_offset) for partition, log in LOG.items()})


@pytest.fixture(autouse=True)
def log_starts(monkeypatch):
    """Where the logs start, of a cluster whose records have TIMES; it answers as ListOffsets does."""
    starts = dict.fromkeys(TIMES, 0)

    def first_not_before(partition, timestamp_ms):
        times = list(enumerate(TIMES[partition]))[starts[partition] :]
        return next((offset for offset, time in times if time >= timestamp_ms), None)

    def offsets_for_time(source, partitions, timestamp_ms):
        assert source == SOURCE
        return {partition: first_not_before(partition, timestamp_ms) for partition in partitions}

    monkeypatch.setattr("millrace_pipelines.warehouse.ledger.plan.offsets_for_time", offsets_for_time)
    return starts


def reloaded(log=LOG, **selected):
    """The ranges that a reload of a selection reads; it raises where offsets are lost."""
    requested = requested_ranges(Selection(**selected), SOURCE, log, LEDGER)
    return plan_reload(LEDGER, log, requested).ranges


def test_a_span_of_time_is_half_open_and_found_in_each_partition():
    assert reloaded(from_time_ms=2, until_time_ms=9) == (OffsetRange(0, 0, 1), OffsetRange(1, 1, 3))
    assert reloaded(from_time_ms=20, until_time_ms=21) == (OffsetRange(2, 0, 1),)
    assert reloaded(from_time_ms=21) == (OffsetRange(2, 1, 2),)
    assert reloaded(partitions=(1,), until_time_ms=3) == (OffsetRange(1, 0, 2),)
    assert reloaded(from_time_ms=30, until_time_ms=40) == reloaded(from_time_ms=5, until_time_ms=5) == ()


def test_where_times_fall_the_range_is_one_of_offsets():
    """As the module's docstring draws it."""
    assert reloaded(partitions=(0,), from_time_ms=9, until_time_ms=11) == (OffsetRange(0, 1, 2),)
    assert reloaded(partitions=(0,), from_time_ms=9, until_time_ms=12) == (OffsetRange(0, 1, 5),)
    assert reloaded(partitions=(0,), from_time_ms=11, until_time_ms=12) == (OffsetRange(0, 2, 5),)


def test_spans_that_meet_in_time_meet_in_offsets():
    for times in ([0, 9, 11, 12, 30], [0, 9.5, 10, 30], range(31)):
        read = [span for low, high in pairwise(times) for span in reloaded(from_time_ms=low, until_time_ms=high)]
        offsets = [(span.partition, n) for span in read for n in range(span.from_offset, span.until_offset)]
        assert sorted(offsets) == [(partition, n) for partition in TIMES for n in range(len(TIMES[partition]))]


def test_what_retention_deleted_is_in_no_span_of_time(log_starts):
    log_starts |= {0: 5, 1: 3}
    cut = {0: LogOffsets(5, 6), 1: LogOffsets(3, 3), 2: LogOffsets(0, 2)}
    assert reloaded(cut, from_time_ms=1, until_time_ms=9) == ()
    assert reloaded(cut, from_time_ms=1, until_time_ms=13) == (OffsetRange(0, 5, 6),)
    with pytest.raises(OffsetsLostError):
        reloaded(cut, from_offset=0, until_time_ms=13)


def test_a_side_has_one_beginning_and_comes_before_the_other():
    for selected, message in (
        ({"from_offset": 1, "from_time_ms": 1}, "begins at an offset or at a time"),
        ({"until_offset": 1, "until_time_ms": 1}, "ends at an offset or at a time"),
        ({"from_offset": 5, "until_offset": 4}, "ends at an offset below that"),
        ({"from_time_ms": 5, "until_time_ms": 4}, "ends at a time before that"),
    ):
        with pytest.raises(ModeError, match=message):
            requested_ranges(Selection(**selected), SOURCE, LOG, LEDGER)


def test_times_are_of_utc_and_exact():
    first, second = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    day = Selection.of_times(first, second)
    assert (day.from_time_ms, day.until_time_ms) == (1_767_225_600_000, 1_767_312_000_000)
    assert Selection.of_times(first.replace(tzinfo=None), second.astimezone(timezone(timedelta(hours=9)))) == day
    assert Selection.of_times(first, second, (3,)).partitions == (3,)
