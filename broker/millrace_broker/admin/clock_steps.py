"""Notices when the wall clock is set: it moves against the monotonic clock, which nobody sets.

Retention, the age of segments and the time of records (LogAppendTime) follow the wall clock. Linux slews both clocks
alike where NTP corrects a little, so that only steps are seen: by hand, by NTP after a long time alone, or by a machine
that was suspended, whose monotonic clock stood still.
"""

from __future__ import annotations

import asyncio
import logging

from millrace.clock import Clock
from millrace_broker.metrics import ClockCounts, ClockStep

logger = logging.getLogger(__name__)

INTERVAL_S = 1.0
LEAST_STEP_MS = 1000
READ_TOGETHER_MS = 100


class ClockSteps:
    """Compares the two times of a clock again and again, and counts and logs each step between them."""

    def __init__(self, clock: Clock, counts: ClockCounts) -> None:
        self._clock = clock
        self._counts = counts
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._difference_ms = self._difference()

    def start(self) -> None:
        """Sets the timer, which sets itself again from then on."""
        self._timer = self._loop.call_later(INTERVAL_S, self._fired)

    def stop(self) -> None:
        """Ends the watch."""
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Counts the step since the last look, if there was one."""
        before_ms, now_ms = self._difference_ms, self._difference()
        if now_ms is None:
            return
        self._difference_ms = now_ms
        if before_ms is not None and abs(now_ms - before_ms) >= LEAST_STEP_MS:
            self._note(ClockStep((now_ms - before_ms) / 1000, self._clock.monotonic_ms()))

    def _note(self, step: ClockStep) -> None:
        self._counts.steps += 1
        self._counts.stepped_s += step.by_s
        self._counts.last = step
        logger.warning(
            "the machine's clock was set %s: retention and the times of records follow it", step.sentence_part
        )

    def _fired(self) -> None:
        self.look()
        self.start()

    def _difference(self) -> int | None:
        """Returns wall time less monotonic time; None where the process was held up between the two readings."""
        before_ms = self._clock.monotonic_ms()
        now_ms = self._clock.now_ms()
        return None if self._clock.monotonic_ms() - before_ms > READ_TOGETHER_MS else now_ms - before_ms
