"""The command lines of running processes, in which no secret may be."""

from contextlib import suppress

import psutil


def command_lines(pid: int | None = None) -> set[str]:
    """Returns the command lines of a process (by default this one) and of its running descendants."""
    lines = set()
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):  # it has ended, or is a zombie
                lines.add(" ".join(one.cmdline()))
    return lines
