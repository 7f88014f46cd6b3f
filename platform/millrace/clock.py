"""The one door to time: everything that asks for the time takes a `Clock`."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The clock that is handed to everything that needs the time, so that tests and simulations can set it."""

    def now_ms(self) -> int:
        """Returns milliseconds since 1970 in UTC, the unit of a record's timestamp."""

    def now_ns(self) -> int:
        """Returns nanoseconds since 1970 in UTC; the cheapest call, for what happens once per record."""

    def monotonic_ms(self) -> int:
        """Returns milliseconds of a clock that never goes back, for intervals and deadlines."""

    def monotonic_s(self) -> float:
        """Returns fractional seconds of a clock that never goes back, for intervals below a millisecond."""


class SystemClock:
    """The machine's clock."""

    # As they are: the broker asks several times a request, the producer once a record.
    monotonic_s = staticmethod(time.perf_counter)
    now_ns = staticmethod(time.time_ns)

    def now_ms(self) -> int:
        """Returns milliseconds since 1970 in UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Returns milliseconds of the machine's monotonic clock, which never goes back."""
        return time.monotonic_ns() // 1_000_000
