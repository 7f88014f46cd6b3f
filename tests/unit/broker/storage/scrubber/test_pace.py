"""The scrubber keeps to its rate, leaves the turns to others, and stops at once; by a clock that the test moves."""

import pytest

from millrace.errors import CompactionStoppedError
from millrace_broker.storage.scrubber.pace import RESTS, SLICE_BATCHES, SLICE_BYTES, Pace
from millrace_support.clock import ManualClock

MIB = 1 << 20


class Disk:
    """A clock whose time passes in waits, and in work where a batch takes some."""

    def __init__(self, batch_ms=0, rate=MIB):
        self.clock, self.batch_ms, self.rate = ManualClock(), batch_ms, rate
        self.waits = []
        self.then = lambda: False
        self.pace = Pace(self.clock, self.wait, lambda: self.rate)

    def wait(self, seconds):
        self.waits.append(seconds)
        self.clock.advance(max(round(seconds * 1000), 1))
        return self.then()

    def check(self, size_bytes, batches):
        for _ in range(batches):
            self.clock.advance(self.batch_ms)
            self.pace.take(size_bytes)
        return self.clock.monotonic_ms() / 1000


@pytest.mark.parametrize("rate", [MIB, 8 * MIB, 64 * MIB])
@pytest.mark.parametrize("size_bytes", [1000, 16 << 10, 1 << 20, 10 << 20])
def test_the_rate_is_kept(rate, size_bytes):
    batches = 64 * MIB // size_bytes
    seconds = Disk(rate=rate).check(size_bytes, batches)
    assert size_bytes * batches - max(size_bytes, SLICE_BYTES) <= rate * seconds
    assert rate * seconds <= size_bytes * batches * 1.3 + rate * 0.3  # no slower than that asks for


@pytest.mark.parametrize("size_bytes", [100, 16 << 10])
def test_a_tenth_of_the_time_at_most_goes_to_work(size_bytes):
    batches = SLICE_BATCHES * 50
    disk = Disk(batch_ms=2, rate=1 << 40)
    seconds = disk.check(size_bytes, batches)
    assert seconds >= 0.002 * batches * (1 + RESTS) * 0.9
    assert max(disk.waits) <= 1.0


def test_an_unused_part_of_the_rate_is_not_saved_up():
    disk = Disk()
    disk.clock.advance(3_600_000)
    disk.pace.begin()
    before = disk.clock.monotonic_ms()
    disk.check(SLICE_BYTES, 40)
    assert disk.clock.monotonic_ms() - before >= 9_000


def test_a_changed_rate_holds_at_once():
    disk = Disk(rate=1)

    def faster():
        if len(disk.waits) == 3:
            disk.rate = 1 << 40
        return False

    disk.then = faster
    disk.check(SLICE_BYTES, 1)
    assert len(disk.waits) == 3


def test_it_waits_while_it_is_turned_off():
    disk = Disk(rate=0)

    def on():
        if len(disk.waits) == 5:
            disk.rate = MIB
        return False

    disk.then = on
    disk.check(SLICE_BYTES, 1)
    assert len(disk.waits) == 5


@pytest.mark.parametrize("rate", [0, 1, MIB])
def test_a_stop_ends_the_rest(rate):
    disk = Disk(rate=rate)
    disk.then = lambda: True
    with pytest.raises(CompactionStoppedError):
        disk.check(SLICE_BYTES, 1)
    assert len(disk.waits) == 1
