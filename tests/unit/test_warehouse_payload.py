"""JSON values to typed columns; what does not fit becomes a dead letter and spoils nothing else."""

import json
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_pipelines.warehouse.payload import parse_payloads
from millrace_pipelines.warehouse.schema import parse_payload_schema

SCHEMA = parse_payload_schema(
    json.dumps(
        {
            "fields": [
                {"name": "id", "type": "long", "nullable": False},
                {"name": "small", "type": "integer"},
                {"name": "text", "type": "string"},
                {"name": "ratio", "type": "double"},
                {"name": "good", "type": "boolean"},
                {"name": "at", "type": "timestamp"},
                {"name": "day", "type": "date"},
            ]
        }
    )
)
NULLS = dict.fromkeys(field.name for field in SCHEMA.fields)

REFUSED = {
    b"": "not a JSON object",
    b"not json": "not a JSON object",
    b"null": "not a JSON object",
    b"[1]": "not a JSON object",
    b"{": "not a JSON object",
    b'\xef\xbb\xbf{"id": 1}': "not a JSON object",
    b"{}": "field id is missing or null",
    b'{"id": null}': "field id is missing or null",
    b'{"id": "x"}': "field id: expected number, found string",
    b'{"id": 1.5}': "1.5",
    b'{"id": 99999999999999999999}': "99999999999999999999",
    b'{"id": 1, "small": 3000000000}': "3000000000",
    b'{"id": 1, "at": "yesterday"}': "yesterday",
    b'{"id": 1, "day": "2013-02-30"}': "2013-02-30",
    b'{"id": 1}{"id": 2}': "more than one JSON object",
    b'{"id": 1} null {"id": 2}': "more than one JSON object",
    b'{"id": 1, "id": 2}': "twice",
    b'{"id": 1, "text": "a\nb"}': "",
    b'{"id": 1, "text": "\xff"}': "UTF8",
    b'{"id":"}': "",
    b'{","id":1}': "",
}


def parse(*values):
    return parse_payloads(pa.array(values, pa.binary()), SCHEMA)


def test_every_type():
    event = b"""  {"id": 7, "small": -3, "text": "caf\xc3\xa9", "ratio": 2, "good": true, "at": "2013-01-01T05:00:00Z",
                   "day": "2013-01-02", "unknown": [{"deep": null}]}\n"""
    assert parse(event).columns.to_pylist() == [
        {
            "id": 7,
            "small": -3,
            "text": "café",
            "ratio": 2.0,
            "good": True,
            "at": datetime(2013, 1, 1, 5, tzinfo=UTC),
            "day": date(2013, 1, 2),
        }
    ]


def test_a_timestamp_s_offset_counts():
    parsed = parse(b'{"id": 1, "at": "2013-01-01 05:00:00.25+02:00"}')
    assert parsed.columns.column("at").to_pylist() == [datetime(2013, 1, 1, 3, 0, 0, 250000, tzinfo=UTC)]


@pytest.mark.parametrize(("value", "reason"), REFUSED.items())
def test_a_refused_value_alone(value, reason):
    parsed = parse(value)
    assert parsed.passed.tolist() == [False]
    assert reason in parsed.errors[0]
    assert parsed.columns.num_rows == 0


def test_tombstones_pass_with_nulls():
    parsed = parse(None, b'{"id": 1}', None)
    assert parsed.passed.all()
    assert parsed.columns.to_pylist() == [NULLS, NULLS | {"id": 1}, NULLS]


def test_nothing_gives_no_rows():
    assert parse().columns.schema == SCHEMA.arrow
    assert parse(None).columns.num_rows == 1


@given(st.lists(st.one_of(st.none(), st.integers(0, 2**40), st.sampled_from(sorted(REFUSED))), max_size=40))
def test_a_value_passes_whatever_stands_beside_it(kinds):
    values = [b'{"id": %d}' % kind if isinstance(kind, int) else kind for kind in kinds]
    parsed = parse(*values)
    assert parsed.passed.tolist() == [not isinstance(kind, bytes) for kind in kinds]
    assert parsed.columns.column("id").to_pylist() == [kind for kind in kinds if not isinstance(kind, bytes)]
    assert parsed.errors == [parse(kind).errors[0] for kind in kinds if isinstance(kind, bytes)]


def test_deep_nesting_is_no_danger():
    depth = 200_000
    parsed = parse(
        b'{"id": 1, "deep": ' + b"[" * depth + b"]" * depth + b"}", b'{"id": 2, "deep": ' + b"[" * depth + b"}"
    )
    assert parsed.passed.tolist() == [True, False]
