"""Limits the memory in flight: what connections hold of incomplete requests, requests in line and waiting replies.

    used < limit    every connection may hold more
    used ≥ limit    a connection may hold more up to its fair share, which is half the limit over the number of holders.
                    One other connection at a time may too, so that there is always a request that can be completed and
                    give its memory back. The rest are not read until then, and all reads are small meanwhile.

So a flood of requests that never end does not keep other clients from sending requests of usual size. Shares that were
given while there were fewer holders are kept: the memory in use exceeds four times the limit by one frame, and by one
small read for each connection, at most. The log says that the limit is reached, and again only after half of the memory
was free meanwhile.

Whoever holds memory of a request of which nothing comes any more (`stalled`) is closed while others wait. So requests
that never end keep larger ones waiting for `net.server.STALLED_S`, once for each time that they fill the memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger(__name__)

MAX_LIMITS = 4


class Holder(Protocol):
    """A connection whose requests and replies occupy memory, and that may have to wait for more."""

    is_reading: bool  # whether more may come of its peer
    last_active: float  # in seconds of the monotonic clock: when its peer sent or took a byte

    def memory_is_free(self) -> None:
        """Asks `may_grow` again for the memory that it refused before, as some may be free now."""
        ...

    def abort(self) -> None:
        """Closes the connection at once, and so gives back the memory that it holds."""
        ...


class MemoryInFlight:
    """Accounts for the memory that connections hold for requests and replies, and limits it."""

    def __init__(self, limit_bytes: int, reclaim: Callable[[], None], purpose: str) -> None:
        """Takes `reclaim`, which makes all connections free unused memory, and `purpose`, for the logged line."""
        self._limit_bytes = limit_bytes
        self._reclaim = reclaim
        self._purpose = purpose
        self._is_told = False  # that the limit is reached
        self._held: dict[Holder, int] = {}
        self._waiting: dict[Holder, None] = {}
        self._exempt: Holder | None = None
        self.used_bytes = 0

    @property
    def is_short(self) -> bool:
        """Returns whether the memory that is held has reached the limit."""
        return self.used_bytes >= self._limit_bytes

    def hold(self, holder: Holder, held_bytes: int) -> None:
        """Sets how many bytes `holder` holds in all."""
        before = self._held.get(holder, 0)
        self.used_bytes += held_bytes - before
        self._is_told = self._is_told and 2 * self.used_bytes > self._limit_bytes
        if held_bytes:
            self._held[holder] = held_bytes
        else:
            self._held.pop(holder, None)
        if held_bytes < before:
            if holder is self._exempt:
                self._exempt = None
            self._wake()

    def may_grow(self, holder: Holder, growth_bytes: int) -> bool:
        """Returns whether `holder` may take `growth_bytes` more; if not, calls its `memory_is_free` later on."""
        if self.used_bytes + growth_bytes > self._limit_bytes:
            self._reclaim()
        used_bytes = self.used_bytes + growth_bytes
        if used_bytes <= self._limit_bytes:
            return True
        self._tell()
        others_bytes = used_bytes - (self._held.get(self._exempt, 0) if self._exempt else 0)
        if (
            others_bytes <= MAX_LIMITS * self._limit_bytes
            and self._held.get(holder, 0) + growth_bytes <= self._fair_share
        ):
            return True
        if self._exempt in (None, holder):
            self._exempt = holder
            return True
        self._waiting[holder] = None
        return False

    def _tell(self) -> None:
        if not self._is_told:
            self._is_told = True
            logger.warning(
                "the %d bytes of memory for %s are used up by %d connections: each may hold %d bytes, or waits",
                self._limit_bytes, self._purpose, len(self._held), self._fair_share,
            )  # fmt: skip

    def stalled(self, since_s: float) -> list[Holder]:
        """Returns the holders that read, but got nothing since `since_s` (monotonic); none if none waits for memory."""
        if not self._waiting:
            return []
        return [one for one in self._held if one.is_reading and one.last_active < since_s]

    @property
    def _fair_share(self) -> int:
        return self._limit_bytes // (2 * len(self._held) + 2)

    def forget(self, holder: Holder) -> None:
        """Forgets a holder that has ended, and frees all that it held."""
        self._waiting.pop(holder, None)
        if holder is self._exempt:
            self._exempt = None
        self.hold(holder, 0)
        self._wake()

    def _wake(self) -> None:
        while self._waiting and (self._exempt is None or not self.is_short):
            holder = next(iter(self._waiting))
            del self._waiting[holder]
            holder.memory_is_free()
            if holder in self._waiting:
                return
