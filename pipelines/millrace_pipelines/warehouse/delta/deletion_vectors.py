"""Deletion vectors: the numbers of a data file's deleted rows, in a file that the log names, or in the log itself.

    deletion_vector_<UUID>.bin    version 1 (1 byte)  │ vectors (`table.vector_bytes`)
    add.deletionVector            storageType, pathOrInlineDv (`log_actions`), where the vector begins, its size without
                                  that of the size and the CRC, rows

A file that Millrace writes has one vector; those of other engines have several. A vector in the log has neither size
nor CRC. A vector is read when its file is: what is in memory does not grow with the table.

Source: the Delta transaction log protocol, "Deletion Vectors", "Deletion Vector Format".
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

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
from millrace_pipelines.warehouse.table.vector_bytes import (
    FRAME_BYTES,
    kept_rows,
    read_part,
    rows_of_bitmap,
    rows_of_vector,
    vector_bytes,
)

FORMAT_VERSION = b"\1"
SUFFIX = ".bin"


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
        return kept_rows(rows, deleted_rows(store, vector.descriptor), f"{self._location}: {name}")

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


def mark_rows(store: Store, name: str, stays: Flags) -> MarkedFile:  # noqa: ARG001  # the log says which file it is
    """Writes a vector that deletes the rows of a file that don't stay; returns how the log is to name the file."""
    vector = deletion_vector(np.flatnonzero(~stays))
    with store.output(vector.name) as stream:
        stream.write(vector.content)
    store.sync(vector.name)
    return MarkedFile(vector.descriptor, len(stays))


def deletion_vector(rows: Indices) -> Vector:
    """Returns a new vector that deletes rows, given by rising number."""
    number, vector = uuid.uuid4(), vector_bytes(rows)
    return Vector(
        name=vector_name(number, SUFFIX),
        content=FORMAT_VERSION + vector,
        descriptor={
            "storageType": RELATIVE,
            "pathOrInlineDv": base64.b85encode(number.bytes).decode().translate(TO_Z85),
            "offset": len(FORMAT_VERSION),
            "sizeInBytes": len(vector) - FRAME_BYTES,
            "cardinality": len(rows),
        },
    )


def deleted_rows(store: Store, descriptor: Descriptor) -> Indices:
    """Reads a vector; returns the numbers of the rows that it deletes, rising.

    Raises:
        WarehouseError: It is damaged, not where it can be read, or of a form that is not known.
    """
    where = f"{store.location}: the deletion vector {descriptor['pathOrInlineDv']}"
    if descriptor["storageType"] == INLINE:
        return rows_of_bitmap(_inline(descriptor), descriptor["cardinality"], where)
    return rows_of_vector(_stored(store, descriptor, where), descriptor["cardinality"], where)


def _inline(descriptor: Descriptor) -> bytes:
    return base64.b85decode(str(descriptor["pathOrInlineDv"]).translate(TO_BASE85))[: descriptor["sizeInBytes"]]


def _stored(store: Store, descriptor: Descriptor, where: str) -> bytes:
    """Returns a vector's bytes from its file; raises WarehouseError where they can't be read."""
    name, size = vector_file(descriptor, store.location), int(descriptor["sizeInBytes"])
    if name is None:
        raise WarehouseError(f"{where} lies outside of the table's folder, which is not read")
    return read_part(store, name, descriptor.get("offset", 0), size + FRAME_BYTES, where)
