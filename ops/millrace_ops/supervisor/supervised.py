"""One service of a platform as a child process, which is started again when it ends, if the service is to restart.

    starts ──► ready ──► ends ──► pause ──► starts again          a service that restarts
      └► ends ──► PlatformError       └► PlatformError            before it was ready once; any other service

The first pause is a second. It doubles, up to half a minute, while the child ends within a minute of its start.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from millrace.clock import Clock
from millrace.errors import PlatformError
from millrace_ops.supervisor.process import ChildProcess

MIN_PAUSE_MS = 1_000
MAX_PAUSE_MS = 30_000
STEADY_MS = 60_000
SHOWN_MS = 15_000  # longer than a look at the health takes, so that no end stays unseen


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A command, and how to see that it is ready.

    Attributes:
        restarts: Whether it is started again when it ends after it was ready once; otherwise its end ends the platform.
    """

    name: str
    command: tuple[str, ...]
    is_ready: Callable[[ChildProcess], bool]
    environment: Mapping[str, str] = field(default_factory=dict)
    ready_timeout_s: float = 300.0
    stop_timeout_s: float = 20.0
    restarts: bool = False


class SupervisedChild:
    """A service and its running, or ended, child process."""

    def __init__(self, service: Service, log_dir: str, clock: Clock) -> None:
        self.service = service
        self._log_path = os.path.join(log_dir, f"{service.name}.log")
        self._clock = clock
        self._was_ready = False
        self._pause_ms = MIN_PAUSE_MS
        self._ended_ms: int | None = None
        self._is_ended = False
        self._end = ""
        self._start()

    @property
    def problem(self) -> str:
        """How the child ended, until it has run again for a while; else ""."""
        ended_ms = self._ended_ms
        if ended_ms is None or self._clock.monotonic_ms() - ended_ms > self._pause_ms + SHOWN_MS:
            return ""
        return f"{self._end} and is started again; the end of its log is in {self._previous_log}"

    def is_ready(self) -> bool:
        """Returns whether the service is ready, and remembers it."""
        self._was_ready = self._was_ready or self.service.is_ready(self.child)
        return self._was_ready

    def look_after(self) -> None:
        """Starts the child again if it has ended and the pause is over.

        Raises PlatformError if it is not to be restarted.
        """
        now_ms = self._clock.monotonic_ms()
        status = self.child.exit_status()
        if self._is_ended:
            if self._ended_ms is not None and now_ms >= self._ended_ms + self._pause_ms:
                self._start()
        elif status is not None:
            if not (self.service.restarts and self._was_ready):
                raise PlatformError(ended(self.child, status))
            self._note_end(status, now_ms)

    def _start(self) -> None:
        service = self.service
        self.child = ChildProcess(service.name, service.command, service.environment, self._log_path)
        self._started_ms = self._clock.monotonic_ms()
        self._is_ended = False

    def _note_end(self, status: int, now_ms: int) -> None:
        self.child.finish(0.0)
        was_steady = now_ms - self._started_ms >= STEADY_MS
        is_first = self._ended_ms is None
        self._pause_ms = MIN_PAUSE_MS if was_steady or is_first else min(2 * self._pause_ms, MAX_PAUSE_MS)
        self._end, self._ended_ms, self._is_ended = describe_exit(status), now_ms, True

    @property
    def _previous_log(self) -> str:
        return self._log_path.removesuffix(".log") + ".previous.log"


def ended(child: ChildProcess, status: int) -> str:
    """Returns the sentence on a child that has ended, with the end of its log."""
    return f"{child.name} {describe_exit(status)}; the end of {child.log_path}:\n{child.log_tail()}"


def describe_exit(status: int) -> str:
    """Returns how a process ended, from its exit status, which is negative for a signal."""
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"
