r"""One event, one line of the log, whatever names clients give.

What can't be printed is escaped (`\n`, `\x1b`), and what is very long is cut, so that no topic or client id makes a
line of its own, nor colours a terminal. A traceback follows its line indented: no line of it looks like an event.
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
    """`TIME LEVEL LOGGER: MESSAGE`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: LogRecord) -> str:  # noqa: N802  # logging's name
        """The line."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802  # logging's name
        """The traceback's lines."""
        lines = super().formatException(ei).split("\n")
        return textwrap.indent("\n".join(map(printable, lines)), INDENT, lambda _: True)


def printable(text: str) -> str:
    """The text on one line, cut where it is very long."""
    if len(text) > MAX_CHARACTERS:
        text = f"{text[:MAX_CHARACTERS]}… ({len(text)} characters)"
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
