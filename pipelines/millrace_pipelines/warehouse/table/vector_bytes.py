"""The bytes of a deletion vector, which Delta Lake and Iceberg keep alike: the numbers of a data file's deleted rows.

    size (4) │ magic (4) │ a 64-bit Roaring bitmap in the portable form │ CRC-32 of magic and bitmap (4)

The size is that of magic and bitmap. It and the CRC are big-endian, all else is little-endian.

Source: the Delta transaction log protocol, "Deletion Vector Format"; the Puffin specification, "deletion-vector-v1";
the Roaring format specification (https://github.com/RoaringBitmap/RoaringFormatSpec).
"""

from __future__ import annotations

import struct
from array import array
from zlib import crc32

import numpy as np
from pyroaring import BitMap64

from millrace.errors import WarehouseError
from millrace_pipelines.arrow import Flags, Indices
from millrace_pipelines.warehouse.stores.store import Store

MAGIC = (1681511377).to_bytes(4, "little")
BIG = struct.Struct(">I")
FRAME_BYTES = 2 * BIG.size
WAY_ON = "Way on: bring the file back from a copy, or load the topic into another table"


def vector_bytes(rows: Indices) -> bytes:
    """Returns a vector that deletes rows, given by rising number."""
    bitmap = MAGIC + BitMap64(array("Q", rows.astype(np.uint64).tobytes())).serialize()
    return BIG.pack(len(bitmap)) + bitmap + BIG.pack(crc32(bitmap))


def rows_of_vector(content: bytes, cardinality: int, where: str) -> Indices:
    """Returns the numbers of the rows that a vector deletes, rising.

    Args:
        content: The vector.
        cardinality: How many rows its table says it deletes.
        where: What an error calls it.

    Raises:
        WarehouseError: It is damaged, or of a form that is not known.
    """
    bitmap = content[BIG.size : -BIG.size]
    if content[: BIG.size] != BIG.pack(len(bitmap)) or content[-BIG.size :] != BIG.pack(crc32(bitmap)):
        raise WarehouseError(f"{where} is damaged: it has other bytes than were written. {WAY_ON}")
    return rows_of_bitmap(bitmap, cardinality, where)


def rows_of_bitmap(bitmap: bytes, cardinality: int, where: str) -> Indices:
    """Returns what `rows_of_vector` does, for a vector without its size and its CRC."""
    if bitmap[: len(MAGIC)] != MAGIC:
        raise WarehouseError(f"{where} is of a form that is not known")
    try:
        rows = BitMap64.deserialize(bitmap[len(MAGIC) :]).to_array()
    except (ValueError, IndexError) as error:
        raise WarehouseError(f"{where} is damaged: {error}. {WAY_ON}") from error
    if len(rows) != cardinality:
        raise WarehouseError(
            f"{where} is damaged: it has {len(rows)} rows, the table's log says {cardinality}. {WAY_ON}"
        )
    return np.frombuffer(rows, np.uint64).astype(np.int64)


def kept_rows(rows: int, deleted: Indices, where: str) -> Flags:
    """Returns a mask of the rows of a file that a vector does not delete.

    Raises WarehouseError where it deletes rows that the file does not have.
    """
    stays = np.ones(rows, np.bool_)
    if len(deleted) and deleted[-1] >= rows:
        raise WarehouseError(f"{where} has {rows} rows, its deletion vector deletes others")
    stays[deleted] = False
    return stays


def read_part(store: Store, name: str, offset: int, size: int, where: str) -> bytes:
    """Returns so many bytes of a file of a table; raises WarehouseError where it can't be read, or has fewer."""
    try:
        with store.filesystem.open_input_file(store.path(name)) as file:
            file.seek(offset)
            found = file.read(size)
    except OSError as error:
        raise WarehouseError(f"{where} can't be read: {error}. {WAY_ON}") from error
    if len(found) < size:
        raise WarehouseError(f"{where} is damaged: {name} is too short. {WAY_ON}")
    return found
