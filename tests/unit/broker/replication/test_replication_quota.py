"""The quota of throttled replication: which replicas count, what is measured, and how long a throttled copy takes."""

import pytest

from millrace.config import MAX_LONG
from millrace_broker.quotas.measures import DEFAULT_WINDOWS, QuotaWindows
from millrace_broker.replication.replication_quota import ReplicationQuota
from millrace_support.clock import ManualClock

ME = 2


def quota(rate=1000, windows=DEFAULT_WINDOWS, clock=None):
    return ReplicationQuota(ME, clock or ManualClock(), lambda: rate, windows)


@pytest.mark.parametrize(
    ("throttled_replicas", "listed"),
    [("", []), ("*", [0, 1, 2]), ("0:1,1:2,2:2", [1, 2]), ("0:1", []), ("1:2, 1:1", [1])],
)
def test_a_topic_lists_its_throttled_replicas_by_partition_and_broker(throttled_replicas, listed):
    assert [one for one in range(3) if quota().lists(throttled_replicas, one)] == listed


def test_the_rate_is_that_of_at_least_one_window_and_forgets_old_ones():
    clock = ManualClock()
    counted = quota(1000, QuotaWindows(number=3, window_ms=1000), clock)
    assert counted.bytes_per_second() == 0
    counted.record(1500)
    assert counted.bytes_per_second() == 1500
    clock.advance(500)
    assert counted.bytes_per_second() == 1500  # the first window has its whole length at once
    clock.advance(1000)
    assert counted.bytes_per_second() == 1000
    counted.record(500)
    assert counted.bytes_per_second() == 2000 / 1.5
    clock.advance(1500)
    assert counted.bytes_per_second() == 500 / 1.5  # nothing of the first window is within the last three
    clock.advance(10_000)
    assert counted.bytes_per_second() == 0


def test_exactly_the_rate_is_allowed_and_another_rate_counts_at_once():
    rates = [1000]
    counted = ReplicationQuota(ME, ManualClock(), lambda: rates[-1])
    counted.record(1000)
    assert not counted.is_exceeded
    rates.append(999)
    assert counted.is_exceeded
    rates.append(MAX_LONG)
    assert not counted.is_exceeded


def test_a_rate_of_0_lets_only_the_first_bytes_pass():
    counted = quota(0)
    assert not counted.is_exceeded
    counted.record(1)
    assert counted.is_exceeded


@pytest.mark.parametrize("pause_ms", [100, 1000])
@pytest.mark.parametrize("fetch_bytes", [1_000, 50_000, 400_000])
@pytest.mark.parametrize("seconds", [10, 60])
def test_a_throttled_copy_takes_about_what_is_estimated(seconds, fetch_bytes, pause_ms):
    """A fetch takes no time, and one that has to wait is tried again after a pause, as leader and follower do."""
    rate, clock = 100_000, ManualClock()
    counted, left = quota(rate, clock=clock), seconds * rate
    while left > 0:
        if counted.is_exceeded:
            clock.advance(pause_ms)
            continue
        counted.record(min(fetch_bytes, left))
        left -= fetch_bytes
        clock.advance(1)
    took_s = clock.monotonic_ms() / 1000
    first_bytes_s = (rate + fetch_bytes) / rate  # what passes before the rate is exceeded for the first time
    assert seconds - first_bytes_s - pause_ms / 1000 <= took_s <= 1.1 * seconds
