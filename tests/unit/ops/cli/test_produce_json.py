"""Records from JSON lines: what `consume --json` prints comes back, and what is wrong is named by its line."""

import json

import pytest

from millrace.errors import InvalidRecordError
from millrace.records.record import NewRecord, Record
from millrace_ops.cli.consume import Format, format_record
from millrace_ops.cli.produce import Line, Placed, records_of_json

NOW_MS = 7


def read(*lines, headers=(), keeps_times=True):
    return list(records_of_json(map(Line, range(1, 99), lines), NOW_MS, headers, keeps_times=keeps_times))


@pytest.mark.parametrize(
    "record",
    [
        Record(5, 1_700_000_000_000, b"k", b"v"),
        Record(5, 0, None, None),
        Record(5, 1, b"", b""),
        Record(5, 1, b"\xff", b"\x00\xfe"),
        Record(5, 1, "ключ".encode(), b'{"a": 1}\n'),
        Record(5, 1, b"k", b"v", (("h", b"1"), ("h", None), ("", b"\xff"), ("h", b"1"))),
    ],
)
def test_what_consume_prints_is_read_back(record):
    line = format_record("t", 3, record, Format(as_json=True)).rstrip(b"\n")
    expected = NewRecord(record.value, record.key, record.timestamp_ms, record.headers)
    assert read(line) == [Placed(1, expected, 3)]


def test_only_the_value_is_required():
    assert read(b'{"value": "v"}', b"  ", b'{"value": null}') == [
        Placed(1, NewRecord(b"v", None, NOW_MS, ())),
        Placed(3, NewRecord(None, None, NOW_MS, ())),
    ]


def test_a_time_and_headers_for_all():
    (placed,) = read(
        b'{"value": "v", "timestamp_ms": 1, "headers": [["a", "1"]]}', headers=(("b", b"2"),), keeps_times=False
    )
    assert placed.record == NewRecord(b"v", None, NOW_MS, (("a", b"1"), ("b", b"2")))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"plain", "no JSON: Expecting value at column 1"),
        (b'{"value": 1e}', "no JSON: Expecting ',' delimiter at column 12"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"5", "5 is no JSON object of a record"),
        (b"[]", "is no JSON object of a record"),
        (b"{}", "the field value is missing; null makes a tombstone"),
        (b'{"vlaue": "x", "value": "x"}', "unknown field vlaue"),
        (b'{"value": 5}', "value is 5, expected a text, null or"),
        (b'{"value": {"a": 1}}', "value is"),
        (b'{"value": {"base64": "?"}}', "value: no base64"),
        (b'{"value": {"base64": "dv8=", "a": 1}}', "value is"),
        (b'{"value": "\\ud800"}', "no text in UTF-8"),
        (b'{"value": "v", "key": ["k"]}', "key is"),
        (b'{"value": "v", "headers": {"a": "1"}}', "headers are"),
        (b'{"value": "v", "headers": [["a"]]}', "expected [NAME, VALUE]"),
        (b'{"value": "v", "headers": [["a", 1]]}', "header a is 1"),
        (b'{"value": "v", "headers": [[null, "1"]]}', "expected [NAME, VALUE]"),
        (b'{"value": "v", "partition": -1}', "partition is -1"),
        (b'{"value": "v", "partition": true}', "partition is true"),
        (b'{"value": "v", "partition": 2147483648}', "partition is 2147483648"),
        (b'{"value": "v", "timestamp_ms": "now"}', 'timestamp_ms is "now"'),
        (b'{"value": "v", "timestamp_ms": 9223372036854775808}', "timestamp_ms is 9223372036854775808"),
        (b'{"value": "v", "timestamp_ms": 1.5}', "timestamp_ms is 1.5"),
    ],
)
def test_a_line_that_is_no_record_is_named(line, words):
    with pytest.raises(InvalidRecordError) as raised:
        read(json.dumps({"value": "fine"}).encode(), line)
    assert str(raised.value).startswith("line 2: ")
    assert words in str(raised.value)
