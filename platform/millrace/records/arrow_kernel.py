"""Decodes batches and message sets to Arrow columns by the compiled kernel, whose buffers the columns use.

It may be used only where `millrace.kernel.native` is not None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millrace.kernel import native
from millrace.records.arrow_columns import TIMESTAMP_TYPE, Column, HeaderParts, Times, record_batch
from millrace.records.arrow_messages import MessageBody
from millrace.records.bodies import Body
from millrace.records.formats import first_offset
from millrace.records.record import kernel_batch

if TYPE_CHECKING:
    from millrace.kernel._native import Binary, Columns, Headers, Memory, MessageSet

NO_WRAPPER = -1


def decode_block(bodies: Sequence[Body], from_offset: int, until_offset: int) -> pa.RecordBatch:
    """Returns the records with from_offset <= offset < until_offset of at most 2 GiB; raises CorruptRecordError."""
    return _record_batch(
        native.decode_batches([kernel_batch(body.header, body.data) for body in bodies], from_offset, until_offset)
    )


def decode_message_block(bodies: Sequence[MessageBody], from_offset: int, until_offset: int) -> pa.RecordBatch:
    """Returns the records with from_offset <= offset < until_offset of at most 2 GiB; raises RecordError for damage."""
    message_sets = [_message_set(body) for body in bodies]
    return _record_batch(native.decode_message_sets(message_sets, from_offset, until_offset))


def _message_set(body: MessageBody) -> MessageSet:
    wrapper = body.wrapper
    if wrapper is None:
        return body.data, NO_WRAPPER, first_offset(body.data), 0, False
    return body.data, wrapper.magic, wrapper.offset, wrapper.timestamp_ms, wrapper.is_log_append_time


def _record_batch(columns: Columns) -> pa.RecordBatch:
    rows, offsets, (nulls, validity, timestamps), keys, values, headers = columns
    return record_batch(
        pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(offsets)], 0),
        Times(
            pa.Array.from_buffers(TIMESTAMP_TYPE, rows, [_optional(validity), pa.py_buffer(timestamps)], nulls),
            np.frombuffer(memoryview(timestamps), np.int64, rows),
        ),
        _binary(rows, keys),
        _binary(rows, values),
        _headers(rows, headers),
    )


def _binary(rows: int, column: Binary) -> Column:
    nulls, validity, offsets, data = column
    buffers = [_optional(validity), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, nulls)


def _headers(rows: int, headers: Headers) -> HeaderParts:
    count, starts, keys, values = headers
    bounds = pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(starts)], 0)
    return HeaderParts(bounds, _binary(count, keys), _binary(count, values))


def _optional(memory: Memory | None) -> pa.Buffer | None:
    return None if memory is None else pa.py_buffer(memory)
