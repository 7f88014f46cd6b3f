"""How long a member may believe that its owner nodes stand: the lease (docs/consumer-groups.md).

    asked ──────► leader of ZooKeeper: the session lives ──────► answered
      │◄──────────────── session timeout ─────────────────────────────────────────►│ the nodes may be gone
      │◄──────── lease: two thirds of it ───────────────►│◄── margin ─────────────►│

The time counts from before the question was asked, by a clock that runs on while the process is stopped and while
the machine sleeps. A member that wakes finds its lease ended, and hands out nothing until ZooKeeper has answered again
under the same session. The margin covers clocks of different speed, and the tick by which a follower tells its leader.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

LEASE_THIRDS = 2
NANOSECONDS_PER_MS = 1_000_000
NANOSECONDS_PER_S = 1_000_000_000
NO_SESSION_ID = 0


class LeaseDeadline(NamedTuple):
    """A session, and the time until which it is sure to live."""

    session_id: int
    ends_ns: int


def lease_clock_ns() -> int:
    """Returns nanoseconds that pass in sleep too: CLOCK_BOOTTIME, or the monotonic clock where there is none."""
    return _clock()


def _suspended_time_clock() -> Callable[[], int]:
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return time.monotonic_ns
    return lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME)


_clock = _suspended_time_clock()


class Lease:
    """The deadline as ZooKeeper has confirmed it last; thread-safe."""

    def __init__(self, clock_ns: Callable[[], int] = lease_clock_ns) -> None:
        self.clock_ns = clock_ns
        self._deadline = LeaseDeadline(NO_SESSION_ID, 0)
        self._renewed = threading.Condition()

    def renew(self, session_id: int, asked_ns: int, timeout_ms: int) -> None:
        """Notes that ZooKeeper's leader answered for the session after `asked_ns`, when it was alive."""
        with self._renewed:
            self._deadline = LeaseDeadline(session_id, asked_ns + timeout_ms * NANOSECONDS_PER_MS * LEASE_THIRDS // 3)
            self._renewed.notify_all()

    def holding_ns(self, session_id: int) -> int | None:
        """Returns the current time if what that session owns is sure to be owned still; else None."""
        now_ns, deadline = self.clock_ns(), self._deadline
        return now_ns if deadline.session_id == session_id and now_ns < deadline.ends_ns else None

    def wait(self, timeout_s: float) -> None:
        """Waits until the lease is renewed, or the time has passed."""
        with self._renewed:
            self._renewed.wait(timeout_s)
