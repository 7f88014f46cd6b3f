"""Scans of a partition: what they find, where they stop, and how far they have come."""

import pytest

from millrace.client import FetchedData
from millrace.records.intervals import Interval
from millrace.records.record import NewRecord, encode_batch
from millrace_ops.console.pages.messages import NEWEST, OLDEST, Budget, RecordQuery, scan
from millrace_support.clock import ManualClock

BATCHES = {0: 10, 10: 10, 20: 5}  # base offset: records


def fetch(offset):
    """The batch that has an offset, as a broker answers it: the first record may lie below."""
    base = max((one for one in BATCHES if one <= offset), default=0)
    records = [NewRecord(b"%d" % (base + number)) for number in range(BATCHES[base])]
    data = encode_batch(records, base_offset=base) if offset < base + BATCHES[base] else b""
    return FetchedData(data, 25, 25, 0)


def found(wanted, start, end=25, matches=None, budget=None):
    records, next_offset = scan(fetch, wanted, Interval(start, end), budget or plenty(), matches)
    return [one.offset for one in records], next_offset


def plenty():
    return Budget(1000, 1 << 20, 1.0, ManualClock())


def wanted(position, limit):
    return RecordQuery("t", [0], position, limit=limit)


def test_from_an_offset_on_it_stops_with_the_last_that_is_shown():
    assert found(wanted(OLDEST, 3), 8) == ([8, 9, 10], 11)
    assert found(wanted(OLDEST, 100), 8) == (list(range(8, 25)), 25)


def test_the_newest_are_the_last_of_the_span():
    assert found(wanted(NEWEST, 3), 8) == ([22, 23, 24], 25)
    assert found(wanted(NEWEST, 3), 8, end=12) == ([9, 10, 11], 12)


def test_only_what_matches_is_found():
    def is_even(record):
        return int(record.value) % 2 == 0

    assert found(wanted(OLDEST, 3), 3, matches=is_even) == ([4, 6, 8], 9)
    assert found(wanted(NEWEST, 2), 0, matches=is_even) == ([22, 24], 25)
    assert found(wanted(OLDEST, 3), 3, matches=lambda _: False) == ([], 25)


@pytest.mark.parametrize(
    "budget", [Budget(10, 1 << 20, 1.0, ManualClock()), Budget(1000, 1, 1.0, ManualClock())], ids=["records", "bytes"]
)
def test_a_budget_ends_it_and_it_says_where_to_go_on(budget):
    assert found(wanted(OLDEST, 100), 0, budget=budget) == (list(range(10)), 10)


def test_time_ends_it_in_the_middle_of_a_batch():
    """As where each record takes long to decode."""
    clock = ManualClock()

    def takes_long(_):
        clock.advance(300)
        return True

    assert found(wanted(OLDEST, 100), 0, matches=takes_long, budget=Budget(1000, 1 << 20, 1.0, clock)) == (
        [0, 1, 2, 3],
        4,
    )


def test_time_ends_it():
    clock = ManualClock()
    budget = Budget(1000, 1 << 20, clock.monotonic_s(), clock)
    assert found(wanted(OLDEST, 100), 0, budget=budget) == ([], 0)


def test_an_empty_answer_ends_it():
    assert found(wanted(OLDEST, 100), 25, end=30) == ([], 25)
