"""What of a broker's log, and of a platform's other logs, is a fault."""

import logging
import sys

import pytest

from millrace_broker.log_lines.json_lines import JsonLineFormatter
from millrace_broker.log_lines.text import LineFormatter
from millrace_support.log_faults import faults, whole_entries

FORMATTERS = pytest.mark.parametrize("formatter", [LineFormatter(), JsonLineFormatter()], ids=["text", "json"])


def logged(formatter, *events):
    """Returns a log of events; each is given as its level, its message, and whether it has a traceback."""

    def line(level, message, has_traceback):
        try:
            found = {}["lost"]
        except KeyError:
            found = sys.exc_info() if has_traceback else None
        return formatter.format(logging.LogRecord("millrace_broker.net", level, "", 1, message, (), found)) + "\n"

    return "".join(line(*event) for event in events)


@FORMATTERS
@pytest.mark.parametrize("level", ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"])
@pytest.mark.parametrize("has_traceback", [False, True])
def test_errors_and_tracebacks_are_faults(formatter, level, has_traceback):
    beside = (logging.INFO, "UNKNOWN_SERVER_ERROR: logger x=ERROR", False)
    found = faults(logged(formatter, beside, (logging.getLevelName(level), "it failed", has_traceback), beside))
    assert len(found) == (has_traceback or level in {"ERROR", "CRITICAL"})
    for one in found:
        assert one.startswith(f"{level} millrace_broker.net: it failed")
        assert one.rstrip().endswith("KeyError: 'lost'") is has_traceback


@FORMATTERS
def test_each_fault_is_told_apart(formatter):
    error = (logging.ERROR, "first", True), (logging.ERROR, "second", False), (logging.WARNING, "third", True)
    assert [one.split()[2] for one in faults(logged(formatter, *error))] == ["first", "second", "third"]


@pytest.mark.parametrize(
    "log",
    [
        "Traceback (most recent call last):\n  File …\nKeyError: 'lost'\n",
        "2026-11-26 09:30:00,123 INFO millrace_broker: listening\nTraceback (most recent call last):\n",
        "2026-11-26 09:30:00 +0000 - dagster.daemon - ERROR - it failed\n",
        "2026-11-26 09:30:00,123 [myid:] - ERROR [main:o.a.z.s.ZooKeeperServer@1] - it failed\n",
    ],
)
def test_other_processes_have_faults_too(log):
    assert len(faults(log)) == 1


@pytest.mark.parametrize("log", ["", "listening 127.0.0.1:9092\n", "    a line of what was told before\n", "{\n"])
def test_what_is_no_event_is_no_fault(log):
    assert faults(log) == []


TOLD = "2026-11-28 22:34:57 +0000 - dagster.daemon - ERROR - a tick\n"
FAILED = [
    TOLD,
    "Traceback (most recent call last):\n",
    '  File "tick.py", line 1\n',
    "    tick()\n",
    "ValueError: no\n",
]


@pytest.mark.parametrize("before", ["", "2026-11-28 22:34:56 +0000 - dagster - INFO - it runs\n"])
@pytest.mark.parametrize("count", range(6))
def test_a_traceback_that_is_still_written_is_left_with_its_entry(before, count):
    log = before + "".join(FAILED[:count])
    is_unfinished = 1 < count < len(FAILED)
    assert whole_entries(log) == (before if is_unfinished else log)


def test_a_traceback_without_an_entry_is_left_alone():
    log = "a warning\n"
    assert whole_entries(log + "".join(FAILED[1:3])) == log
    assert whole_entries(log + "".join(FAILED[1:])) == log + "".join(FAILED[1:])
