"""The one door to time: everything that asks what time it is takes a `Clock`."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What a component may know of time."""

    def now_ms(self) -> int:
        """Returns milliseconds since the epoch, UTC: what a record's timestamp means."""
        ...

    def monotonic_ms(self) -> int:
        """Returns milliseconds that never go back: for intervals and deadlines."""
        ...

    def monotonic_s(self) -> float:
        """Returns seconds that never go back, with their fractions: for what takes less than milliseconds."""
        ...


class SystemClock:
    """The machine's clock."""

    monotonic_s = staticmethod(time.perf_counter)  # as it is: the broker asks several times a request

    def now_ms(self) -> int:
        """Returns milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Returns milliseconds of the monotonic clock."""
        return time.monotonic_ns() // 1_000_000
