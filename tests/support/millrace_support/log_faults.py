r"""Finds in a log what should not be there: entries of level ERROR or above, and tracebacks, whatever their level.

An entry is a line with a time, as text or as one JSON object, and the lines up to the next such line. It is returned
without its time, so that a pattern can say what it is:

    ERROR millrace_broker.net.connection: PRODUCE v9 of 127.0.0.1:40044 failed
        Traceback (most recent call last):
        …
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

TRACEBACK = "Traceback (most recent call last)"
TIMED = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\S* (?P<said>.*)")
LEVEL = re.compile(r"\b(TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b")
FAULTY = ("ERROR", "CRITICAL", "FATAL")


def faults(log: str) -> list[str]:
    """Returns the entries of a log that are errors or have a traceback."""
    return [entry for entry in _entries(log) if _is_fault(entry)]


def whole_entries(log: str) -> str:
    """Returns a log that may still be written, without its last entry if that ends within a traceback.

    The lines of a traceback are indented, but for the last one, which says what was raised.
    """
    lines = log.splitlines(keepends=True)
    for number in range(len(lines) - 1, -1, -1):
        if lines[number].lstrip().startswith(TRACEBACK):
            begins = (one for one in range(number, -1, -1) if _beginning(lines[one].rstrip("\n")) is not None)
            return "".join(lines[: next(begins, number)])
        if not lines[number].startswith(" "):
            break
    return log


def _is_fault(entry: str) -> bool:
    level = LEVEL.search(entry.partition("\n")[0])
    return TRACEBACK in entry or (level is not None and level[1] in FAULTY)


def _entries(log: str) -> Iterator[str]:
    lines: list[str] = []
    for line in log.split("\n"):
        beginning = _beginning(line)
        if beginning is not None and lines:
            yield "\n".join(lines)
            lines = []
        lines.append(line if beginning is None else beginning)
    yield "\n".join(lines)


def _beginning(line: str) -> str | None:
    """Returns what a line says at its time; None where it has no time and belongs to what stands above."""
    if line.startswith('{"time": '):
        event = json.loads(line)
        return "\n".join([f"{event['level']} {event['logger']}: {event['message']}", event.get("exception") or ""])
    timed = TIMED.match(line)
    return None if timed is None else timed["said"]
