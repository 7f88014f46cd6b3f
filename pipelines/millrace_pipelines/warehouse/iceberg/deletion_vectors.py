"""Deletion vectors of format version 3: a Puffin file for each that is written.

    deletion_vector_<UUID>.puffin    magic │ vector (`table.vector_bytes`) │ footer
    footer                           magic │ JSON │ size of the JSON (4) │ flags (4) │ magic

The JSON says of a vector where it begins, its size, how many rows it deletes, and of which data file. A manifest says
the same (`written_manifests`), so that nothing else of the file is read. Sizes are little-endian.

Source: the Puffin specification; the Iceberg table specification, "Deletion Vectors".
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from millrace_pipelines.arrow import Flags
from millrace_pipelines.warehouse.stores.store import Store
from millrace_pipelines.warehouse.table.files import MarkedFile, vector_name
from millrace_pipelines.warehouse.table.vector_bytes import vector_bytes

MAGIC = b"PFA1"
BLOB_TYPE = "deletion-vector-v1"
ROW_NUMBER_ID = 2_147_483_645
UNKNOWN = -1  # the snapshot that the vector will be of
NO_FLAGS = bytes(4)
SIZE = struct.Struct("<i")
SUFFIX = ".puffin"


class Paths(NamedTuple):
    """The paths of a table's data files as its manifests spell them, each in its writer's way.

    Attributes:
        location: The table's location as its metadata spells it.
        others: By name, the paths that don't begin with it.
    """

    location: str
    others: Mapping[str, str]

    def of(self, name: str) -> str:
        """Returns the path of a data file, by its name below the location."""
        return self.others.get(name) or path_below(self.location, name)


def path_below(location: str, name: str) -> str:
    """Returns the path of a file that Millrace writes below a table's location."""
    return f"{location.rstrip('/')}/{name}"


def mark_rows(paths: Paths, store: Store, name: str, stays: Flags) -> MarkedFile:
    """Writes a vector that deletes the rows of a file that don't stay; returns how a manifest is to name it.

    Args:
        paths: The paths of the table's data files.
        store: The table's files.
        name: The data file's name below it.
        stays: A mask of the rows that are left.
    """
    rows, vector = np.flatnonzero(~stays), vector_name(uuid.uuid4(), SUFFIX)
    content = vector_bytes(rows)
    file = puffin_file(content, paths.of(name), len(rows))
    with store.output(vector) as stream:
        stream.write(file)
    store.sync(vector)
    described = {
        "name": vector, "file_size": len(file), "offset": len(MAGIC), "size": len(content), "cardinality": len(rows)
    }  # fmt: skip
    return MarkedFile(described, len(stays))


def puffin_file(vector: bytes, data_file: str, cardinality: int) -> bytes:
    """Returns a Puffin file of one vector, which deletes so many rows of a data file, given by its whole path."""
    blob = {
        "type": BLOB_TYPE,
        "fields": [ROW_NUMBER_ID],
        "snapshot-id": UNKNOWN,
        "sequence-number": UNKNOWN,
        "offset": len(MAGIC),
        "length": len(vector),
        "properties": {"referenced-data-file": data_file, "cardinality": str(cardinality)},
    }
    described = json.dumps({"blobs": [blob], "properties": {"created-by": "Millrace"}}).encode()
    return MAGIC + vector + MAGIC + described + SIZE.pack(len(described)) + NO_FLAGS + MAGIC
