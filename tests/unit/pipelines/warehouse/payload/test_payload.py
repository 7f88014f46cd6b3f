"""JSON values to typed columns; what does not fit becomes a refusal and spoils nothing else."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_pipelines.warehouse.payload import outcome
from millrace_pipelines.warehouse.payload.json.decoder import NOT_NUMBERS, JsonDecoder, JsonValues, has_word
from millrace_pipelines.warehouse.payload.outcome import Reason
from millrace_pipelines.warehouse.payload.payload import Payload
from millrace_pipelines.warehouse.payload.schema import parse_payload_schema

SCHEMA = parse_payload_schema(
    json.dumps(
        {
            "fields": [
                {"name": "id", "type": "long", "nullable": False},
                {"name": "small", "type": "integer"},
                {"name": "text", "type": "string"},
                {"name": "ratio", "type": "double"},
                {"name": "half", "type": "float"},
                {"name": "price", "type": "decimal(10,2)"},
                {"name": "good", "type": "boolean"},
                {"name": "at", "type": "timestamp"},
                {"name": "day", "type": "date"},
                {
                    "name": "inner",
                    "type": {"type": "struct", "fields": [{"name": "x", "type": "integer", "nullable": False}]},
                },
                {"name": "list", "type": {"type": "array", "elementType": "double", "containsNull": True}},
            ]
        }
    )
)
NULLS = dict.fromkeys(field.name for field in SCHEMA.fields)
WITH_MAP = parse_payload_schema(
    json.dumps(
        {
            "fields": [
                {"name": "id", "type": "long", "nullable": False},
                {
                    "name": "map",
                    "type": {
                        "type": "map",
                        "keyType": "string",
                        "valueType": {"type": "struct", "fields": [{"name": "day", "type": "date"}]},
                    },
                },
            ]
        }
    )
)

REFUSED = {
    b"": (Reason.MALFORMED, "not a JSON object"),
    b"not json": (Reason.MALFORMED, "not a JSON object"),
    b"null": (Reason.MALFORMED, "not a JSON object"),
    b"[1]": (Reason.MALFORMED, "not a JSON object"),
    b"{": (Reason.MALFORMED, "not a JSON object"),
    b'\xef\xbb\xbf{"id": 1}': (Reason.MALFORMED, "not a JSON object"),
    b"{}": (Reason.MISSING, "field id is missing or null"),
    b'{"id": null}': (Reason.MISSING, "field id is missing or null"),
    b'{"id": "x"}': (Reason.TYPE, "field id: expected number, found string"),
    b'{"id": true}': (Reason.TYPE, "field id: expected number, found boolean"),
    b'{"id": 1.5}': (Reason.RANGE, "field id: 1.5 is not an integer"),
    b'{"id": 1e2}': (Reason.RANGE, "is not an integer"),
    b'{"id": 99999999999999999999}': (Reason.RANGE, "field id: 99999999999999999999 does not fit 64 bits"),
    b'{"id": 1, "small": 3000000000}': (Reason.RANGE, "field small: 3000000000 does not fit 32 bits"),
    b'{"id": 1, "ratio": 1e999}': (Reason.RANGE, "field ratio"),
    b'{"id": 1, "half": 1e39}': (Reason.RANGE, "field half"),
    b'{"id": 1, "ratio": NaN}': (Reason.MALFORMED, "NaN is no JSON number"),
    b'{"id": 1, "list": [-Infinity]}': (Reason.MALFORMED, "-Infinity is no JSON number"),
    b'{"id": 1, "undeclared": NaN}': (Reason.MALFORMED, "NaN is no JSON number"),
    b'{"id": 1, "ratio": Inf}': (Reason.MALFORMED, "not a JSON object"),
    b'{"id": 1, "text": "a\\"NaN", "undeclared": [-Inf]}': (Reason.MALFORMED, "not a JSON object"),
    b'{"id": 1, "price": 1.255}': (Reason.RANGE, "field price: 1.255 does not fit decimal(10,2)"),
    b'{"id": 1, "price": 123456789.5}': (Reason.RANGE, "does not fit decimal(10,2)"),
    b'{"id": 1, "price": []}': (Reason.TYPE, "field price: expected number, found array"),
    b'{"id": 1, "price": [0, [1, 2], 0]}': (Reason.TYPE, "field price: expected number, found array"),
    b'{"id": 1, "price": true}': (Reason.TYPE, "field price: expected number, found boolean"),
    b'{"id": 1, "at": "yesterday"}': (Reason.RANGE, "field at: 'yesterday' is no timestamp"),
    b'{"id": 1, "at": "2013-01-01T05:00:00.1234567Z"}': (Reason.RANGE, "field at"),
    b'{"id": 1, "at": 1357016400000}': (Reason.TYPE, "field at: expected string, found number"),
    b'{"id": 1, "day": "2013-02-30"}': (Reason.RANGE, "field day: '2013-02-30' is no date"),
    b'{"id": 1}{"id": 2}': (Reason.MALFORMED, "more than one JSON object"),
    b'{"id": 1} null {"id": 2}': (Reason.MALFORMED, "more than one JSON object"),
    b'{"id": 1, "id": 2}': (Reason.DUPLICATE, "field id is there twice"),
    b'{"id": 1, "inner": {"x": 1, "x": 2}}': (Reason.DUPLICATE, "field x is there twice"),
    b'{"id": 1, "inner": {}}': (Reason.MISSING, "field inner/x is missing or null"),
    b'{"id": 1, "inner": [1]}': (Reason.TYPE, "field inner: expected object, found array"),
    b'{"id": 1, "list": ["x"]}': (Reason.TYPE, "field list/[]: expected number, found string"),
    b'{"id": 1, "text": "a\nb"}': (Reason.MALFORMED, ""),
    b'{"id": 1, "text": "\xff"}': (Reason.MALFORMED, "UTF8"),
    b'{"id": 1, "text": "\\ud800"}': (Reason.MALFORMED, "surrogate"),
    b'{"id":"}': (Reason.MALFORMED, ""),
    b'{","id":1}': (Reason.MALFORMED, ""),
}

texts = st.text(max_size=5)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | texts
    | st.sampled_from(["2013-01-01", "2013-01-01T05:00:00Z", "1.25"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | st.just("x"), inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(st.sampled_from([*NULLS, "other"]), json_values, max_size=6)


def parse(*values, schema=SCHEMA):
    return Payload(schema, schema.arrow).decode(pa.array(values, pa.binary()))


def passed(decoded, count):
    return outcome.passed(decoded.refusals, count).tolist()


def test_every_type():
    event = b"""  {"id": 7, "small": -3, "text": "caf\xc3\xa9", "ratio": 2, "half": 0.5, "price": 12.5, "good": true,
                   "at": "2013-01-01T05:00:00Z", "day": "2013-01-02", "inner": {"x": 1, "y": 2}, "list": [1, null],
                   "unknown": [{"deep": null}]}\n"""
    assert parse(event).columns.to_pylist() == [
        {
            "id": 7,
            "small": -3,
            "text": "café",
            "ratio": 2.0,
            "half": 0.5,
            "price": Decimal("12.50"),
            "good": True,
            "at": datetime(2013, 1, 1, 5, tzinfo=UTC),
            "day": date(2013, 1, 2),
            "inner": {"x": 1},
            "list": [1.0, None],
        }
    ]


def test_a_timestamp_s_offset_counts():
    parsed = parse(b'{"id": 1, "at": "2013-01-01 05:00:00.25+02:00"}')
    assert parsed.columns.column("at").to_pylist() == [datetime(2013, 1, 1, 3, 0, 0, 250000, tzinfo=UTC)]


@pytest.mark.parametrize(("value", "why"), REFUSED.items())
def test_a_refused_value_alone(value, why):
    parsed = parse(value)
    [refusal] = parsed.refusals
    assert refusal.reason is why[0]
    assert why[1] in refusal.message
    assert parsed.columns.num_rows == 0


def test_the_letters_nan_inside_a_text_are_no_number():
    deep, long = b"[" * 200_000 + b"]" * 200_000, b"1" * 5000
    parsed = parse(
        b'{"id": 1, "text": "NaN, Infinity"}',
        b'{"id": 2, "text": "\\"NaN\\\\", "undeclared": "Inf"}',
        b'{"id": 3, "text": "NaN", "undeclared": %b}' % deep,
        b'{"id": 4, "text": "NaN", "undeclared": %b}' % long,
    )
    assert parsed.refusals == []


@given(st.lists(st.sampled_from([b"N", b"a", b"I", b"n", b"f", b"x", *NOT_NUMBERS]), min_size=2).map(b"".join))
def test_words_are_found_wherever_they_stand(text):
    octets = np.frombuffer(text, np.uint8)
    assert [has_word(octets, word) for word in NOT_NUMBERS] == [word in text for word in NOT_NUMBERS]


def test_tombstones_pass_with_nulls():
    parsed = parse(None, b'{"id": 1}', None)
    assert parsed.refusals == []
    assert parsed.columns.to_pylist() == [NULLS, NULLS | {"id": 1}, NULLS]


def test_nothing_gives_no_rows():
    assert parse().columns.schema == SCHEMA.arrow
    assert parse(None).columns.num_rows == 1


@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(st.none(), st.integers(0, 2**40), st.sampled_from(sorted(REFUSED))), max_size=40))
def test_a_value_passes_whatever_stands_beside_it(kinds):
    values = [b'{"id": %d}' % kind if isinstance(kind, int) else kind for kind in kinds]
    parsed = parse(*values)
    assert passed(parsed, len(kinds)) == [not isinstance(kind, bytes) for kind in kinds]
    assert parsed.columns.column("id").to_pylist() == [kind for kind in kinds if not isinstance(kind, bytes)]
    alone = [parse(kind).refusals[0] for kind in kinds if isinstance(kind, bytes)]
    assert [refusal[1:] for refusal in parsed.refusals] == [refusal[1:] for refusal in alone]


@settings(deadline=None, max_examples=60)
@given(st.lists(objects, max_size=8))
def test_both_readers_decide_alike(found):
    values = pa.array([json.dumps(one).encode() for one in found], pa.binary())
    fast, slow = JsonDecoder(SCHEMA.fields).decode(values), JsonValues(SCHEMA.fields).decode(values)
    assert [refusal.row for refusal in fast.refusals] == [refusal.row for refusal in slow.refusals]
    assert fast.columns.equals(slow.columns)


def test_deep_nesting_is_no_danger():
    depth = 200_000
    parsed = parse(
        b'{"id": 1, "deep": ' + b"[" * depth + b"]" * depth + b"}", b'{"id": 2, "deep": ' + b"[" * depth + b"}"
    )
    assert passed(parsed, 2) == [True, False]


def test_maps_and_dates_inside():
    decoded = parse(
        b'{"id": 1, "map": {"a": {"day": "2013-01-02"}, "b": null}}',
        b'{"id": 2, "map": [1]}',
        b'{"id": 3, "map": {"a": {}, "a": {}}}',
        b'{"map": {}}',
        b"[" * 200_000,
        schema=WITH_MAP,
    )
    assert decoded.columns.to_pylist() == [{"id": 1, "map": [("a", {"day": date(2013, 1, 2)}), ("b", None)]}]
    assert [refusal.reason for refusal in decoded.refusals] == [
        Reason.TYPE,
        Reason.DUPLICATE,
        Reason.MISSING,
        Reason.MALFORMED,
    ]
