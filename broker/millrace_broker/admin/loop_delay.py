"""Watches how late the event loop is: whatever holds it up longer than a few milliseconds holds up every request."""

from __future__ import annotations

import asyncio

from millrace_broker.metrics import Durations

INTERVAL_S = 0.25


class LoopDelay:
    """Has a timer fire again and again, and notes how much later than it is due it fires."""

    def __init__(self, delays: Durations) -> None:
        self._delays = delays
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Sets the timer, which sets itself again from then on."""
        due_s = self._loop.time() + INTERVAL_S
        self._timer = self._loop.call_at(due_s, self._fired, due_s)

    def stop(self) -> None:
        """Ends the watch."""
        if self._timer is not None:
            self._timer.cancel()

    def _fired(self, due_s: float) -> None:
        self._delays.observe(max(0.0, self._loop.time() - due_s))
        self.start()
