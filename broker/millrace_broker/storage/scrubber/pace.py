"""The pace of the scrubber: below its rate, and in turns with the threads that serve clients.

    work    a slice: 256 KiB, or 64 batches where these are small
    rest    what the rate asks for, and at least nine times as long as the slice took

So at most a tenth of a thread's time goes to the scrubber, however small the batches are; the interpreter has one
thread at a time. And where the disk is busy, so that a slice takes longer, the rest is longer, too. An unused part of
the rate is not saved up. The rate is asked for again in each rest, so that a change of it takes effect at once.
"""

from __future__ import annotations

from collections.abc import Callable

from millrace.clock import Clock
from millrace.errors import CompactionStoppedError

SLICE_BYTES = 256 << 10
SLICE_BATCHES = 64
RESTS = 9
LONGEST_WAIT_S = 1.0

Wait = Callable[[float], bool]


class Pace:
    """Makes one thread's checks wait, after each slice, as long as the rate and the rule of turns ask for."""

    def __init__(self, clock: Clock, wait: Wait, bytes_per_second: Callable[[], int]) -> None:
        """Takes `wait`, which blocks for seconds and returns true once the scrubber must stop, and the current rate.

        A rate of 0 says that nothing is to be read for now.
        """
        self._clock = clock
        self._wait = wait
        self._bytes_per_second = bytes_per_second
        self._bytes = self._batches = 0
        self._started_s = clock.monotonic_s()
        self.taken_bytes = 0

    def begin(self) -> None:
        """Says that work begins now: the time before counts as rest."""
        self._started_s = self._clock.monotonic_s()

    def take(self, size_bytes: int) -> None:
        """Counts a batch that was checked, and rests at the end of a slice. Raises CompactionStoppedError."""
        self.taken_bytes += size_bytes
        self._bytes += size_bytes
        self._batches += 1
        if self._bytes >= SLICE_BYTES or self._batches >= SLICE_BATCHES:
            self._rest()

    def _rest(self) -> None:
        began_s = self._clock.monotonic_s()
        worked_s = began_s - self._started_s
        while True:
            rate = self._bytes_per_second()
            due_s = began_s + max(worked_s * RESTS, self._bytes / rate - worked_s) if rate else None
            now_s = self._clock.monotonic_s()
            if due_s is not None and now_s >= due_s:
                break
            if self._wait(LONGEST_WAIT_S if due_s is None else min(due_s - now_s, LONGEST_WAIT_S)):
                raise CompactionStoppedError("the scrubber was stopped")
        self._bytes = self._batches = 0
        self.begin()
