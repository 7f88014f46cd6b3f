"""Deletion vectors as Millrace writes them: the numbers of a data file's deleted rows, in a file that the log names.

    deletion_vector_<UUID>.bin      version 1 (1 byte)  │ size (4) │ bitmaps │ CRC-32 of the bitmaps (4)
    bitmaps                         magic (4) │ number of bitmaps (8) │ for each: upper half of its rows (4), the bitmap
    bitmap (Roaring)                cookie (4) │ containers (4) │ key, cardinality - 1 (2 + 2 each) │ offsets (4 each)
                                    │ containers: up to 4096 rows as numbers (2 each), more as 65536 bits
    add.deletionVector              storageType u, the UUID in Z85, where the size begins, size, number of rows

The size and the CRC are big-endian, all else is little-endian. A file of Millrace's has one vector, and a vector one
bitmap, for a data file has fewer than 2^32 rows. Vectors are read by delta-rs (`delta.snapshot`), those of other
engines, too, which may have other forms.

Source: the Delta transaction log protocol, "Deletion Vectors", "Deletion Vector Format"; the Roaring format
specification (https://github.com/RoaringBitmap/RoaringFormatSpec).
"""

from __future__ import annotations

import base64
import struct
import uuid
from typing import NamedTuple
from zlib import crc32

import numpy as np

from millrace_pipelines.arrow import Flags, Indices
from millrace_pipelines.warehouse.delta.log_actions import RELATIVE, TO_Z85, Descriptor
from millrace_pipelines.warehouse.stores.store import Store
from millrace_pipelines.warehouse.table.files import MarkedFile, vector_name

FORMAT_VERSION = b"\1"
ARRAY_OF_BITMAPS = struct.Struct("<IQI")
ARRAY_MAGIC = 1681511377
BITMAP = struct.Struct("<II")
NO_RUNS = 12346
BIG = struct.Struct(">I")
CONTAINER_BITS = 16
CONTAINER_ROWS = 1 << CONTAINER_BITS
MOST_LISTED = 4096


class Vector(NamedTuple):
    """A deletion vector that is to be stored: the name of its file, the file's content, and how the log names it."""

    name: str
    content: bytes
    descriptor: Descriptor


def mark_rows(store: Store, stays: Flags) -> MarkedFile:
    """Writes a vector that deletes the rows of a file that don't stay; returns how the log is to name the file."""
    vector = deletion_vector(np.flatnonzero(~stays))
    with store.output(vector.name) as stream:
        stream.write(vector.content)
    store.sync(vector.name)
    return MarkedFile(vector.descriptor, len(stays))


def deletion_vector(rows: Indices) -> Vector:
    """Returns a new vector that deletes rows, given by rising number below 2^32."""
    number, bitmaps = uuid.uuid4(), _bitmaps(rows)
    return Vector(
        name=vector_name(number),
        content=FORMAT_VERSION + BIG.pack(len(bitmaps)) + bitmaps + BIG.pack(crc32(bitmaps)),
        descriptor={
            "storageType": RELATIVE,
            "pathOrInlineDv": base64.b85encode(number.bytes).decode().translate(TO_Z85),
            "offset": len(FORMAT_VERSION),
            "sizeInBytes": len(bitmaps),
            "cardinality": len(rows),
        },
    )


def _bitmaps(rows: Indices) -> bytes:
    """Returns an array of one bitmap, that of the rows below 2^32."""
    keys, starts = np.unique(rows >> CONTAINER_BITS, return_index=True)
    lows = np.split((rows % CONTAINER_ROWS).astype("<u2"), starts[1:]) if len(rows) else []
    containers = [_container(low) for low in lows]
    described = np.array([(key, len(low) - 1) for key, low in zip(keys, lows, strict=True)], "<u2").tobytes()
    first = BITMAP.size + len(described) + BIG.size * len(containers)
    offsets = first + np.cumsum([0, *map(len, containers)])[:-1]
    head = ARRAY_OF_BITMAPS.pack(ARRAY_MAGIC, 1, 0) + BITMAP.pack(NO_RUNS, len(containers))
    return b"".join((head, described, offsets.astype("<u4").tobytes(), *containers))


def _container(lows: np.typing.NDArray[np.uint16]) -> bytes:
    if len(lows) <= MOST_LISTED:
        return lows.tobytes()
    bits = np.zeros(CONTAINER_ROWS, np.bool_)
    bits[lows] = True
    return np.packbits(bits, bitorder="little").tobytes()
