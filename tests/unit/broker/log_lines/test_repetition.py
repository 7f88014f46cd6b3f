"""A line that comes again and again is left out, and said to be."""

import logging

import pytest

from millrace_broker.log_lines.output import LINES_IN_WINDOW, MAX_KINDS, WINDOW_S, RepetitionFilter


@pytest.fixture
def written():
    """Lets a line pass at a time; its message, None where it is left out."""
    judge = RepetitionFilter(unlimited=["audit"])

    def written(message, *arguments, at_s=1000.0, name="net", level=logging.INFO):
        record = logging.LogRecord(name, level, "x.py", 1, message, arguments, None)
        record.created = at_s
        return record.getMessage() if judge.filter(record) else None

    return written


def test_a_hundred_lines_of_a_kind_are_written_and_the_last_says_that_others_are_left_out(written):
    lines = [written("refusing %s", number) for number in range(LINES_IN_WINDOW + 50)]
    assert lines[: LINES_IN_WINDOW - 1] == [f"refusing {number}" for number in range(LINES_IN_WINDOW - 1)]
    assert lines[LINES_IN_WINDOW - 1] == "refusing 99 (further lines like this are left out for 10 s)"
    assert set(lines[LINES_IN_WINDOW:]) == {None}


def test_the_next_line_after_that_time_tells_how_many_were_left_out(written):
    for number in range(LINES_IN_WINDOW + 50):
        written("refusing %s", number)
    assert written("refusing %s", "x", at_s=1000 + WINDOW_S - 0.1) is None
    assert written("refusing %s", "y", at_s=1000 + WINDOW_S) == "refusing y (51 lines like this were left out)"
    assert written("refusing %s", "z", at_s=1000 + WINDOW_S) == "refusing z"
    assert written("refusing %s", "w", at_s=1000 + 3 * WINDOW_S) == "refusing w"


def test_other_sentences_loggers_and_levels_are_other_kinds(written):
    for number in range(LINES_IN_WINDOW + 1):
        written("refusing %s", number)
    assert written("closing %s", 1) == "closing 1"
    assert written("refusing %s", 1, name="other") == "refusing 1"
    assert written("refusing %s", 1, level=logging.ERROR) == "refusing 1"
    assert written("refusing %s", 1) is None


def test_some_loggers_are_never_limited(written):
    assert all(written("denied %s", number, name="audit") for number in range(3 * LINES_IN_WINDOW))


def test_a_clock_that_is_set_back_begins_a_new_time(written):
    for number in range(LINES_IN_WINDOW + 5):
        written("refusing %s", number)
    assert written("refusing %s", "x", at_s=10.0) == "refusing x (5 lines like this were left out)"


def test_kinds_are_bounded(written):
    for _ in range(LINES_IN_WINDOW + 1):
        written("the first")
    for number in range(MAX_KINDS):
        assert written(f"sentence {number}")
    assert written("the first") == "the first"
