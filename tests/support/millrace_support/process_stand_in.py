"""A process that is not a child of this one, with the interface of `subprocess.Popen`."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import IO


class ProcessStandIn(subprocess.Popen[bytes]):
    """Stands for a process; a subclass says how its end is waited for.

    Args:
        args: Its command, for errors.
        pid: Its process id.
        stdin: Its standard input, None if nobody writes there.
        stdout: Its standard output, None if nobody reads it.
    """

    def __init__(
        self, args: Sequence[str], pid: int, stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None
    ) -> None:
        self._child_created = False  # Popen reads it when it is garbage-collected
        self.args: Sequence[str] = args
        self.pid, self.stdin, self.stdout, self.stderr = pid, stdin, stdout, None
        self.returncode = None

    def poll(self) -> int | None:
        """Returns the exit status, negative for a signal; None while the process runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None
