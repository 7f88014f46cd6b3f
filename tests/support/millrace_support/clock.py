"""A clock that stands still until it is told to move."""

from __future__ import annotations


class ManualClock:
    """A `millrace.clock.Clock` for tests: both of its times move together, and only by `advance`."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        """Returns the milliseconds since the epoch."""
        return self._now_ms

    def now_ns(self) -> int:
        """Returns nanoseconds since the epoch."""
        return self._now_ms * 1_000_000

    def monotonic_ms(self) -> int:
        """Returns the milliseconds since this clock was created."""
        return self._monotonic_ms

    def monotonic_s(self) -> float:
        """Returns the seconds since this clock was created."""
        return self._monotonic_ms / 1000

    def advance(self, milliseconds: int) -> None:
        """Moves both times on."""
        if milliseconds < 0:
            raise ValueError("time does not go back")
        self._now_ms += milliseconds
        self._monotonic_ms += milliseconds
