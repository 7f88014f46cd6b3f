"""Times that people type, and the milliseconds of records."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from millrace.times import EPOCH, epoch_ms, parse_time


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2024-05-01T10:00:00", datetime(2024, 5, 1, 10, tzinfo=UTC)),
        ("2024-05-01 10:00:00.001Z", datetime(2024, 5, 1, 10, 0, 0, 1000, tzinfo=UTC)),
        ("2024-05-01T10:00:00+02:00", datetime(2024, 5, 1, 8, tzinfo=UTC)),
        ("2024-05-01", datetime(2024, 5, 1, tzinfo=UTC)),
    ],
)
def test_a_time_is_one_of_utc_unless_it_says_otherwise(text, time):
    assert parse_time(text) == time


@pytest.mark.parametrize("text", ["", "soon", "2024-13-01", "1714557600000", "9" * 5000])
def test_another_text_is_no_time(text):
    with pytest.raises(ValueError):
        parse_time(text)


def test_milliseconds_are_exact_and_rounded_up():
    assert epoch_ms(datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)) == -1000
    # A record has whole milliseconds: that of 1 ms is the first that is not before 0.5 ms, and 0 is before it.
    assert epoch_ms(datetime(1970, 1, 1, microsecond=500, tzinfo=UTC)) == 1
    for milliseconds in (1_782_907_200_001, 4_102_444_799_999, 253_402_300_799_999):
        assert epoch_ms(EPOCH + timedelta(milliseconds=milliseconds)) == milliseconds


def test_a_time_without_a_zone_is_one_of_utc():
    assert epoch_ms(datetime(1970, 1, 2)) == 86_400_000  # noqa: DTZ001
    assert epoch_ms(datetime(1970, 1, 1, 9, tzinfo=timezone(timedelta(hours=9)))) == 0
