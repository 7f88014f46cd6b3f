"""Confluent's wire format: which registered schema a value was written with.

    │ 0 │ schema id, 4 bytes, big-endian │ payload │                          Avro, JSON Schema
    │ 0 │ schema id, 4 bytes, big-endian │ message indexes │ payload │        Protobuf

Message indexes lead to the message's type: its place in the file, then inside that type, and so on; a zig-zag count
and so many zig-zag numbers, or the single byte 0 for the first type. Source: Confluent, "Wire Format".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from millrace.errors import RecordError
from millrace.records.varint import decode_varint
from millrace_pipelines.warehouse.payload.outcome import Flags, Places

FRAME_BYTES = 5
MAGIC = 0
MAX_MESSAGE_DEPTH = 32


class Frames(NamedTuple):
    """The frames of values: whether each has one, and its schema's id, 0 where it has none."""

    framed: Flags
    schema_ids: Places


def read_frames(values: Any) -> Frames:
    """The frames of a binary array without nulls."""
    bounds = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    buffer = values.buffers()[2]
    data = np.frombuffer(buffer, np.uint8) if buffer is not None and buffer.size else np.zeros(1, np.uint8)
    begins = bounds[:-1].astype(np.int64)
    octets = data[np.minimum(begins[:, None] + np.arange(FRAME_BYTES), data.size - 1)]
    framed = (np.diff(bounds) >= FRAME_BYTES) & (octets[:, 0] == MAGIC)
    ids = np.ascontiguousarray(octets[:, 1:]).view(">u4")[:, 0].astype(np.int64)
    return Frames(framed, np.where(framed, ids, 0))


def unframed(values: Any) -> Any:
    """The payloads of framed values, over the same bytes."""
    bounds = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    inside = np.empty(2 * len(values), np.int32)
    inside[0::2], inside[1::2] = bounds[:-1] + FRAME_BYTES, bounds[1:]
    over: Any = pa.Array.from_buffers(
        pa.binary(), max(2 * len(values) - 1, 0), [None, pa.py_buffer(inside.data), values.buffers()[2]]
    )
    return over.take(pa.array(np.arange(0, 2 * len(values), 2)))


def split_message_indexes(payload: bytes) -> tuple[tuple[int, ...], bytes] | None:
    """The path to a message's type, and the message; None where the indexes are not valid."""
    try:
        count, position = decode_varint(payload, 0)
        if not 0 <= count <= MAX_MESSAGE_DEPTH:
            return None
        path: list[int] = []
        for _ in range(count):
            index, position = decode_varint(payload, position)
            path.append(index)
    except (RecordError, IndexError):
        return None
    return tuple(path) or (0,), payload[position:]
