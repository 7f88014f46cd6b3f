"""How a record is written, and where reading starts."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from millrace.errors import InvalidConfigError
from millrace.records.record import Record
from millrace_ops.cli.consume import Format, format_record, parse_template
from millrace_ops.cli.consume_read import parse_start

PLAIN = Format()
ALL = Format(print_timestamp=True, print_key=True, print_headers=True)
JSON = Format(as_json=True)
RECORD = Record(5, 1_700_000_000_000, b"k", b"v\xff", (("a", b"1"), ("b", None)))


def test_a_value_is_written_as_it_is():
    assert format_record("t", 0, RECORD, PLAIN) == b"v\xff\n"


def test_time_headers_and_key_stand_before_the_value():
    assert format_record("t", 0, RECORD, ALL) == b"2023-11-14T22:13:20.000+00:00\ta=1,b=null\tk\tv\xff\n"


def test_a_tombstone_is_null():
    assert format_record("t", 0, Record(0, -1, None, None), ALL) == b"-1\t\tnull\tnull\n"


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
    ("template", "written"),
    [
        ("%k %v", b"k v\xff"),
        ("%t/%p@%o %T %h\\n", b"t/3@5 1700000000000 a=1,b=null\n"),
        ("%s\\t%K %S %%\\r\\0\\\\\\xfF", b"v\xff\t1 2 %\r\0\\\xff"),
        ("ключ: %k", "ключ: k".encode()),
        ("\udcff", b"\xff"),
        ("", b""),
    ],
)
def test_templates(template, written):
    assert format_record("t", 3, RECORD, Format(template=parse_template(template))) == written


def test_null_in_a_template_has_the_length_minus_one():
    shape = Format(template=parse_template("%k:%K %v:%S"))
    assert format_record("t", 0, Record(0, 0, None, None), shape) == b"null:-1 null:-1"
    assert format_record("t", 0, Record(0, 0, b"", b""), shape) == b":0 :0"


@pytest.mark.parametrize(
    ("template", "token"), [("%x", "%x"), ("a%", "%"), ("\\q", r"\q"), ("\\", "\\"), ("\\xg0", r"\x")]
)
def test_a_field_or_an_escape_that_there_is_not_is_named(template, token):
    with pytest.raises(InvalidConfigError) as raised:
        parse_template(template)
    assert str(raised.value).startswith(f"--format: {token} is not known; there are %k, ")


@pytest.mark.parametrize(
    ("shape", "written"),
    [
        (Format(), b'{"v": "x"}\n'),
        (Format(template=parse_template("%v %S")), b'{"v": "x"} 1'),
    ],
)
def test_decoded_values_are_json(shape, written):
    shape = shape._replace(decode=lambda value: {"v": value.decode()})
    assert format_record("t", 0, Record(0, 0, None, b"x"), shape) == written
    assert format_record("t", 0, Record(0, 0, None, None), shape).startswith(b"null")


def test_decoded_values_are_objects_in_json():
    shape = Format(as_json=True, decode=lambda value: {"v": value.decode()})
    assert json.loads(format_record("t", 0, Record(0, 0, None, b"x"), shape))["value"] == {"v": "x"}
    assert json.loads(format_record("t", 0, Record(0, 0, None, None), shape))["value"] is None


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
