"""Whatever a client calls itself or its topics, an event of the broker's log is one line."""

import logging

import pytest

from millrace_broker.log_lines.text import MAX_CHARACTERS, LineFormatter, printable

FORGED = "x\n2026-01-01 00:00:00,000 INFO millrace_broker: all is well"


def formatted(message, *arguments, error=None):
    exc_info = error and (type(error), error, error.__traceback__)
    record = logging.LogRecord("millrace_broker.net", logging.WARNING, "x.py", 1, message, arguments, exc_info)
    return LineFormatter().format(record)


@pytest.mark.parametrize(
    "name", [FORGED, "a\r\nb", "\x1b[31mred", "a\x00b", "a\u2028b", "\x85", "\u202eevil", "\ud800"]
)
def test_a_name_makes_no_line_of_its_own(name):
    line = formatted("closing the connection of %s", name)
    assert line.isprintable()
    assert "closing the connection of" in line


def test_what_can_be_printed_stays_as_it_is():
    assert printable("topic é 漢字 \U0001f600 'a b' \\n") == "topic é 漢字 \U0001f600 'a b' \\n"
    assert printable("a\nb\tc\x1bd") == "a\\nb\\tc\\x1bd"


def test_a_very_long_name_is_cut():
    line = formatted("topic %s", "y" * 10 * MAX_CHARACTERS)
    assert len(line) < MAX_CHARACTERS + 100
    assert line.endswith(" characters)")


def test_no_line_of_a_traceback_looks_like_an_event():
    with pytest.raises(ValueError, match="all is well") as raised:
        int(FORGED)
    text = formatted("a request failed", error=raised.value)
    first, *others = text.split("\n")
    assert first.endswith("a request failed")
    assert others
    assert all(line.startswith("    ") for line in others)
