"""How a record is written, and where reading starts."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from millrace.errors import InvalidConfigError
from millrace.records.record import Record
from millrace_ops.cli.consume import Format, format_record
from millrace_ops.cli.consume_read import parse_start

PLAIN = Format(as_json=False, print_key=False, print_headers=False)
ALL = Format(as_json=False, print_key=True, print_headers=True)
JSON = Format(as_json=True, print_key=False, print_headers=False)
RECORD = Record(5, 1_700_000_000_000, b"k", b"v\xff", (("a", b"1"), ("b", None)))


def test_a_value_is_written_as_it_is():
    assert format_record("t", 0, RECORD, PLAIN) == b"v\xff\n"


def test_headers_and_key_stand_before_the_value():
    assert format_record("t", 0, RECORD, ALL) == b"a=1,b=null\tk\tv\xff\n"


def test_a_tombstone_is_null():
    assert format_record("t", 0, Record(0, 0, None, None), ALL) == b"\tnull\tnull\n"


def test_json_has_every_field_and_bytes_that_are_no_text_in_base64():
    assert json.loads(format_record("t", 3, RECORD, JSON)) == {
        "topic": "t",
        "partition": 3,
        "offset": 5,
        "timestamp_ms": 1_700_000_000_000,
        "key": "k",
        "value": {"base64": "dv8="},
        "headers": [["a", "1"], ["b", None]],
    }


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("42", 42),
        ("2024-05-01T10:00:00", datetime(2024, 5, 1, 10, tzinfo=UTC)),
        ("2024-05-01T10:00:00+02:00", datetime(2024, 5, 1, 10, tzinfo=timezone(timedelta(hours=2)))),
        ("2024-05-01", datetime(2024, 5, 1, tzinfo=UTC)),
    ],
)
def test_where_to_begin(text, start):
    assert parse_start(text) == start


@pytest.mark.parametrize("text", ["", "-1", "soon", "2024-13-01", str(2**63), "9" * 5000])
def test_what_is_no_beginning_is_named(text):
    with pytest.raises(InvalidConfigError, match="--from"):
        parse_start(text)
