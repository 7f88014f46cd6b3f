"""Plain JSON objects, by the record kernel, at several times the rate of Arrow's reader.

An object is plain if its declared fields are of simple types and need no second look: its keys have no escapes, its
numbers few digits, its times one form. Nothing is refused here: all other values are left to `json.decoder`, which
decides about every value, and would have given a plain one the same row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millrace import kernel
from millrace.records.arrow import TIMESTAMP_TYPE
from millrace_pipelines.arrow import Column, Field, Places, data_of, memory_of, offsets_of
from millrace_pipelines.warehouse.payload.outcome import Part

if TYPE_CHECKING:
    from millrace.kernel._native import JsonColumn

KERNEL_TYPES: Mapping[pa.DataType, str] = {
    pa.int32(): "i",
    pa.int64(): "l",
    pa.float32(): "f",
    pa.float64(): "d",
    pa.bool_(): "b",
    pa.string(): "s",
    pa.date32(): "D",
    TIMESTAMP_TYPE: "t",
}


def is_read_by_kernel(fields: Sequence[Field]) -> bool:
    """Returns whether there is a kernel, and it knows the types of all fields."""
    return kernel.native is not None and all(field.type in KERNEL_TYPES for field in fields)


def read_plain(values: pa.BinaryArray, fields: Sequence[Field], columns: pa.Schema) -> tuple[Part, Places]:
    """Reads the plain values of a binary array without nulls; returns their rows, and the indexes of all others."""
    bounds = offsets_of(values)
    declared = tuple((field.name.encode(), KERNEL_TYPES[field.type], not field.nullable) for field in fields)
    rows, left, read = kernel.native.read_json(bounds.data, memory_of(data_of(values)), declared)
    arrays = [_array(column.type, rows, buffers) for column, buffers in zip(columns, read, strict=True)]
    others: Places = np.frombuffer(memoryview(left), np.int64)
    places = np.arange(len(values)) if rows == len(values) else np.delete(np.arange(len(values)), others)
    return Part(places, pa.Table.from_arrays(arrays, schema=columns)), others


def _array(data_type: pa.DataType, rows: int, column: JsonColumn) -> Column:
    nulls, *memories = column
    buffers = [pa.py_buffer(memory) if memory is not None else None for memory in memories]
    if not pa.types.is_string(data_type):
        buffers = [buffers[0], buffers[2]]
    return pa.Array.from_buffers(data_type, rows, buffers, nulls)
