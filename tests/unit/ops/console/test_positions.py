"""Positions that people paste: what is one, and what else a text may be."""

import pytest

from millrace.errors import InvalidRequestError
from millrace_ops.console.pages.positions import MAX_POSITIONS, parse_positions


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("weather-0@1234", {0: 1234}),
        (" weather-0@1234, weather-1@77\n", {0: 1234, 1: 77}),
        ("0@1234", {0: 1234}),
        ("0:1234", {0: 1234}),
        ("weather:0:1234", {0: 1234}),
        ("0·1,234,567", {0: 1234567}),
        ("0@1,1@2", {0: 1, 1: 2}),
        ("0@1; 1@2\n\n2@3", {0: 1, 1: 2, 2: 3}),
        ("0@5 0@5", {0: 5}),
    ],
)
def test_what_pages_and_commands_write_is_read(text, found):
    assert parse_positions(text, "weather") == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1000",
        "2026-07-01T12:00",
        "2026-07-01 12:00:05.5+02:00",
        "2026-07-01",
        "12:00:30Z",
        "0@",
        "@1",
        "0@1x",
        "x 0@1",
        "0@-1",
        "noon",
    ],
)
def test_another_text_is_none(text):
    assert parse_positions(text, "weather") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("orders-0@1", "orders-0@1 is a position of another topic than weather"),
        ("weather-0@1 weather-0@2", "two positions of partition 0: 1 and 2"),
        (f"0@{2**63}", "there is no such partition or offset"),
        (f"{2**31}@0", "there is no such partition or offset"),
        (" ".join(f"{number}@0" for number in range(MAX_POSITIONS + 1)), f"more than {MAX_POSITIONS}"),
    ],
)
def test_what_can_not_be_shown_is_named(text, message):
    with pytest.raises(InvalidRequestError, match=message):
        parse_positions(text, "weather")


def test_names_of_topics_may_look_like_positions():
    assert parse_positions("a-0-1@2", "a-0") == {1: 2}
    assert parse_positions("2026-07-01T12-0@5", "2026-07-01T12") == {0: 5}
