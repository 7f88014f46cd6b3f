"""When something is done again: after a pause that grows with each failure, and as fast as a throttle allows."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_PAUSE_S = 0.1
LAST_PAUSE_S = 10.0


@dataclass(slots=True)
class Backoff:
    """The pause before a next attempt: a tenth of a second, and twice as long after each further failure, up to ten."""

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
class Size:
    """How many bytes are sent together: at most `largest`, and half as many after each time that was too slow."""

    largest: int
    smallest: int = 64 << 10
    now: int = 0

    def __post_init__(self) -> None:
        self.now = self.largest

    def was_too_large(self) -> None:
        """Halves the size."""
        self.now = max(self.now // 2, min(self.smallest, self.largest))

    def was_sent(self) -> None:
        """Lets the size grow again."""
        self.now = min(2 * self.now, self.largest)


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
