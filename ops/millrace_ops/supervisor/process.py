"""One child process, with its own session, one log file, and an end that leaves nothing of it.

A child leads a new session, so a terminal's Ctrl-C reaches only the supervisor, and all that the child starts, even in
other process groups, is found by the session and ended with it. If the supervisor itself is killed, the child ends, too
(millrace.lifeline). `NAME.log` holds what the child writes; the log of its last start is kept as `NAME.previous.log`.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

import psutil

from millrace.lifeline import start_with_lifeline

LOG_TAIL_LINES = 20
KILLED_TIMEOUT_S = 10.0  # what is killed has only to be reaped


class ChildProcess:
    """A started command."""

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
        """The process id, which is also its session's."""
        return self._process.pid

    def exit_status(self) -> int | None:
        """Returns the exit status, negative for a signal; None while the child runs."""
        return self._process.poll()

    def read_log(self) -> str:
        """Returns all that the child has written so far."""
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def log_tail(self) -> str:
        """Returns the last lines of the log."""
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
    """Returns the living processes of a session."""
    return [process for process in psutil.process_iter() if _session_of(process) == session_id]


def _session_of(process: psutil.Process) -> int | None:
    try:
        return None if process.status() == psutil.STATUS_ZOMBIE else os.getsid(process.pid)
    except (psutil.NoSuchProcess, ProcessLookupError, PermissionError):
        return None
