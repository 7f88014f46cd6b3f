"""Which JSON the kernel reads by itself, and that it leaves all else, each for what it has of its own."""

from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pytest

from millrace import kernel
from millrace_pipelines.warehouse.payload.json.decoder import KERNEL_TYPES, is_read_by_kernel, read_plain
from millrace_support.hostile_json import FIELDS

ARROW_TYPES = {letter: data_type for data_type, letter in KERNEL_TYPES.items()}
DECLARED = [pa.field(name.decode(), ARROW_TYPES[letter], not is_required) for name, letter, is_required in FIELDS]
COLUMNS = pa.schema([(field.name, field.type) for field in DECLARED])
NULLS = dict.fromkeys(COLUMNS.names)
DEEPEST = 32

READ = {
    b'{"small": -2147483648, "long": 123456789012345678}': {"small": -(2**31), "long": 123456789012345678},
    b' \t\r\n{ "small" : 1 , "good" : true }\n': {"small": 1, "good": True},
    b'{"good": false, "small": 1, "text": null}': {"small": 1, "good": False},
    b'{"small": 1, "ratio": 0.1, "half": 0.1}': {"small": 1, "ratio": 0.1, "half": float(np.float32(0.1))},
    b'{"small": 1, "ratio": 0.30000000000000004}': {"small": 1, "ratio": 0.30000000000000004},
    b'{"small": 1, "ratio": 9007199254740993.0}': {"small": 1, "ratio": 9007199254740992.0},
    b'{"small": 1, "ratio": -2.5e-3, "half": 7}': {"small": 1, "ratio": -0.0025, "half": 7.0},
    b'{"small": 1, "text": "caf\xc3\xa9"}': {"small": 1, "text": "café"},
    rb'{"small": 1, "text": "\"\\\/\b\f\n\r\t"}': {"small": 1, "text": '"\\/\b\f\n\r\t'},
    rb'{"small": 1, "text": "\u007f\u0080\u07FF\u0800\uffff\ud800\udc00"}': {
        "small": 1,
        "text": "\x7f\x80\u07ff\u0800\uffff\U00010000",
    },
    b'{"small": 1, "day": "2012-02-29"}': {"small": 1, "day": date(2012, 2, 29)},
    b'{"small": 1, "day": "2012-03-01"}': {"small": 1, "day": date(2012, 3, 1)},
    b'{"small": 1, "day": "0001-01-01"}': {"small": 1, "day": date.min},
    b'{"small": 1, "day": "9999-12-31"}': {"small": 1, "day": date.max},
    b'{"small": 1, "at": "1969-12-31T23:59:59.9Z"}': {
        "small": 1,
        "at": datetime(1969, 12, 31, 23, 59, 59, 900000, UTC),
    },
    b'{"small": 1, "at": "2013-01-01 05:00:00.000001"}': {"small": 1, "at": datetime(2013, 1, 1, 5, 0, 0, 1, UTC)},
    b'{"x": [{"y": [1, "}"]}, {}], "small": 1, "": -0.5e99}': {"small": 1},
    b'{"x": ' + b"[" * DEEPEST + b"]" * DEEPEST + b', "small": 1}': {"small": 1},
}
LEFT = [
    *(b"", b"{", b"null", b"[1]", b"{}", b'{"small": null}', b'{"small": 1}{"small": 1}', b'{"small": 1} x'),
    *(
        b'{"small": 1,}',
        b'{"small" 1}',
        b"{small: 1}",
        b'{"small": 1 "long": 2}',
        b"{,}",
        b'{"small": }',
        b'{"x": [1,]}',
    ),
    *(b'{"small": 1.0}', b'{"small": "1"}', b'{"small": true}', b'{"small": 2147483648}', b'{"small": 01}'),
    *(b'{"small": 1, "small": 1}', b'{"small": 1, "text": null, "text": null}', rb'{"small": 1, "t\u0065xt": "x"}'),
    *(b'{"small": 1, "long": 1234567890123456789}', b'{"small": 1, "half": 1e39}', b'{"small": 1, "half": 1e-46}'),
    *(b'{"small": 1, "ratio": 1e100}', b'{"small": 1, "x": 1e100}', b'{"small": 1, "x": %b}' % (b"1" * 41)),
    *(b'{"small": 1, "ratio": NaN}', b'{"small": 1, "x": Infinity}', b'{"small": 1, "x": -}', b'{"small": 1, "x": 1.}'),
    *(b'{"small": 1, "good": 1}', b'{"small": 1, "text": 1}', b'{"small": 1, "text": {}}', b'{"small": 1, "x": nul'),
    *(b'{"small": 1, "text": "\xff"}', b'{"small": 1, "x": "\xed\xa0\x80"}', b'{"small": 1, "x": "\n"}'),
    *(rb'{"small": 1, "x": "\ud800"}', rb'{"small": 1, "x": "\udc00\udc00"}', rb'{"small": 1, "x": "\ud800\u0041"}'),
    *(rb'{"small": 1, "x": "\ud800\ue000"}', rb'{"small": 1, "x": "\u12g4"}', rb'{"small": 1, "x": "\x"}'),
    *(b'{"small": 1, "x": "\\', b'{"small": 1, "x": "\\u12', rb'{"small": 1, "x": "\ud800\u', b'{"small": 1, "x": "'),
    *(b'{"small": 1, "day": "2013-02-29"}', b'{"small": 1, "day": "0000-01-01"}', b'{"small": 1, "day": "2013-1-01"}'),
    *(b'{"small": 1, "at": "2013-01-01"}', b'{"small": 1, "at": "2013-01-01T05:00:00+02:00"}'),
    *(b'{"small": 1, "at": "2013-01-01T24:00:00"}', b'{"small": 1, "at": "2013-01-01T05:00:00.1234567"}'),
    b'{"small": 1, "x": ' + b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1) + b"}",
    b'{"small": 1, "x": ' + b'[{"":' * 1_000_000,
]

pytestmark = pytest.mark.skipif(kernel.native is None, reason=f"the record kernel is {kernel.description}")


def read(*values):
    return read_plain(pa.array(values, pa.binary()), DECLARED, COLUMNS)


@pytest.mark.parametrize(("value", "row"), READ.items())
def test_plain_values_are_read(value, row):
    plain, others = read(value)
    assert plain.columns.to_pylist() == [NULLS | row]
    assert others.tolist() == []


@pytest.mark.parametrize("value", LEFT, ids=lambda value: str(value[:60]))
def test_all_else_is_left(value):
    plain, others = read(b'{"small": 7}', value, b'{"small": 8}')
    assert others.tolist() == [1]
    assert plain.indices.tolist() == [0, 2]
    assert plain.columns.to_pylist() == [NULLS | {"small": 7}, NULLS | {"small": 8}]


def test_nothing_is_left_behind_by_a_value_that_is_left():
    half_read = b'{"small": 1, "long": 5, "good": true, "text": "abc", "day": 1}'
    plain, _ = read(half_read, b'{"small": 2}', b'{"small": 3, "text": "d"}', half_read)
    plain.columns.validate(full=True)
    assert plain.columns.to_pylist() == [NULLS | {"small": 2}, NULLS | {"small": 3, "text": "d"}]
    [numbers] = plain.columns.column("long").chunks
    assert bytes(numbers.buffers()[1]) == bytes(16)
    [texts] = plain.columns.column("text").chunks
    assert bytes(texts.buffers()[2]) == b"d"


def test_a_column_for_each_of_many_fields_in_any_order():
    names = [f"field_{number}" for number in range(300)]
    fields = [pa.field(name, pa.int32()) for name in names]
    value = b"{%b}" % b",".join(b'"%b": %d' % (name.encode(), row) for row, name in sorted(enumerate(names), key=str))
    plain, others = read_plain(pa.array([value], pa.binary()), fields, pa.schema(fields))
    assert others.tolist() == []
    assert plain.columns.to_pylist() == [{name: row for row, name in enumerate(names)}]


def test_a_schema_of_other_types_is_not_for_the_kernel(monkeypatch):
    assert is_read_by_kernel(DECLARED)
    assert not is_read_by_kernel([*DECLARED, pa.field("price", pa.decimal128(10, 2))])
    monkeypatch.setattr(kernel, "native", None)
    assert not is_read_by_kernel(DECLARED)


@pytest.mark.parametrize("bounds", [[], [-1, 1], [0, 3], [2, 1], [0, 2, 1, 2]])
def test_bounds_outside_of_the_data_are_refused(bounds):
    with pytest.raises(ValueError, match="bounds"):
        kernel.native.read_json(np.array(bounds, np.int32).data, b"{}", ())


@pytest.mark.parametrize("fields", [(b"small",), ((b"small", "?", True),), ((b"small", "i"),)])
def test_fields_that_are_none_are_refused(fields):
    with pytest.raises((TypeError, ValueError)):
        kernel.native.read_json(np.zeros(1, np.int32).data, b"", fields)
