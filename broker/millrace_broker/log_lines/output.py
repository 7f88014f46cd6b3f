"""Writes the broker's log to a stream, as text or as JSON (`logging.format`)."""

from __future__ import annotations

import logging
from typing import TextIO

from millrace_broker.log_lines.bad_requests import HTTP_SERVER, tell_plainly
from millrace_broker.log_lines.repetition import RepetitionFilter
from millrace_broker.log_lines.text import LineFormatter

JSON = "json"
REQUESTS, AUDIT = "millrace_broker.requests", "millrace_broker.authorizer"
QUIET = {"kazoo": logging.WARNING}  # lines of a library below its level help only its authors


def write_to(stream: TextIO, level: int = logging.INFO) -> logging.Handler:
    """Writes all loggers from a level on to a stream, as text, and returns what does it."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter())
    handler.addFilter(RepetitionFilter(unlimited=(REQUESTS, AUDIT)))
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger(HTTP_SERVER).addFilter(tell_plainly)
    for name, quiet in QUIET.items():
        logging.getLogger(name).setLevel(quiet)
    return handler


def use_format(handler: logging.Handler, name: str) -> None:
    """Writes the lines from now on in the format `text` or `json`."""
    if name != JSON:
        return
    # A broker that writes text is spared the time and memory of the library.
    from millrace_broker.log_lines.json_lines import JsonLineFormatter  # noqa: PLC0415

    handler.setFormatter(JsonLineFormatter())
