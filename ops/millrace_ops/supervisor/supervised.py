"""One service of a platform as a child process, which is started again when it ends, if the service is to restart.

    starts ──► ready ──► ends ──► pause ──► starts again          a service that restarts
      └► ends ──► PlatformError       └► PlatformError            before it was ready once; any other service

The first pause is a second. It doubles, up to half a minute, while the child ends within a minute of its start.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from millrace.clock import Clock
from millrace.errors import PlatformError
from millrace.lifeline import start_with_lifeline

LOG_TAIL_LINES = 20
KILLED_TIMEOUT_S = 10.0  # what is killed has only to be reaped


class ChildProcess:
    """A started command in a session of its own, with one log file; its end takes all its processes with it.

    A child leads a new session, so a terminal's Ctrl-C reaches only the supervisor, and all that the child starts, even
    in other process groups, is found by the session and ended with it. If the supervisor itself is killed, the child
    ends, too (millrace.lifeline). `NAME.log` holds what the child writes; the log of its last start is kept as
    `NAME.previous.log`.
    """

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log_path: str) -> None:
        self.name = name
        self.log_path = log_path
        if shutil.which(command[0]) is None:  # else the shell of the lifeline would say so, in the log
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
        if os.path.exists(log_path):
            os.replace(log_path, log_path.removesuffix(".log") + ".previous.log")
        with open(log_path, "wb") as log:
            self._process = start_with_lifeline(
                command, stdout=log, stderr=subprocess.STDOUT, environment={**os.environ, **environment}
            )

    @property
    def pid(self) -> int:
        """Returns the process id, which is also its session's."""
        return self._process.pid

    def exit_status(self) -> int | None:
        """Returns the exit status, negative for a signal; None while the child runs."""
        return self._process.poll()

    def read_log(self) -> str:
        """Returns all that the child has written so far."""
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def log_tail(self) -> str:
        """Returns the last LOG_TAIL_LINES lines of the log."""
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return "".join(deque(log, LOG_TAIL_LINES)).rstrip()

    def terminate(self) -> None:
        """Asks the child to stop; SIGTERM goes only to it, which ends its own children in good order."""
        if self.exit_status() is None:
            self._process.terminate()

    def finish(self, timeout_s: float) -> None:
        """Waits for the child's end at most `timeout_s`, then kills what is left of its session."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for process in session_members(self.pid):
            with suppress(psutil.NoSuchProcess):  # it has just ended
                process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        psutil.wait_procs(session_members(self.pid), timeout=KILLED_TIMEOUT_S)


def session_members(session_id: int) -> list[psutil.Process]:
    """Returns the processes of a session that are alive."""
    return [process for process in psutil.process_iter() if _session_of(process) == session_id]


def _session_of(process: psutil.Process) -> int | None:
    try:
        return None if process.status() == psutil.STATUS_ZOMBIE else os.getsid(process.pid)
    except (psutil.NoSuchProcess, ProcessLookupError, PermissionError):
        return None


MIN_PAUSE_MS = 1_000
MAX_PAUSE_MS = 30_000
STEADY_MS = 60_000
SHOWN_MS = 15_000  # longer than a look at the health takes, so that no end stays unseen


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A command that runs until it is stopped, and the test for its being ready.

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
    """A service with its child process, running or ended."""

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
        """Returns how the child last ended, in words; "" where it never did, or has run long enough since."""
        ended_ms = self._ended_ms
        if ended_ms is None or self._clock.monotonic_ms() - ended_ms > self._pause_ms + SHOWN_MS:
            return ""
        return f"{self._end} and is started again; the end of its log is in {self._previous_log}"

    def is_ready(self) -> bool:
        """Returns whether the service is ready; once it was, this is not asked again."""
        self._was_ready = self._was_ready or self.service.is_ready(self.child)
        return self._was_ready

    def look_after(self) -> None:
        """Starts the child again if it has ended and the pause after that is over.

        Raises PlatformError where the service is not one that is restarted.
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
    """Returns a sentence on how a child ended, with the last lines of its log."""
    return f"{child.name} {describe_exit(status)}; the end of {child.log_path}:\n{child.log_tail()}"


def describe_exit(status: int) -> str:
    """Returns how a process ended, from its exit status, which is negative for a signal."""
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"
