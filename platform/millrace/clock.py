"""The one door to time: everything that asks for the time takes a `Clock`."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The time, as every part of Millrace asks for it."""

    def now_ms(self) -> int:
        """Returns milliseconds since the epoch, UTC: what a record's timestamp means."""

    def now_ns(self) -> int:
        """Returns nanoseconds since the epoch, UTC, at the least cost: for what is asked once a record."""

    def monotonic_ms(self) -> int:
        """Returns milliseconds that never go back: for intervals and deadlines."""

    def monotonic_s(self) -> float:
        """Returns seconds that never go back, with their fractions: for what takes less than milliseconds."""


class SystemClock:
    """The machine's clock."""

    # As they are: the broker asks several times a request, the producer once a record.
    monotonic_s = staticmethod(time.perf_counter)
    now_ns = staticmethod(time.time_ns)

    def now_ms(self) -> int:
        """Returns milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Returns milliseconds of the monotonic clock."""
        return time.monotonic_ns() // 1_000_000
