import pytest

from millrace.errors import CompactionStoppedError
from millrace.testing.clock import ManualClock
from millrace_broker.storage.throttle import Throttle


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
