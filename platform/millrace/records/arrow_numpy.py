"""Decodes batches to Arrow columns by numpy, where there is no compiled kernel, and message sets one by one.

A record is found by its length alone, so one short Python loop walks the records' lengths; every field
after that is decoded for all records at once:

    begins ──varints──► timestamps[n], offsets[n], key spans[n], value spans[n], header counts[n]
    spans ──take──► Arrow binary columns

The spans of one field never overlap and only grow, so `begin0, end0, begin1, end1, …` are the offsets of an
Arrow array that lies over the block itself: its even elements are the field's values, its odd ones what is
between. Arrow's `take` of the even ones is the only copy made of a key or a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace.errors import CorruptRecordError
from millrace.records.arrow_columns import (
    Column,
    HeaderParts,
    Times,
    has_no_time,
    no_headers,
    record_batch,
    shown_only,
    times_of,
)
from millrace.records.batch import BatchHeader
from millrace.records.bodies import Body
from millrace.records.message_set import MessageBody, inner_records, walk_messages
from millrace.records.record import RawHeader, Record, decode_headers
from millrace.records.varint import decode_varint

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Octets = npt.NDArray[np.uint8]


class _Spans(NamedTuple):
    """Where one field of every record begins and ends in `block`; `nulls` is set for a field whose length is -1."""

    begins: Integers
    ends: Integers
    nulls: Flags


def decode_block(bodies: Sequence[Body], from_offset: int, until_offset: int) -> pa.RecordBatch:
    """Returns those records of the bodies, 2 GiB at most, whose offsets are in the range; raises CorruptRecordError."""
    block = b"".join(body.data for body in bodies)
    begins, ends = _record_bounds(block, bodies)
    data = np.frombuffer(block, np.uint8)
    lengths, at = _varints(data, begins)
    if bool((at + lengths != ends).any()):
        raise CorruptRecordError("a record's length is negative")
    timestamp_deltas, at = _varints(data, at + 1)
    offset_deltas, at = _varints(data, at)
    keys, at = _spans(data, at)
    values, at = _spans(data, at)
    header_counts, after_count = _varints(data, at)
    counts = [body.header.record_count for body in bodies]
    offsets = _offsets(bodies, counts, offset_deltas)
    times = _times(bodies, counts, timestamp_deltas)
    headers = _headers(block, at, after_count, ends, header_counts)
    chosen = (offsets >= from_offset) & (offsets < until_offset)
    columns = _gather(block, keys), _gather(block, values), headers
    records = record_batch(pa.array(offsets), times, *columns)
    return records if bool(chosen.all()) else shown_only(records.filter(pa.array(chosen)))


def _record_bounds(block: bytes, bodies: Sequence[Body]) -> tuple[Integers, Integers]:
    """Returns, for each record of the block, the positions at which it begins and ends."""
    begins: list[Integers] = []
    ends: list[Integers] = []
    start = 0
    for header, body in bodies:
        bounds = np.array(_scan(block, start, start + len(body), header), dtype=np.int64)
        begins.append(bounds[:-1])
        ends.append(bounds[1:])
        start += len(body)
    return np.concatenate(begins), np.concatenate(ends)


def _scan(block: bytes, position: int, end: int, header: BatchHeader) -> list[int]:
    """Returns where each record of a batch begins, and the batch's end; the caller checks for negative lengths."""
    bounds = [position]
    try:
        while position < end:
            byte = block[position]
            if byte < 0x80:
                position += (byte >> 1) + 1
            elif (second := block[position + 1]) < 0x80:
                position += ((byte & 0x7F | second << 7) >> 1) + 2
            else:
                length, position = decode_varint(block, position)
                position += max(length, 0)
            bounds.append(position)
    except IndexError:
        raise CorruptRecordError(f"batch at offset {header.base_offset}: a record's length is cut short") from None
    if position != end or len(bounds) != header.record_count + 1:
        raise CorruptRecordError(
            f"batch at offset {header.base_offset}: {len(bounds) - 1} records end {position - end} bytes "
            f"after the batch's, the header says {header.record_count} records"
        )
    return bounds


def _varints(data: Octets, at: Integers) -> tuple[Integers, Integers]:
    """Returns the zig-zag integers at these positions, and the positions after them.

    At a position beyond the data the last byte is read; the caller notices that when it checks where records end.
    """
    last = max(data.size - 1, 0)
    octet = data[np.minimum(at, last)]
    zigzag = (octet & 0x7F).astype(np.uint64)
    after = at + 1
    more = np.flatnonzero(octet >= 0x80)
    shift = 7
    while more.size:
        octet = data[np.minimum(after[more], last)]
        if shift > 63 or (shift == 63 and bool((octet > 1).any())):
            raise CorruptRecordError("a variable-length integer is longer than 64 bits")
        zigzag[more] |= (octet & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[more] += 1
        more = more[octet >= 0x80]
        shift += 7
    return (zigzag >> np.uint64(1)).view(np.int64) ^ -(zigzag & np.uint64(1)).view(np.int64), after


def _spans(data: Octets, at: Integers) -> tuple[_Spans, Integers]:
    """Returns where the length-prefixed fields at these positions lie, and the positions after them."""
    lengths, begins = _varints(data, at)
    nulls = lengths == -1
    if bool(((lengths < -1) | (lengths > data.size)).any()):
        raise CorruptRecordError("a field's length can't be")
    ends = begins + np.maximum(lengths, 0)
    return _Spans(begins, ends, nulls), ends


def _offsets(bodies: Sequence[Body], counts: list[int], deltas: Integers) -> Integers:
    """Returns the records' offsets; raises CorruptRecordError unless they rise within their batch and have 64 bits."""
    last_deltas = np.repeat([body.header.last_offset_delta for body in bodies], counts)
    bases = np.repeat([body.header.base_offset for body in bodies], counts)
    if bool(((deltas < 0) | (deltas > last_deltas)).any()):
        raise CorruptRecordError("an offset is outside of its batch")
    if bool(_overflows(bases, deltas).any()):
        raise CorruptRecordError("an offset is beyond 64 bits")
    begins = np.cumsum(counts)[:-1]
    rises = np.diff(deltas) > 0
    rises[begins[(begins > 0) & (begins < deltas.size)] - 1] = True  # each batch counts by itself
    if not bool(rises.all()):
        raise CorruptRecordError("an offset does not follow the one before")
    return bases + deltas


def _overflows(left: Integers, right: Integers) -> Flags:
    total = left + right
    return ((left ^ total) & (right ^ total)) < 0


def _times(bodies: Sequence[Body], counts: list[int], deltas: Integers) -> Times:
    """Returns the records' timestamps; one that exceeds 64 bits is null in the column, and wraps in milliseconds."""
    headers = [body.header for body in bodies]
    bases = np.repeat([h.max_timestamp if h.is_log_append_time else h.base_timestamp for h in headers], counts)
    deltas = np.where(np.repeat([h.is_log_append_time for h in headers], counts), 0, deltas)
    milliseconds = bases + deltas
    none = has_no_time(milliseconds) | _overflows(bases, deltas)
    return times_of(milliseconds, none)


def _gather(block: bytes, spans: _Spans) -> Column:
    """Returns a binary column of the bytes at these spans (beginnings and ends) in `block`."""
    count = spans.begins.size
    if count == 0:
        return pa.array([], pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = spans.begins
    bounds[1::2] = spans.ends
    over_block = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds.data), pa.py_buffer(block)]
    )
    return over_block.take(pa.array(np.arange(0, 2 * count, 2), pa.int64(), mask=spans.nulls))


def _headers(block: bytes, at: Integers, after_count: Integers, ends: Integers, counts: Integers) -> HeaderParts:
    """Returns all records' headers; raises CorruptRecordError unless every record ends where its length says."""
    bare = counts == 0
    if bool((bare & (after_count != ends)).any()):
        raise CorruptRecordError("a record's fields end elsewhere than its length says")
    flat: list[RawHeader] = []
    sizes = np.zeros(counts.size + 1, np.int32)
    for index in np.flatnonzero(~bare):
        headers, position = decode_headers(block, int(at[index]))
        if position != ends[index]:
            raise CorruptRecordError(f"a record ends at {position}, its length says {ends[index]}")
        flat.extend(headers)
        sizes[index + 1] = len(headers)
    keys = pa.array([key for key, _ in flat], pa.binary())
    values = pa.array([value for _, value in flat], pa.binary())
    return HeaderParts(pa.array(np.cumsum(sizes, dtype=np.int32), pa.int32()), keys, values)


def decode_message_block(bodies: Sequence[MessageBody], from_offset: int, until_offset: int) -> pa.RecordBatch:
    """Returns those records of the messages, 2 GiB at most, whose offsets are in the range; raises RecordError."""
    records = [record for body in bodies for record in _records_of(body) if from_offset <= record.offset < until_offset]
    milliseconds = np.array([record.timestamp_ms for record in records], np.int64)
    return record_batch(
        pa.array([record.offset for record in records], pa.int64()),
        times_of(milliseconds, has_no_time(milliseconds)),
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        no_headers(len(records)),
    )


def _records_of(body: MessageBody) -> list[Record]:
    if body.wrapper is not None:
        return inner_records(body.wrapper, body.data)
    messages = (message for _, message in walk_messages(body.data))
    return [Record(message.offset, message.timestamp_ms, message.key, message.value) for message in messages]
