"""When something is done again, and how much of it at once.

A pause grows with each failure, a window shrinks with it, and a throttle says how fast all of it may be.
"""

from __future__ import annotations

from dataclasses import dataclass, field

FIRST_PAUSE_S = 0.1
LAST_PAUSE_S = 3.0  # a cluster that is back has its partitions again after that at the latest
LEAST_BYTES = 16 << 10


@dataclass(slots=True)
class Backoff:
    """The pause before a next attempt: a tenth of a second, and twice as long after each failure, up to three."""

    _until_s: float = 0.0
    _pause_s: float = FIRST_PAUSE_S

    def is_over(self, now_s: float) -> bool:
        """Returns whether an attempt may be made."""
        return now_s >= self._until_s

    def failed(self, now_s: float) -> None:
        """Begins the next pause."""
        self._until_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)

    def succeeded(self) -> None:
        """Makes the next pause a short one again."""
        self._pause_s = FIRST_PAUSE_S


@dataclass(slots=True)
class Window:
    """How many bytes are tried at once: half of what failed, twice as many after each success, up to the most.

    What can't be done in time as a whole would fail again and again; its half is done some time.
    """

    most_bytes: int
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.size_bytes = self.most_bytes

    def failed(self, tried_bytes: int) -> None:
        """Takes that so many bytes failed."""
        least = min(LEAST_BYTES, self.most_bytes)
        self.size_bytes = max(min(self.size_bytes, tried_bytes) // 2, least)

    def succeeded(self) -> None:
        """Takes a success."""
        self.size_bytes = min(2 * self.size_bytes, self.most_bytes)


@dataclass(slots=True)
class Throttle:
    """Bytes by the second, 0 for as many as there are: a second's worth may come at once."""

    bytes_per_s: int
    _debt: float = 0.0
    _at_s: float = 0.0

    def took(self, size_bytes: int, now_s: float) -> None:
        """Counts bytes that were read."""
        if self.bytes_per_s:
            self._debt = max(self._debt - (now_s - self._at_s) * self.bytes_per_s, 0) + size_bytes
            self._at_s = now_s

    def pause_s(self, now_s: float) -> float:
        """Returns how long nothing more may be read."""
        if not self.bytes_per_s:
            return 0.0
        return max(self._debt / self.bytes_per_s - (now_s - self._at_s) - 1, 0)
