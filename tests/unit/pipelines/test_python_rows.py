"""Rows of Arrow as Python's values, whatever their times are."""

from datetime import UTC, datetime

import pyarrow as pa

from millrace_pipelines.arrow import python_rows

LATE_MS = 253_402_300_800_000  # a millisecond after the year 9999
TIME = pa.timestamp("us", "UTC")


def test_times_within_the_calendar_are_python_s():
    rows = pa.table({"at": pa.array([0, None], TIME), "n": [1, 2]})
    assert python_rows(rows) == [{"at": datetime(1970, 1, 1, tzinfo=UTC), "n": 1}, {"at": None, "n": 2}]


def test_times_beyond_it_are_texts_and_the_others_stay():
    rows = pa.table(
        {"at": pa.array([0, LATE_MS * 1000, None], TIME), "day": pa.array([1, 2_932_897, None], pa.date32())}
    )
    first, second, third = python_rows(rows)
    assert first["at"] == datetime(1970, 1, 1, tzinfo=UTC)
    assert second == {"at": "10000-01-01 00:00:00.000000Z", "day": "10000-01-01"}
    assert third == {"at": None, "day": None}


def test_times_inside_of_other_values():
    late = pa.array([LATE_MS * 1000], TIME)
    structs = pa.StructArray.from_arrays([late, pa.array([7])], ["at", "n"])
    lists = pa.ListArray.from_arrays([0, 1], late)
    [row] = python_rows(pa.table({"structs": structs, "lists": lists}))
    assert row == {
        "structs": {"at": "10000-01-01 00:00:00.000000Z", "n": 7},
        "lists": ["10000-01-01 00:00:00.000000Z"],
    }
