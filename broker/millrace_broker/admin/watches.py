"""Looks at the event loop and the clock again and again, on timers that set themselves again.

Whatever holds up the event loop longer than a few milliseconds holds up every request. And the wall clock is set where
it moves against the monotonic clock, which nobody sets: retention, the age of segments and the time of records
(LogAppendTime) follow the wall clock. Linux slews both clocks alike where NTP corrects a little, so that only steps are
seen: by hand, by NTP after a long time alone, or by a machine that was suspended, whose monotonic clock stood still.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from millrace.clock import Clock
from millrace_broker.metrics import ClockCounts, ClockStep, Durations

logger = logging.getLogger(__name__)

LOOP_INTERVAL_S = 0.25
CLOCK_INTERVAL_S = 1.0
LEAST_STEP_MS = 1000
READ_TOGETHER_MS = 100


class Watch:
    """Looks each time its timer fires, with the seconds by which it fired too late."""

    def __init__(self, interval_s: float, look: Callable[[float], object]) -> None:
        self._interval_s = interval_s
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Sets the timer, which sets itself again from then on."""
        due_s = self._loop.time() + self._interval_s
        self._timer = self._loop.call_at(due_s, self._fired, due_s)

    def stop(self) -> None:
        """Ends the watch."""
        if self._timer is not None:
            self._timer.cancel()

    def _fired(self, due_s: float) -> None:
        self._look(max(0.0, self._loop.time() - due_s))
        self.start()


def broker_watches(clock: Clock, loop_delays: Durations, clock_counts: ClockCounts) -> tuple[Watch, ...]:
    """Returns the watches of a broker."""
    steps = ClockSteps(clock, clock_counts)
    return Watch(LOOP_INTERVAL_S, loop_delays.observe), Watch(CLOCK_INTERVAL_S, lambda _: steps.look())


class ClockSteps:
    """Compares the two times of a clock, and counts and logs each step between them."""

    def __init__(self, clock: Clock, counts: ClockCounts) -> None:
        self._clock = clock
        self._counts = counts
        self._difference_ms = self._difference()

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

    def _difference(self) -> int | None:
        """Returns wall time less monotonic time; None where the process was held up between the two readings."""
        before_ms = self._clock.monotonic_ms()
        now_ms = self._clock.now_ms()
        return None if self._clock.monotonic_ms() - before_ms > READ_TOGETHER_MS else now_ms - before_ms
