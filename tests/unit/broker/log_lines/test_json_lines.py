"""An event is one JSON object on one line, whatever names clients give."""

import json
import logging

import pytest

from millrace_broker.log_lines.json_lines import JsonLineFormatter
from millrace_broker.log_lines.text import MAX_CHARACTERS


def formatted(message, *arguments, error=None):
    exc_info = error and (type(error), error, error.__traceback__)
    record = logging.LogRecord("millrace_broker.net", logging.WARNING, "x.py", 1, message, arguments, exc_info)
    record.created = 1_795_685_400.1239
    text = JsonLineFormatter().format(record)
    assert text.isprintable()
    return json.loads(text)


def test_fields_are_those_that_gatherers_of_logs_expect():
    assert formatted("refusing %s", "a client") == {
        "time": "2026-11-26T09:30:00.123Z",
        "level": "WARNING",
        "logger": "millrace_broker.net",
        "message": "refusing a client",
    }


@pytest.mark.parametrize("name", ['x"}\n{"level": "INFO"', "\x1b[31m", "a\x00b", "\u2028", "\ud800"])
def test_a_name_stays_inside_its_string(name):
    assert formatted("closing %s", name)["message"] == f"closing {name}"


def test_a_very_long_name_is_cut():
    message = formatted("topic %s", "y" * 10 * MAX_CHARACTERS)["message"]
    assert len(message) < MAX_CHARACTERS + 100
    assert message.endswith(" characters)")


def test_a_traceback_is_in_the_object():
    with pytest.raises(ValueError, match="invalid literal") as raised:
        int("x")
    assert "ValueError: invalid literal" in formatted("failed", error=raised.value)["exception"]
