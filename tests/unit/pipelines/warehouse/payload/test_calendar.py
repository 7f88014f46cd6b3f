"""A column has days and times of the years 1 to 9999 in UTC, by whatever decoder; all others are refused alone."""

import json
from datetime import UTC, date, datetime
from unittest import mock

import pyarrow as pa
import pytest

from millrace import kernel
from millrace_pipelines.warehouse.payload.avro.decoder import avro_decoder
from millrace_pipelines.warehouse.payload.json.decoder import JsonDecoder
from millrace_pipelines.warehouse.payload.outcome import Reason
from millrace_pipelines.warehouse.payload.types import (
    FIRST_DAY,
    FIRST_MICROSECOND,
    LAST_DAY,
    LAST_MICROSECOND,
    list_of,
    map_of,
)

FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
TIMES = {
    "0001-01-01T00:00:00Z": FIRST,
    "0001-01-01 00:00:00": FIRST,
    "0001-01-01T05:00:00+05:00": FIRST,
    "0000-12-31T23:00:00-01:00": FIRST,
    "9999-12-31T23:59:59.999999": LAST,
    "9999-12-31T22:59:59.999999-01:00": LAST,
    "2000-02-29T12:00:00+14:00": datetime(2000, 2, 28, 22, tzinfo=UTC),
    "0001-01-01T00:00:00+00:01": None,
    "0000-12-31T23:59:59.999999Z": None,
    "0000-01-01T00:00:00": None,
    "9999-12-31T23:59:59-00:01": None,
    "9999-12-31T23:59:60Z": None,
    "10000-01-01T00:00:00Z": None,
    "-0001-01-01T00:00:00Z": None,
    "2016-12-31T23:59:60Z": None,
    "1900-02-29T00:00:00Z": None,
}
DAYS = {
    "0001-01-01": date(1, 1, 1),
    "9999-12-31": date(9999, 12, 31),
    "1582-10-10": date(1582, 10, 10),
    "0000-12-31": None,
    "0000-01-01": None,
    "10000-01-01": None,
    "-0001-12-31": None,
    "1900-02-29": None,
}
AROUND = {
    "alone": (lambda kind: kind, lambda text: text),
    "in a struct": (lambda kind: pa.struct([pa.field("x", kind)]), lambda text: {"x": text}),
    "in a list": (list_of, lambda text: [text]),
    "in a list of structs": (lambda kind: list_of(pa.struct([pa.field("x", kind)])), lambda text: [{"x": text}]),
    "in a map": (lambda kind: map_of(pa.string(), kind), lambda text: {"k": text}),
}


@pytest.mark.parametrize("with_kernel", [pytest.param(True, id="kernel"), pytest.param(False, id="plain")])
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize(
    ("kind", "texts"), [(pa.timestamp("us", "UTC"), TIMES), (pa.date32(), DAYS)], ids=["timestamp", "date"]
)
def test_texts_of_json(kind, texts, around, with_kernel):
    type_around, value_around = AROUND[around]
    with mock.patch.object(kernel, "native", kernel.native if with_kernel else None):
        decoder = JsonDecoder([pa.field("at", type_around(kind))])
        values = [json.dumps({"at": value_around(text)}).encode() for text in texts]
        decoded = decoder.decode(pa.array(values, pa.binary()))
        alone = [decoder.decode(pa.array([value], pa.binary())) for value in values]
    assert [one.row for one in decoded.refusals] == [n for n, wanted in enumerate(texts.values()) if wanted is None]
    assert {one.reason for one in decoded.refusals} == {Reason.RANGE}
    assert [len(one.refusals) for one in alone] == [wanted is None for wanted in texts.values()]
    wanted = pa.array([one for one in texts.values() if one is not None], kind)
    assert leaves(decoded.columns.column("at").combine_chunks()).equals(wanted)


def leaves(column):
    while pa.types.is_nested(column.type):
        if pa.types.is_map(column.type):
            column = column.items
        else:
            column = column.flatten() if pa.types.is_list(column.type) else column.field(0)
    return column


def zigzag(number):
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


@pytest.mark.parametrize(
    ("logical", "first", "last", "farthest"),
    [
        ("date", FIRST_DAY, LAST_DAY, 31),
        ("timestamp-millis", FIRST_MICROSECOND // 1000, LAST_MICROSECOND // 1000, 63),
        ("timestamp-micros", FIRST_MICROSECOND, LAST_MICROSECOND, 63),
    ],
)
def test_numbers_of_avro(logical, first, last, farthest):
    plain = "int" if logical == "date" else "long"
    kind = {"type": plain, "logicalType": logical}
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "at", "type": ["null", kind]}, {"name": "list", "type": {"type": "array", "items": kind}},
    ]}  # fmt: skip
    decoder = avro_decoder(json.dumps(schema))
    numbers = [-(1 << farthest), first - 1, first, -1, 0, last, last + 1, (1 << farthest) - 1]
    alone = [b"\x02" + zigzag(number) + b"\x00" for number in numbers]
    in_a_list = [b"\x00\x02" + zigzag(number) + b"\x00" for number in numbers]
    decoded = decoder.decode(pa.array([*alone, *in_a_list], pa.binary()))
    assert [one.row for one in decoded.refusals] == [0, 1, 6, 7, 8, 9, 14, 15]
    assert {one.reason for one in decoded.refusals} == {Reason.RANGE}
    found = decoded.columns.to_pylist()
    assert [row["at"] for row in found[:4]] == [row["list"][0] for row in found[4:]]
    assert {found[0]["at"].year, found[3]["at"].year} == {1, 9999}
