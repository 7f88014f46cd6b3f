"""Decodes what a log or a fetch holds to Arrow columns, for bulk readers (warehouse loads, Spark).

    bytes ──runs of one format──► batches ──CRC, decompress──► bodies ──at most BLOCK_BYTES──► block ──► RecordBatch

A batch that holds much is decompressed by and by (`records.bodies`), and a block is let go once it is decoded.

A block is decoded by the compiled kernel, whose buffers the columns use, or where there is none by numpy
(`records.arrow_numpy`). Both give the same columns and refuse the same bytes with the same class of error; only the
messages differ. A block is at most `BLOCK_BYTES` of record bytes, or one record, so that columns stay below Arrow's
2 GiB.

The result equals `records.record.decode_records` and `records.message_set.decode_message_set`, except that a timestamp
of -1 (none), or outside of the years 1 to 9999, is null; `records.arrow_columns` says where such a time is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from millrace.kernel import native
from millrace.records import arrow_numpy
from millrace.records.arrow_columns import (
    TIMESTAMP_TYPE,
    Column,
    HeaderParts,
    Times,
    record_batch,
)
from millrace.records.batch import MAGIC_V2, Buffer, check_crc, walk
from millrace.records.bodies import BODY_BYTES, Body, bodies_of
from millrace.records.control import AbortedTransactions
from millrace.records.intervals import Interval
from millrace.records.message_set import MessageBody, first_offset, message_bodies, runs
from millrace.records.record import kernel_batch

if TYPE_CHECKING:
    from millrace.kernel._native import Binary, Columns, Headers, Memory, MessageSet

BLOCK_BYTES = 64 << 20
MAX_OFFSET = 2**63 - 1
NO_WRAPPER = -1


def decode_block(bodies: Sequence[Body], from_offset: int, until_offset: int) -> pa.RecordBatch:
    """Returns those records of the bodies, 2 GiB at most, whose offsets are in the range; raises CorruptRecordError."""
    return _record_batch(
        native.decode_batches([kernel_batch(body.header, body.data) for body in bodies], from_offset, until_offset)
    )


def decode_message_block(bodies: Sequence[MessageBody], from_offset: int, until_offset: int) -> pa.RecordBatch:
    """Returns those records of the messages, 2 GiB at most, whose offsets are in the range; raises RecordError."""
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


class BlockDecoders(NamedTuple):
    """The functions that decode bodies of v2 batches, and v0 and v1 messages, whose offsets are in a range."""

    batches: Callable[[list[Body], int, int], pa.RecordBatch]
    messages: Callable[[list[MessageBody], int, int], pa.RecordBatch]


COMPILED = BlockDecoders(decode_block, decode_message_block)
PLAIN = BlockDecoders(arrow_numpy.decode_block, arrow_numpy.decode_message_block)
BLOCK_DECODERS = PLAIN if native is None else COMPILED

_Body = TypeVar("_Body", Body, MessageBody)


@dataclass(slots=True)
class PassedOver:
    """The offsets of batches whose records a reader does not get: control batches, and aborted transactions."""

    control: list[Interval] = field(default_factory=list)
    aborted: list[Interval] = field(default_factory=list)


def decode_to_arrow(
    buffer: Buffer,
    *,
    from_offset: int = 0,
    until_offset: int = MAX_OFFSET,
    aborted: Iterable[tuple[int, int]] = (),
    passed_over: PassedOver | None = None,
    decoders: BlockDecoders = BLOCK_DECODERS,
) -> Iterator[pa.RecordBatch]:
    """Returns the records with from_offset <= offset < until_offset that `buffer` holds, as RECORD_SCHEMA.

    If some records of a block don't fit into RECORD_SCHEMA exactly, its RecordBatch has the further columns
    UNSHOWN_FIELDS. All CRCs are checked. Control batches, and an incomplete batch at the end, are passed over.

    Args:
        buffer: The records of one fetch: batches, or message sets of v0 and v1, or these followed by batches.
        from_offset: First offset that is wanted.
        until_offset: The offset after the last that is wanted.
        aborted: (producer id, first offset) of the aborted transactions that the answer to a fetch of committed
            records names; their batches are passed over (`records.control`).
        passed_over: Gets the offsets of control batches and aborted batches.
        decoders: The functions that decode; others than the default are for tests and benchmarks.

    Raises:
        RecordError: The bytes are not valid batches or messages.
    """
    others = PassedOver() if passed_over is None else passed_over
    transactions = AbortedTransactions(aborted)
    for magic, run in runs(buffer):
        if magic == MAGIC_V2:
            for batches in _blocks(_bodies(run, from_offset, until_offset, transactions, others)):
                yield _decoded(decoders.batches, batches, from_offset, until_offset)
        else:
            for messages in _blocks(message_bodies(run)):
                yield _decoded(decoders.messages, messages, from_offset, until_offset)


def _decoded(
    decode: Callable[[list[_Body], int, int], pa.RecordBatch], block: list[_Body], from_offset: int, until_offset: int
) -> pa.RecordBatch:
    records = decode(block, from_offset, until_offset)
    block.clear()  # its bytes are not kept while the records are used
    return records


def _blocks(bodies: Iterable[_Body]) -> Iterator[list[_Body]]:
    block: list[_Body] = []
    size_bytes = 0
    for body in bodies:
        if block and size_bytes + len(body.data) > BLOCK_BYTES:
            yield block
            block, size_bytes = [], 0
        block.append(body)
        size_bytes += len(body.data)
        del body  # `_decoded` lets it go
    if block:
        yield block


def _bodies(
    run: memoryview, from_offset: int, until_offset: int, transactions: AbortedTransactions, others: PassedOver
) -> Iterator[Body]:
    for position, header in walk(run):
        batch = run[position : position + header.size_bytes]
        has_aborted = transactions.has_aborted(header, batch)
        first, end = max(header.base_offset, from_offset), min(header.next_offset, until_offset)
        if first >= end:
            continue
        check_crc(run, position, header)
        if header.is_control:
            others.control.append(Interval(first, end))
        elif has_aborted:
            others.aborted.append(Interval(first, end))
        else:
            yield from bodies_of(header, batch, BODY_BYTES)
