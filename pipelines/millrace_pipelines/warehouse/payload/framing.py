"""Confluent's wire format, which names the registered schema that a value was written with.

    │ 0 │ schema id, 4 bytes, big-endian │ payload │                          Avro, JSON Schema
    │ 0 │ schema id, 4 bytes, big-endian │ message indexes │ payload │        Protobuf

Message indexes lead to the message's type: its place in the file, then inside that type, and so on; a zig-zag count
and as many zig-zag numbers, or the single byte 0 for the first type. Source: Confluent, "Wire Format".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from millrace.errors import RecordError
from millrace.records.varint import decode_varint
from millrace_pipelines.arrow import Flags, Places, data_of, octets_of, offsets_of, slices

FRAME_BYTES = 5
MAGIC = 0
MAX_MESSAGE_DEPTH = 32


class Frames(NamedTuple):
    """The frames of values: whether each has one, and its schema's id, 0 where it has none."""

    framed: Flags
    schema_ids: Places


def read_frames(values: pa.BinaryArray) -> Frames:
    """Reads the frames of a binary array without nulls."""
    bounds, data = offsets_of(values), octets_of(data_of(values))
    begins = bounds[:-1].astype(np.int64)
    octets = data[np.minimum(begins[:, None] + np.arange(FRAME_BYTES), data.size - 1)]
    framed = (np.diff(bounds) >= FRAME_BYTES) & (octets[:, 0] == MAGIC)
    ids = np.ascontiguousarray(octets[:, 1:]).view(">u4")[:, 0].astype(np.int64)
    return Frames(framed, np.where(framed, ids, 0))


def unframed(values: pa.BinaryArray) -> pa.BinaryArray:
    """Returns the payloads of framed values, over the same bytes."""
    bounds = offsets_of(values)
    return slices(data_of(values), bounds[:-1] + FRAME_BYTES, bounds[1:])


def split_message_indexes(payload: bytes) -> tuple[tuple[int, ...], bytes] | None:
    """Returns the path to a message's type, and the message; None where the indexes are not valid."""
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
