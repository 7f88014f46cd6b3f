import sys

import pytest

from millrace.errors import CompactionStoppedError
from millrace_broker.storage.throttle import BREAK_ITEMS, TURN_S, Throttle, short_turns
from millrace_support.clock import ManualClock


def test_work_takes_as_long_as_its_rate_demands_and_no_longer() -> None:
    clock = ManualClock()

    def wait(seconds: float) -> bool:
        clock.advance(round(seconds * 1000))
        return False

    throttle = Throttle(clock, wait, bytes_per_second=10_000)
    for _ in range(20):
        throttle.take(1000)
    assert 1990 <= clock.monotonic_ms() <= 2010
    clock.advance(60_000)
    throttle.take(50_000)
    assert clock.monotonic_ms() >= 66_990


def test_whoever_stops_it_is_heard_at_the_next_portion() -> None:
    with pytest.raises(CompactionStoppedError):
        Throttle(ManualClock(), lambda _: True, bytes_per_second=1e300).take(1)


def test_many_small_items_are_broken_up_too() -> None:
    breaks: list[float] = []

    def wait(seconds: float) -> bool:
        breaks.append(seconds)
        return len(breaks) == 3

    throttle = Throttle(ManualClock(), wait, bytes_per_second=1e300)
    items = throttle.paced(range(BREAK_ITEMS * 10))
    assert [next(items) for _ in range(BREAK_ITEMS * 3)] == list(range(BREAK_ITEMS * 3))
    assert len(breaks) == 2
    with pytest.raises(CompactionStoppedError):
        next(items)


def test_items_of_many_small_batches_add_up_to_a_break() -> None:
    breaks: list[float] = []
    throttle = Throttle(ManualClock(), lambda seconds: bool(breaks.append(seconds)), bytes_per_second=1e300)
    for _ in range(BREAK_ITEMS):
        assert list(throttle.paced(range(3))) == [0, 1, 2]
    assert len(breaks) == 3


def test_turns_are_short_only_meanwhile() -> None:
    before = sys.getswitchinterval()
    with short_turns():
        assert sys.getswitchinterval() == pytest.approx(TURN_S)
    assert sys.getswitchinterval() == pytest.approx(before)
