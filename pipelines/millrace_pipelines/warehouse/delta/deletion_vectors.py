"""Deletion vectors: the numbers of a data file's deleted rows, in a file that the log names, or in the log itself.

    deletion_vector_<UUID>.bin    version 1 (1 byte)  │ for each vector: size (4) │ bitmaps │ CRC-32 of the bitmaps (4)
    bitmaps                       magic (4) │ a 64-bit Roaring bitmap in the portable form
    add.deletionVector            storageType, pathOrInlineDv (`log_actions`), where the size begins, size, rows

The size and the CRC are big-endian, all else is little-endian. A file that Millrace writes has one vector; those of
other engines have several. A vector in the log has no CRC. A vector is read when its file is: what is in memory does
not grow with the table.

Source: the Delta transaction log protocol, "Deletion Vectors", "Deletion Vector Format"; the Roaring format
specification (https://github.com/RoaringBitmap/RoaringFormatSpec).
"""

from __future__ import annotations

import base64
import struct
import uuid
from array import array
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from zlib import crc32

import numpy as np
import pyarrow.parquet as pq
from pyroaring import BitMap64

from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace_pipelines.arrow import Flags, Indices
from millrace_pipelines.warehouse.delta.log_actions import (
    INLINE,
    RELATIVE,
    TO_BASE85,
    TO_Z85,
    Descriptor,
    vector_file,
)
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.store import Store
from millrace_pipelines.warehouse.table.files import MarkedFile, vector_name

FORMAT_VERSION = b"\1"
MAGIC = (1681511377).to_bytes(4, "little")
BIG = struct.Struct(">I")


class Vector(NamedTuple):
    """A deletion vector that is to be stored: the name of its file, the file's content, and how the log names it."""

    name: str
    content: bytes
    descriptor: Descriptor


class LoggedVector(NamedTuple):
    """A deletion vector as the log has it, and the number of rows of its data file; None where that is not said."""

    descriptor: Descriptor
    rows: int | None


class KeptRows(Mapping[str, Flags]):
    """For each data file with a deletion vector, by name, a mask of the rows that it does not delete.

    A vector is read when its mask is asked for, and no mask is kept. It is pickled without the vectors.

    Args:
        location: The table's location.
        fs: The disk of a table in a folder.
        vectors: The vectors by the names of their data files.

    Raises:
        WarehouseError: A vector is damaged, or not where it can be read.
    """

    def __init__(self, location: str, fs: FileSystem, vectors: Mapping[str, LoggedVector]) -> None:
        self._location = location
        self._fs = fs
        self._vectors = vectors

    def __getitem__(self, name: str) -> Flags:
        vector, store = self._vectors[name], store_at(self._location, self._fs)
        rows = vector.rows
        if rows is None:
            rows = pq.read_metadata(store.path(name), filesystem=store.filesystem).num_rows
        stays = np.ones(rows, np.bool_)
        deleted = deleted_rows(store, vector.descriptor)
        if len(deleted) and deleted[-1] >= rows:
            raise WarehouseError(f"{self._location}: {name} has {rows} rows, its deletion vector deletes others")
        stays[deleted] = False
        return stays

    def __contains__(self, name: object) -> bool:
        return name in self._vectors

    def __iter__(self) -> Iterator[str]:
        return iter(self._vectors)

    def __len__(self) -> int:
        return len(self._vectors)

    def rows_of(self, name: str) -> int | None:
        """Returns how many rows of a file are not deleted; None where the log does not say how many it has."""
        vector = self._vectors[name]
        return None if vector.rows is None else vector.rows - int(vector.descriptor["cardinality"])


def mark_rows(store: Store, stays: Flags) -> MarkedFile:
    """Writes a vector that deletes the rows of a file that don't stay; returns how the log is to name the file."""
    vector = deletion_vector(np.flatnonzero(~stays))
    with store.output(vector.name) as stream:
        stream.write(vector.content)
    store.sync(vector.name)
    return MarkedFile(vector.descriptor, len(stays))


def deletion_vector(rows: Indices) -> Vector:
    """Returns a new vector that deletes rows, given by rising number."""
    number, bitmap = uuid.uuid4(), BitMap64(array("Q", rows.astype(np.uint64).tobytes()))
    bitmaps = MAGIC + bitmap.serialize()
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


def deleted_rows(store: Store, descriptor: Descriptor) -> Indices:
    """Reads a vector; returns the numbers of the rows that it deletes, rising.

    Raises:
        WarehouseError: It is damaged, not where it can be read, or of a form that is not known.
    """
    where = f"{store.location}: the deletion vector {descriptor['pathOrInlineDv']}"
    bitmaps = _inline(descriptor) if descriptor["storageType"] == INLINE else _stored(store, descriptor, where)
    if bitmaps[: len(MAGIC)] != MAGIC:
        raise WarehouseError(f"{where} is of a form that is not known")
    try:
        rows = BitMap64.deserialize(bitmaps[len(MAGIC) :]).to_array()
    except (ValueError, IndexError) as error:
        raise WarehouseError(f"{where} is damaged: {error}") from error
    if len(rows) != descriptor["cardinality"]:
        raise WarehouseError(f"{where} is damaged: it has {len(rows)} rows, the log says {descriptor['cardinality']}")
    return np.frombuffer(rows, np.uint64).astype(np.int64)


def _inline(descriptor: Descriptor) -> bytes:
    return base64.b85decode(str(descriptor["pathOrInlineDv"]).translate(TO_BASE85))[: descriptor["sizeInBytes"]]


def _stored(store: Store, descriptor: Descriptor, where: str) -> bytes:
    """Returns a vector's bytes from its file; raises WarehouseError where they are not what was written."""
    name, size = vector_file(descriptor, store.location), int(descriptor["sizeInBytes"])
    if name is None:
        raise WarehouseError(f"{where} lies outside of the table's folder, which is not read")
    try:
        with store.filesystem.open_input_file(store.path(name)) as file:
            file.seek(descriptor.get("offset", 0))
            found = file.read(BIG.size + size + BIG.size)
    except OSError as error:
        raise WarehouseError(f"{where} can't be read: {error}") from error
    bitmaps = found[BIG.size : -BIG.size]
    if found[: BIG.size] != BIG.pack(size) or found[BIG.size + size :] != BIG.pack(crc32(bitmaps)):
        raise WarehouseError(f"{where} is damaged: {name} has other bytes than were written")
    return bitmaps
