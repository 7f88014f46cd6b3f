"""Arrow's arrays as decoders use them: the buffers of binary columns, slices of them, lists and maps of parts.

    offsets   n + 1 numbers of 32 bits; value i is data[offsets[i] : offsets[i + 1]]
    data      the bytes of all values, one after the other

Arrow's stubs leave out what some of its calls take: these calls stand here, each behind a function that says it all.

The raw envelope has the columns of every record as it came (topic, partition, offset, time, key, value, headers).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millrace.records.arrow_columns import RECORD_FIELDS

Column: TypeAlias = "pa.Array[pa.Scalar[pa.DataType]]"
Columns: TypeAlias = "pa.ChunkedArray[pa.Scalar[pa.DataType]]"
Booleans: TypeAlias = "pa.BooleanArray | pa.ChunkedArray[pa.BooleanScalar]"
Lists: TypeAlias = "pa.ListArray[pa.Scalar[pa.DataType]]"
Field: TypeAlias = "pa.Field[pa.DataType]"
MapType: TypeAlias = "pa.MapType[pa.DataType, pa.DataType, Literal[False]]"
Flags: TypeAlias = npt.NDArray[np.bool_]
Indices: TypeAlias = npt.NDArray[np.int64]
Octets: TypeAlias = npt.NDArray[np.uint8]
Offsets: TypeAlias = npt.NDArray[np.int32]


def offsets_of(values: pa.BinaryArray | pa.StringArray) -> Offsets:
    """Returns an array's own offsets: where each value begins in its data buffer, and where the last one ends."""
    offsets: Offsets = np.frombuffer(memory_of(values.buffers()[1]), np.int32)
    return offsets[values.offset : values.offset + len(values) + 1]


def data_of(values: pa.BinaryArray | pa.StringArray) -> pa.Buffer:
    """Returns the buffer of an array's bytes; a single zero where it is empty, so that it can be indexed."""
    data = values.buffers()[2]
    return data if data is not None and data.size else pa.py_buffer(b"\0")


def octets_of(data: pa.Buffer) -> Octets:
    """Returns the bytes of a buffer as a NumPy array, without a copy."""
    return np.frombuffer(memory_of(data), np.uint8)


def memory_of(buffer: pa.Buffer | None) -> memoryview:
    """Returns a memoryview of a buffer, without a copy."""
    return memoryview(buffer)  # type: ignore[arg-type]  # a Buffer has Python's buffer protocol, its stub has not


def slices(data: pa.Buffer, begins: npt.NDArray[np.integer], ends: npt.NDArray[np.integer]) -> pa.BinaryArray:
    """Returns a binary column of the values data[begin:end], which ascend and don't overlap; the bytes are not copied.

    begin 0, end 0, begin 1, … are the offsets of a column over the same data; every second value of it is a slice.
    """
    count = len(begins)
    if count == 0:
        return pa.array([], pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2], bounds[1::2] = begins, ends
    over = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds.data), data])
    return binaries(over.take(indices_array(np.arange(0, 2 * count, 2))))


def binaries(column: Column) -> pa.BinaryArray:
    """Returns the column, typed as a column of bytes; raises TypeError for any other column."""
    if not isinstance(column, pa.BinaryArray):
        raise TypeError(f"a column of {column.type}, not of bytes")
    return column


def values_of(binary: pa.BinaryArray | pa.ChunkedArray[pa.BinaryScalar]) -> list[bytes]:
    """Returns the values of a binary column without nulls as a list of bytes."""
    return cast("list[bytes]", binary.to_pylist())


def texts_of(texts: pa.StringArray | pa.ChunkedArray[pa.StringScalar]) -> list[str]:
    """Returns the values of a column of texts without nulls as a list of str."""
    return cast("list[str]", texts.to_pylist())


def indices_array(indices: Indices) -> pa.Int64Array:
    """Returns indexes of rows as an Arrow array, which `take` accepts."""
    return pa.array(indices, pa.int64())


def combined(column: Column | Columns) -> Column:
    """Returns a column as one array, where it may be in several chunks."""
    if isinstance(column, pa.Array):
        return column
    return cast("Column", column.chunk(0)) if column.num_chunks == 1 else column.combine_chunks()


def flags_of(column: pa.BooleanArray) -> Flags:
    """Returns a column of booleans without nulls as a NumPy array."""
    return column.to_numpy(zero_copy_only=False)


def filled(column: Column | Columns, value: str | int) -> Column | Columns:
    """Returns a column of texts or numbers with a value for each null."""
    return column.fill_null(value)  # type: ignore[arg-type,misc]


def numbered(mask: Flags, number: int, others: Columns) -> Columns:
    """Returns a column of 64-bit integers: `number` where the mask is true, and the values of `others` elsewhere."""
    return cast("Columns", pc.if_else(pa.array(mask), pa.scalar(number, pa.int64()), others))


def nulls_of(data_type: pa.DataType, count: int) -> Column:
    """Returns a column of `count` nulls."""
    column: Column = pa.nulls(count, data_type)  # type: ignore[call-overload]
    return column


def nulls(schema: pa.Schema, count: int) -> pa.Table:
    """Returns a table with the columns of `schema` and `count` rows of nulls."""
    return pa.Table.from_arrays([nulls_of(field.type, count) for field in schema], schema=schema)


def list_column(
    data_type: pa.DataType, offsets: Column, items: Column, *, absent: pa.BooleanArray | None = None
) -> Column:
    """Returns lists: list i has the items from offsets[i] up to offsets[i + 1], and is null where `absent` is true."""
    lists: Column = pa.ListArray.from_arrays(offsets, items, type=data_type, mask=absent)  # type: ignore[call-overload]
    return lists


def map_column(
    data_type: pa.DataType, offsets: Column, keys: Column, items: Column, *, absent: pa.BooleanArray | None = None
) -> Column:
    """Returns maps: map i has the entries from offsets[i] up to offsets[i + 1], and is null where `absent` is true."""
    maps: Column = pa.MapArray.from_arrays(offsets, keys, items, type=data_type, mask=absent)  # type: ignore[call-overload]
    return maps


def offsets_array(lengths: npt.NDArray[np.integer] | Sequence[int]) -> pa.Int32Array:
    """Returns the offsets of lists that have these lengths."""
    return pa.array(np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))]), pa.int32())


def python_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, object]]:
    """Returns the rows of a table or a batch as Python's values, under their columns' names.

    A producer may give a record any timestamp, and Arrow and Delta hold years up to 294,000: a time that lies beyond
    Python's calendar (years 1 to 9999) is a text.
    """
    try:
        found: list[dict[str, object]] = rows.to_pylist()
    except (OverflowError, ValueError):
        columns = [[_value(one) for one in column] for column in rows.columns]
        found = [dict(zip(rows.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]
    return found


def _value(scalar: pa.Scalar[pa.DataType]) -> object:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if isinstance(scalar, pa.StructScalar):
            return {name: _value(scalar[name]) for name in scalar}
        if isinstance(scalar, pa.ListScalar):  # a map is one, too
            return [_value(one) for one in scalar.values or []]
        return scalar.cast(pa.string()).as_py()


ENVELOPE_FIELDS: list[Field] = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    *RECORD_FIELDS,
]
ENVELOPE_SCHEMA = pa.schema(ENVELOPE_FIELDS)
ENVELOPE_COLUMNS = tuple(ENVELOPE_SCHEMA.names)
