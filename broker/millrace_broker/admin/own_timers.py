"""Decides whether the broker's own timers do retention and compaction, or leave them to requests from outside.

`maintenance.request.interval.ms` says how often something else, such as Dagster, requests them. The timers then stand
back, and step in once no request has come for three intervals. The start of the broker counts as a request.
"""

from __future__ import annotations

import logging

from millrace.clock import Clock

logger = logging.getLogger(__name__)

MISSED_INTERVALS = 3


def is_own_turn(*, last_request_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Returns whether the broker's own timer does the work, by monotonic times; -1 as interval expects no requests."""
    return interval_ms < 0 or now_ms - last_request_ms >= MISSED_INTERVALS * interval_ms


class OwnTimer:
    """Whether the broker's own timer does one kind of work; a line in the log tells of each change."""

    def __init__(self, work: str, interval_ms: int, clock: Clock) -> None:
        """Takes the name of the work, as the log lines begin with it."""
        self._work = work
        self._interval_ms = interval_ms
        self._clock = clock
        self._last_request_ms = clock.monotonic_ms()
        self._stands_back = interval_ms >= 0

    def note_request(self) -> None:
        """Notes that the work has been requested from outside."""
        self._last_request_ms = self._clock.monotonic_ms()
        if self._interval_ms >= 0 and not self._stands_back:
            self._stands_back = True
            logger.info("%s is requested from outside again; the broker's own timer stands back", self._work)

    def is_own_turn(self) -> bool:
        """Returns whether the broker's own timer does the work now."""
        is_own = is_own_turn(
            last_request_ms=self._last_request_ms, interval_ms=self._interval_ms, now_ms=self._clock.monotonic_ms()
        )
        if is_own and self._stands_back:
            self._stands_back = False
            logger.warning(
                "%s has not been requested for %d intervals of maintenance.request.interval.ms=%d; "
                "the broker's own timer steps in",
                self._work,
                MISSED_INTERVALS,
                self._interval_ms,
            )
        return is_own
