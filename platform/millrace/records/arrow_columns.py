"""The Arrow columns of decoded records, which every reader shows alike, and beside them what these can't show.

Most readers have no time outside of the years 1 to 9999, and a text is UTF-8 to all; a producer may write any number
and any bytes. So RECORD_SCHEMA has null for such a time, and header keys as `records.record.readable_key` gives them.
A block with such records has two columns more, UNSHOWN_FIELDS: the time in milliseconds, and the keys of all headers as
they are; each is null for a record of which RECORD_SCHEMA shows it.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace.records.batch import NO_TIMESTAMP
from millrace.records.record import readable_key
from millrace.times import MAX_DATETIME_MS, MIN_DATETIME_MS

Column: TypeAlias = "pa.Array[pa.Scalar[pa.DataType]]"

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")
HEADERS_TYPE = pa.list_(pa.field("element", HEADER_TYPE))
RECORD_FIELDS: list[pa.Field[pa.DataType]] = [
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP_TYPE),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", HEADERS_TYPE),
]
RECORD_SCHEMA = pa.schema(RECORD_FIELDS)
UNSHOWN_FIELDS: list[pa.Field[pa.DataType]] = [
    pa.field("timestamp_ms", pa.int64()),
    pa.field("header_keys", pa.list_(pa.field("element", pa.binary()))),
]
"""What the columns of RECORD_SCHEMA can't show of a record."""


Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

WIDE_SCHEMA = pa.schema([*RECORD_SCHEMA, *UNSHOWN_FIELDS])
TIME_TYPE, KEYS_TYPE = (field.type for field in UNSHOWN_FIELDS)


class Times(NamedTuple):
    """The timestamps of records as a column, and in milliseconds, also of those for which the column has null."""

    column: Column
    milliseconds: Integers


class HeaderParts(NamedTuple):
    """The keys and values of all records' headers; record n has those from `starts[n]` to before `starts[n + 1]`."""

    starts: Column
    keys: Column
    values: Column


def has_no_time(milliseconds: Integers) -> Flags:
    """Returns flags of the timestamps that the column can't show: -1 (no time), and those outside of years 1 to 9999.

    Other negative timestamps are times before 1970.
    """
    beyond = (milliseconds < MIN_DATETIME_MS) | (milliseconds > MAX_DATETIME_MS)
    none: Flags = beyond | (milliseconds == NO_TIMESTAMP)
    return none


def times_of(milliseconds: Integers, none: Flags) -> Times:
    """Returns the timestamps as a column, which has null where `none` is set, and in milliseconds."""
    microseconds = np.where(none, 0, milliseconds) * 1000
    return Times(pa.array(microseconds.view("datetime64[us]"), TIMESTAMP_TYPE, mask=none), milliseconds)


def no_headers(rows: int) -> HeaderParts:
    """Returns the `HeaderParts` of as many records as `rows`, none of which has headers."""
    return HeaderParts(pa.array(np.zeros(rows + 1, np.int32)), pa.array([], pa.binary()), pa.array([], pa.binary()))


def record_batch(offsets: Column, times: Times, keys: Column, values: Column, headers: HeaderParts) -> pa.RecordBatch:
    """Returns the records as RECORD_SCHEMA; with the columns UNSHOWN_FIELDS if it can't show all values exactly."""
    texts = _texts(headers.keys)
    structs = pa.StructArray.from_arrays([texts, headers.values], fields=list(HEADER_TYPE))
    shown = [offsets, times.column, keys, values, _lists(HEADERS_TYPE, headers.starts, structs)]
    if times.column.null_count == 0 and _are_shown(headers.keys, texts):
        return pa.RecordBatch.from_arrays(shown, schema=RECORD_SCHEMA)
    unshown = [_unshown_times(times), _unshown_keys(headers, texts)]
    return shown_only(pa.RecordBatch.from_arrays([*shown, *unshown], schema=WIDE_SCHEMA))


def shown_only(records: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the records without the columns UNSHOWN_FIELDS if all of these are null."""
    unshown = records.columns[len(RECORD_SCHEMA) :]
    if any(column.null_count < len(column) for column in unshown):
        return records
    return records.select(RECORD_SCHEMA.names)


def _texts(keys: Column) -> Column:
    """Returns header keys as text, by `readable_key` where they are null or not UTF-8."""
    if not keys.null_count:
        try:
            return keys.cast(pa.string())
        except pa.ArrowInvalid:
            pass
    return pa.array([readable_key(key.as_py()) for key in keys], pa.string())


def _lists(data_type: pa.DataType, starts: Column, items: Column) -> Column:
    return pa.Array.from_buffers(data_type, len(starts) - 1, [None, starts.buffers()[1]], 0, children=[items])


def _nulls(data_type: pa.DataType, rows: int) -> Column:
    column: Column = pa.nulls(rows, data_type)  # type: ignore[call-overload]
    return column


def _unshown_times(times: Times) -> Column:
    shown = times.column.is_valid().to_numpy(zero_copy_only=False) | (times.milliseconds == NO_TIMESTAMP)
    return pa.array(times.milliseconds, TIME_TYPE, mask=shown)


def _are_shown(keys: Column, texts: Column) -> bool:
    return keys.null_count == 0 and keys.equals(texts.cast(pa.binary()))


def _unshown_keys(headers: HeaderParts, texts: Column) -> Column:
    """Returns all header keys, as bytes, of each record with a key that is null or not UTF-8; else null."""
    rows = len(headers.starts) - 1
    if _are_shown(headers.keys, texts):
        return _nulls(KEYS_TYPE, rows)
    own, shown = (_lists(KEYS_TYPE, headers.starts, keys) for keys in (headers.keys, texts.cast(pa.binary())))
    return pa.array([None if one == other else one.as_py() for one, other in zip(own, shown, strict=True)], KEYS_TYPE)
