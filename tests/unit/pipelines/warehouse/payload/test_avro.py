"""Avro values: what fastavro writes is read as it was; hostile bytes are refused, alone."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_pipelines.arrow import python_rows
from millrace_pipelines.warehouse.errors import SchemaError
from millrace_pipelines.warehouse.payload.avro.decoder import avro_decoder
from millrace_pipelines.warehouse.payload.outcome import Reason


def record(*fields, name="Event"):
    return {"type": "record", "name": name, "fields": [{"name": name, "type": kind} for name, kind in fields]}


PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
INNER = record(("price", PRICE), ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}), name="Inner")
SCHEMA = record(
    ("id", "long"),
    ("small", ["null", "int"]),
    ("ratio", "double"),
    ("half", "float"),
    ("good", "boolean"),
    ("text", ["string", "null"]),
    ("raw", "bytes"),
    ("fixed", {"type": "fixed", "name": "Three", "size": 3}),
    ("at", {"type": "long", "logicalType": "timestamp-micros"}),
    ("millis", {"type": "long", "logicalType": "timestamp-millis"}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("list", {"type": "array", "items": ["null", "string"]}),
    ("map", {"type": "map", "values": {"type": "array", "items": "int"}}),
    ("inner", ["null", INNER]),
    ("inners", {"type": "array", "items": "Inner"}),
)
TEXT = json.dumps(SCHEMA)
PARSED = fastavro.parse_schema(SCHEMA)

moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda at: at.replace(tzinfo=UTC))  # noqa: DTZ001
texts = st.text(max_size=6)
inner = st.fixed_dictionaries(
    {
        "price": st.integers(-(10**10) + 1, 10**10 - 1).map(lambda n: Decimal(n).scaleb(-2)),
        "kind": st.sampled_from("AB"),
    }
)
events = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "small": st.none() | st.integers(-(2**31), 2**31 - 1),
        "ratio": st.floats(allow_nan=False),
        "half": st.floats(allow_nan=False, width=32),
        "good": st.booleans(),
        "text": st.none() | texts,
        "raw": st.binary(max_size=8),
        "fixed": st.binary(min_size=3, max_size=3),
        "at": moments,
        "millis": moments.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
        "day": st.dates(date(1, 1, 1), date(9999, 12, 31)),
        "list": st.lists(st.none() | texts, max_size=4),
        "map": st.dictionaries(texts, st.lists(st.integers(-9, 9), max_size=3), max_size=3),
        "inner": st.none() | inner,
        "inners": st.lists(inner, max_size=3),
    }
)


def encode(event, schema=PARSED):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, event)
    return out.getvalue()


def decode(*values, schema=TEXT):
    decoded = avro_decoder(schema).decode(pa.array(values, pa.binary()))
    decoded.columns.validate(full=True)
    return decoded


def rows(decoded):
    return [row | {"map": dict(row["map"])} for row in python_rows(decoded.columns)]


@settings(deadline=None, max_examples=60)
@given(st.lists(events, max_size=12))
def test_what_was_written_is_read(found):
    decoded = decode(*map(encode, found))
    assert decoded.refusals == []
    assert rows(decoded) == found


@settings(deadline=None, max_examples=60)
@given(st.lists(events, min_size=2, max_size=4), st.data())
def test_damage_stays_alone_and_agrees_with_fastavro(found, data):
    values = [encode(event) for event in found]
    value = bytearray(values[0])
    if data.draw(st.booleans()):
        value = value[: data.draw(st.integers(0, len(value)))]
    else:
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    decoded = decode(values[1], bytes(value), *values[1:])
    assert {refusal.row for refusal in decoded.refusals} <= {1}
    got = rows(decoded)
    assert [got[0], *got[-len(found[1:]) :]] == [found[1], *found[1:]]
    if not decoded.refusals:
        source = io.BytesIO(value)
        try:
            raw = fastavro.schemaless_reader(source, PARSED)
        except (OverflowError, ValueError):  # a time beyond Python's calendar
            return
        assert source.tell() == len(value)
        assert json.dumps(got[1], default=str) == json.dumps(raw, default=str)


@pytest.mark.parametrize(
    ("kind", "value", "reason", "message"),
    [
        ("int", b"", Reason.MALFORMED, "field f: cut short"),
        ("int", b"\x02\x00", Reason.MALFORMED, "bytes after the record's end"),
        ("int", b"\xfe\xff\xff\xff\xff\x01", Reason.RANGE, "field f: a number does not fit 32 bits"),
        ("long", b"\xff" * 10, Reason.MALFORMED, "field f: an integer is longer than 64 bits"),
        ("boolean", b"\x02", Reason.MALFORMED, "field f: a boolean is 0 or 1"),
        ("string", b"\x02\xff", Reason.MALFORMED, "field f: Invalid UTF8"),
        ("string", b"\x01", Reason.MALFORMED, "field f: cut short"),
        ("string", b"\x7e" + b"a", Reason.MALFORMED, "field f: cut short"),
        (["null", "int"], b"\x04", Reason.MALFORMED, "field f: no such branch of a union"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", Reason.RANGE, "field f: no such symbol"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\x0f", Reason.MALFORMED, "field f: cut short"),
        ({"type": "map", "values": "int"}, b"\x04\x02a\x00\x02a\x00\x00", Reason.DUPLICATE, "field f: a key is there"),
        (PRICE, b"\x0c\x7f\xff\xff\xff\xff\xff", Reason.RANGE, "field f: a number does not fit decimal(10,2)"),
        ({"type": "long", "logicalType": "timestamp-micros"}, b"\xfe" + b"\xff" * 8 + b"\x01", Reason.RANGE, "years"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, b"\x02", Reason.RANGE, "finer than a microsecond"),
    ],
)
def test_a_refused_value(kind, value, reason, message):
    [refusal] = decode(value, schema=json.dumps(record(("f", kind)))).refusals
    assert refusal.reason is reason
    assert message in refusal.message


def test_a_union_of_several_types_is_read_over_and_named():
    schema = json.dumps(record(("a", "int"), ("u", ["null", "int", "string"]), ("b", "string")))
    decoder = avro_decoder(schema)
    assert decoder.without_column == ["u"]
    values = [encode({"a": 1, "u": one, "b": "x"}, fastavro.parse_schema(json.loads(schema))) for one in (None, 5, "y")]
    decoded = decode(*values, schema=schema)
    assert decoded.columns.to_pylist() == [{"a": 1, "b": "x"}] * 3


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("not json", "not valid"),
        ('"int"', "not that of a record"),
        (json.dumps(record(("a", "nothing"))), "not valid"),
        (json.dumps(record(("next", ["null", "Event"]))), "holds itself"),
    ],
)
def test_a_schema_that_can_t_be_used(schema, message):
    with pytest.raises(SchemaError, match=message):
        avro_decoder(schema)


def test_references_give_names_their_types():
    outer = json.dumps(record(("inner", "Inner")))
    decoder = avro_decoder(outer, (json.dumps(record(("x", "int"), name="Inner")),))
    assert decoder.decode(pa.array([b"\x02"])).columns.to_pylist() == [{"inner": {"x": 1}}]
