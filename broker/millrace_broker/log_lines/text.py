r"""Formats each event as one line of the log, whatever names clients give.

Characters that can't be printed are escaped (`\n`, `\x1b`), and a very long line is cut, so no topic or client id can
begin a new line or colour a terminal. The lines of a traceback are indented, so none of them looks like an event.
"""

from __future__ import annotations

import logging
import textwrap
from logging import LogRecord
from types import TracebackType

MAX_CHARACTERS = 8192
INDENT = "    "

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class LineFormatter(logging.Formatter):
    """Formats a log record as the line `TIME LEVEL LOGGER: MESSAGE`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: LogRecord) -> str:  # noqa: N802  # logging's name
        """Returns the line of a log record, with unprintable characters escaped."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802  # logging's name
        """Returns the lines of an exception's traceback, indented."""
        lines = super().formatException(ei).split("\n")
        return textwrap.indent("\n".join(map(printable, lines)), INDENT, lambda _: True)


def printable(text: str) -> str:
    """Returns the text on one line, unprintable characters escaped, and cut where it is very long."""
    text = cut(text)
    return text if text.isprintable() else "".join(map(_printable, text))


def cut(text: str) -> str:
    """Returns the text; if it is longer than MAX_CHARACTERS, its beginning and how long it is."""
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}… ({len(text)} characters)"


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
