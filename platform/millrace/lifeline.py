"""Child processes that end with their parent, however that ends.

    process = start_with_lifeline(command)
    …                          # `process.pid` is the command's own
    cut_lifeline(process)      # once the command has ended, or instead of that
    end_process(process, …)    # ends the command, and then cuts the lifeline

A shell that becomes the command leaves a watcher behind, in the same process group, which waits for the end of a pipe
that the parent holds, and then kills the group: the command and what it has started. The kernel's own parent-death
signal goes by thread: what was started from a worker thread would end with that.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

DIE_WITH_PARENT = 'exec 3<&0 </dev/null; { read -r _ <&3; kill -9 -$$; } >/dev/null 2>&1 & exec "$@" 3<&-'


def start_with_lifeline(
    command: Sequence[str],
    *,
    stdout: IO[bytes] | int | None = None,
    stderr: IO[bytes] | int | None = None,
    environment: Mapping[str, str] | None = None,
    directory: str | os.PathLike[str] | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a command, in a session of its own, that is killed when this process ends; its stdin is /dev/null.

    Args:
        command: The command; one that does not exist ends with exit status 127.
        stdout: As for `subprocess.Popen`.
        stderr: As for `subprocess.Popen`.
        environment: The command's environment; this process's by default.
        directory: The command's working directory; this process's by default.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", DIE_WITH_PARENT, "sh", *command],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        env=environment,
        cwd=directory,
        start_new_session=True,
    )


def cut_lifeline(process: subprocess.Popen[bytes]) -> None:
    """Kills a command of `start_with_lifeline` and its process group; does nothing the second time.

    Until then the process that watches the command keeps the group's id in use, even if the command has ended.
    """
    if process.stdin is None or process.stdin.closed:
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.stdin.close()


def end_process(process: subprocess.Popen[bytes], signal_number: signal.Signals, patience_s: float) -> int:
    """Sends the process a signal, waits up to `patience_s`, then kills it; returns its exit status."""
    if process.poll() is None:
        process.send_signal(signal_number)
    try:
        status = process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait()
    cut_lifeline(process)
    return status
