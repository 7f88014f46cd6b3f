"""A limit on the bytes per second of background work, with breaks for the threads that serve clients.

Threads of one interpreter take turns, so background work keeps other threads waiting by its turns, not by the disk. Two
things keep these short. After each portion, of some dozen KiB or of `BREAK_ITEMS` records, the worker waits at least
`BREAK_S`. And while `short_turns` lasts, a thread that asks for its turn gets it after `TURN_S`, not after what
the process has else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from millrace.clock import Clock
from millrace.errors import CompactionStoppedError

BREAK_S = 0.000_05
MAX_WAIT_S = 1.0
BREAK_ITEMS = 256
TURN_S = 0.000_05

Wait = Callable[[float], bool]
T = TypeVar("T")


@contextmanager
def short_turns() -> Iterator[None]:
    """Makes this process's threads pass on the interpreter lock after `TURN_S`, within the context."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, TURN_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class Throttle:
    """Slows work down to a rate of bytes per second."""

    def __init__(self, clock: Clock, wait: Wait, bytes_per_second: float) -> None:
        """Takes `wait`, which blocks for a number of seconds, and returns true as soon as the work must stop."""
        self._clock = clock
        self._wait = wait
        self._bytes_per_ms = bytes_per_second / 1000
        self._due_ms = float(clock.monotonic_ms())
        self._items = 0

    def take(self, size_bytes: int) -> None:
        """Counts bytes of work, and blocks until the rate allows the next. Raises CompactionStoppedError."""
        # An unused part of the rate is not saved up for a burst.
        self._due_ms = max(self._due_ms, self._clock.monotonic_ms()) + size_bytes / self._bytes_per_ms
        while (behind_ms := self._due_ms - self._clock.monotonic_ms()) > 1:
            self._pause(min(behind_ms / 1000, MAX_WAIT_S))
        self._pause(BREAK_S)

    def paced(self, items: Iterable[T]) -> Iterator[T]:
        """Yields the items, with a short sleep after each `BREAK_ITEMS` of them. Raises CompactionStoppedError."""
        for item in items:
            yield item
            self._items += 1
            if self._items >= BREAK_ITEMS:
                self._pause(BREAK_S)

    def _pause(self, seconds: float) -> None:
        self._items = 0
        if self._wait(seconds):
            raise CompactionStoppedError("compaction was stopped; the log is as it was")
