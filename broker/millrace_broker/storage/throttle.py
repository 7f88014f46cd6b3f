"""A limit on the bytes per second of background work, and its breaks for the threads that serve clients.

Work comes in portions of a few dozen KiB, or a few hundred records. After each one the worker waits at least
`BREAK_S`: threads of one interpreter take turns, and without a break the event loop would have to ask for its turn,
which takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from millrace.clock import Clock
from millrace.errors import CompactionStoppedError

BREAK_S = 0.000_05
MAX_WAIT_S = 1.0
BREAK_ITEMS = 256

Wait = Callable[[float], bool]
T = TypeVar("T")


class Throttle:
    """Counts bytes as they are read and written."""

    def __init__(self, clock: Clock, wait: Wait, bytes_per_second: float) -> None:
        """`wait` blocks for so many seconds and returns true as soon as the work must stop."""
        self._clock = clock
        self._wait = wait
        self._bytes_per_ms = bytes_per_second / 1000
        self._due_ms = float(clock.monotonic_ms())

    def take(self, size_bytes: int) -> None:
        """Pay for a portion, and wait until the rate allows the next one. CompactionStoppedError."""
        # What was not used of the rate is not saved up for a burst.
        self._due_ms = max(self._due_ms, self._clock.monotonic_ms()) + size_bytes / self._bytes_per_ms
        while (behind_ms := self._due_ms - self._clock.monotonic_ms()) > 1:
            self._pause(min(behind_ms / 1000, MAX_WAIT_S))
        self._pause(BREAK_S)

    def paced(self, items: Iterable[T]) -> Iterator[T]:
        """The same items, with a break after every `BREAK_ITEMS` of them. CompactionStoppedError."""
        for count, item in enumerate(items, 1):
            yield item
            if not count % BREAK_ITEMS:
                self._pause(BREAK_S)

    def _pause(self, seconds: float) -> None:
        if self._wait(seconds):
            raise CompactionStoppedError("compaction was stopped; the log is as it was")
