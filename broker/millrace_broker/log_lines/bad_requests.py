"""Logs one sentence where a client sends something else than HTTP to an HTTP endpoint.

The HTTP server would log an error with a traceback and the request, though only the client is at fault.
"""

from __future__ import annotations

import logging

HTTP_SERVER = "aiohttp.server"


def tell_plainly(record: logging.LogRecord) -> bool:
    """Passes the records of HTTP_SERVER; makes a warning of an error that is the client's, and names its kind."""
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
