"""Of the errors that the HTTP server logs, those of clients are warnings of a line, and the others stay errors."""

import logging

import pytest
from aiohttp import http_exceptions

from millrace_broker.log_lines.output import tell_plainly
from millrace_broker.log_lines.text import LineFormatter


def line_on(error):
    exc_info = error and (type(error), error, error.__traceback__)
    record = logging.LogRecord("aiohttp.server", logging.ERROR, "", 1, "from %s", ("127.0.0.1",), exc_info)
    assert tell_plainly(record)
    return LineFormatter().format(record).split(" ", 2)[2]


@pytest.mark.parametrize(
    "error",
    [
        http_exceptions.BadHttpMessage("a secret"),
        http_exceptions.BadStatusLine("a secret"),
        http_exceptions.InvalidHeader("a secret"),
        http_exceptions.LineTooLong(b"a secret", 8),
    ],
)
def test_what_a_client_did_is_a_warning(error):
    assert line_on(error) == f"WARNING aiohttp.server: refusing a request of 127.0.0.1: {type(error).__name__}"


@pytest.mark.parametrize("error", [KeyError("lost"), None])
def test_what_the_broker_did_is_an_error(error):
    said = line_on(error)
    assert said.startswith("ERROR aiohttp.server: from 127.0.0.1")
    assert ("KeyError: 'lost'" in said) is (error is not None)
