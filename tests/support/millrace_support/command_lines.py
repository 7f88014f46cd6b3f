"""The command lines of running processes, in which no secret may be."""

from contextlib import suppress

import psutil


def command_lines(pid: int | None = None) -> set[str]:
    """Returns those of a process, this one if none is given, and of all that it has started, while they run."""
    lines = set()
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):  # a zombie is one
                lines.add(" ".join(one.cmdline()))
    return lines
