"""Writes the broker's log to a stream, as text or as JSON (`logging.format`), and leaves out what helps nobody.

No client and no fault can fill the disk with one sentence. Lines are of one kind if they have the same logger, level
and sentence, whatever names and numbers are in it. Within ten seconds a hundred lines of one kind are written. The last
of them says that others are left out, and the first line of this kind after the ten seconds tells how many. Some
loggers are exempt: they have a limit of their own, or none on purpose.

Where a client sends something else than HTTP to an HTTP endpoint, the server would log an error with a traceback and
the request, though only the client is at fault: one sentence takes its place.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import TextIO

from millrace_broker.log_lines.text import LineFormatter

JSON = "json"
REQUESTS, AUDIT = "millrace_broker.requests", "millrace_broker.authorizer"
# Lines of a library below its level help only its authors. kazoo warns of each attempt to connect: the error of a start
# sums them up, and later on the session tells once that its connection is lost.
QUIET = {"kazoo": logging.ERROR}
HTTP_SERVER = "aiohttp.server"
WINDOW_S = 10.0
LINES_IN_WINDOW = 100
MAX_KINDS = 1_000  # the oldest kind is forgotten for another one


def write_to(stream: TextIO, level: int = logging.INFO) -> logging.Handler:
    """Makes all loggers write lines of `level` and above to a stream, as text; returns the handler that does it."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter())
    handler.addFilter(RepetitionFilter(unlimited=(REQUESTS, AUDIT)))
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger(HTTP_SERVER).addFilter(tell_plainly)
    for name, quiet in QUIET.items():
        logging.getLogger(name).setLevel(quiet)
    return handler


def use_format(handler: logging.Handler, name: str) -> None:
    """Makes the handler write lines in the format `text` or `json` from now on."""
    if name != JSON:
        return
    # A broker that writes text is spared the time and memory of the library.
    from millrace_broker.log_lines.json_lines import JsonLineFormatter  # noqa: PLC0415

    handler.setFormatter(JsonLineFormatter())


def tell_plainly(record: logging.LogRecord) -> bool:
    """Keeps every record of the logger HTTP_SERVER; makes an error that a client caused a one-sentence warning."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return True
    from aiohttp.http_exceptions import BadHttpMessage  # noqa: PLC0415  # only who has the server logs for it

    if isinstance(error, BadHttpMessage):
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        record.msg, record.args = "refusing a request of %s: %s", (*_peer(record), type(error).__name__)
        record.exc_info = None
    return True


def _peer(record: logging.LogRecord) -> tuple[object, ...]:
    return record.args if isinstance(record.args, tuple) else ()


@dataclass(slots=True)
class _Window:
    """How many lines of one kind were logged since `began_s`."""

    began_s: float
    lines: int = 0


class RepetitionFilter(logging.Filter):
    """Drops log lines of one kind (logger, level, format) beyond LINES_IN_WINDOW within WINDOW_S."""

    def __init__(self, unlimited: Collection[str] = ()) -> None:
        """Takes the names of loggers whose repeated lines are not dropped."""
        super().__init__()
        self._unlimited = unlimited
        self._windows: dict[tuple[str, int, str], _Window] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether to write a line; adds to it that further ones are left out, or how many were."""
        if record.name in self._unlimited:
            return True
        kind = (record.name, record.levelno, str(record.msg))
        window = self._windows.get(kind)
        if window is None or not 0 <= record.created - window.began_s < WINDOW_S:
            window = self._begin(kind, record)
        window.lines += 1
        if window.lines == LINES_IN_WINDOW:
            _add(record, f"further lines like this are left out for {WINDOW_S:.0f} s")
        return window.lines <= LINES_IN_WINDOW

    def _begin(self, kind: tuple[str, int, str], record: logging.LogRecord) -> _Window:
        former = self._windows.pop(kind, None)
        if former is not None and (left_out := former.lines - LINES_IN_WINDOW) > 0:
            _add(record, f"{left_out} lines like this were left out")
        elif len(self._windows) >= MAX_KINDS:
            del self._windows[next(iter(self._windows))]
        window = self._windows[kind] = _Window(record.created)
        return window


def _add(record: logging.LogRecord, text: str) -> None:
    record.msg, record.args = f"{record.getMessage()} ({text})", ()
