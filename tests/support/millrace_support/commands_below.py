"""The processes below another one, by their command lines."""

from contextlib import suppress

import psutil


def commands_below(pid: int) -> dict[psutil.Process, str]:
    """Returns the command lines of all processes below one; those that end meanwhile are left out."""
    found: dict[psutil.Process, str] = {}
    with suppress(psutil.Error):
        for one in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                found[one] = " ".join(one.cmdline())
    return found
