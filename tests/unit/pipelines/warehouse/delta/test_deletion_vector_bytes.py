"""Deletion vectors that Millrace writes: their bytes, as the protocol has them, and what delta-rs reads from them."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.delta.deletion_vectors import deletion_vector
from millrace_pipelines.warehouse.delta.log_actions import vector_file
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.table.files import write_file
from millrace_support.deletion_vectors import delete_rows

FS = OsFileSystem()
ROWS = 200_000
SETS = {
    "one": [7],
    "ends of containers": [0, 65_535, 65_536, 131_071, 131_072, ROWS - 1],
    "as many as are listed": range(4096),
    "one more than are listed": range(0, 3 * 4097, 3),
    "most": sorted({*range(ROWS)} - {*range(0, ROWS, 1000)}),
    "all": range(ROWS),
}


@pytest.fixture(scope="module")
def location(tmp_path_factory):
    location = str(tmp_path_factory.mktemp("vectors") / "table")
    schema = pa.schema([("offset", pa.int64())])
    table = Table.load_or_create(location, FS, schema=schema, name="vectors", configuration={})
    file = write_file(location, "load", pa.table({"offset": np.arange(ROWS)}, schema=schema), FS)
    table.commit([file], expected={}, transactions={}, lineage={"kind": "load"})
    return location


@pytest.mark.parametrize("rows", SETS.values(), ids=list(SETS))
def test_delta_rs_reads_what_is_written(location, rows):
    [name] = Table.load(location, FS).file_names()
    vector = deletion_vector(np.array(rows, np.int64))
    assert vector_file(vector.descriptor, location) == vector.name
    Path(location, vector.name).write_bytes(vector.content)
    delete_rows(location, name, vector.descriptor)
    kept = Table.load(location, FS).kept_rows()[name]
    assert np.flatnonzero(~kept).tolist() == list(rows)
    assert len(kept) == ROWS


def test_the_bytes_are_as_drawn():
    bitmap = struct.pack("<II", 12346, 2) + struct.pack("<HHHH", 0, 1, 2, 0) + struct.pack("<II", 24, 28)
    bitmap += struct.pack("<HHH", 3, 5, 9)
    bitmaps = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    vector = deletion_vector(np.array([3, 5, 2 * 65_536 + 9]))
    assert vector.content == b"\1" + struct.pack(">I", len(bitmaps)) + bitmaps + struct.pack(">I", zlib.crc32(bitmaps))
    descriptor = {name: vector.descriptor[name] for name in ("storageType", "offset", "sizeInBytes", "cardinality")}
    assert descriptor == {"storageType": "u", "offset": 1, "sizeInBytes": len(bitmaps), "cardinality": 3}
