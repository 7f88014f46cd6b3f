"""Deletion vectors: their bytes, as the protocol has them, what delta-rs reads from them, and damage of every byte."""

import pickle
import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyroaring import BitMap64

from millrace.errors import WarehouseError
from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.delta.deletion_vectors import deleted_rows, deletion_vector
from millrace_pipelines.warehouse.delta.log_actions import vector_file
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.table.files import write_file
from millrace_pipelines.warehouse.table.vector_bytes import MAGIC
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
    [read_by_delta_rs] = pa.table(DeltaTable(location).deletion_vectors()).column("selection_vector").to_pylist()
    table = Table.load(location, FS)
    kept = table.kept_rows()[name]
    assert kept.tolist() == read_by_delta_rs
    assert np.flatnonzero(~kept).tolist() == list(rows)
    assert table.add_actions().column("num_records").to_pylist() == [ROWS - len(rows)]
    assert pickle.loads(pickle.dumps(table.kept_rows()))[name].tolist() == kept.tolist()


@pytest.mark.parametrize("rows", SETS.values(), ids=list(SETS))
def test_runs_and_several_vectors_in_a_file_are_read(tmp_path, rows):
    """Other engines write runs of rows, and several vectors into one file."""
    store, content = store_at(str(tmp_path), FS), b"\1"
    places = []
    for part in ([1], rows):
        bitmap = BitMap64(list(part))
        bitmap.run_optimize()
        bitmaps = MAGIC + bitmap.serialize()
        places.append((len(content), len(bitmaps), len(part)))
        content += struct.pack(">I", len(bitmaps)) + bitmaps + struct.pack(">I", zlib.crc32(bitmaps))
    vector = deletion_vector(np.array([0]))
    (tmp_path / vector.name).write_bytes(content)
    for (offset, size, count), part in zip(places, ([1], rows), strict=True):
        descriptor = {**vector.descriptor, "offset": offset, "sizeInBytes": size, "cardinality": count}
        assert deleted_rows(store, descriptor).tolist() == list(part)


def test_no_flipped_bit_and_no_cut_is_read(tmp_path):
    store, vector = store_at(str(tmp_path), FS), deletion_vector(np.array([3, 5, 70_000]))
    flipped = [
        vector.content[:at] + bytes([vector.content[at] ^ 1 << bit]) + vector.content[at + 1 :]
        for at in range(1, len(vector.content))  # the version in front is of the file
        for bit in range(8)
    ]
    for content in (*flipped, *(vector.content[:end] for end in range(len(vector.content))), None):
        (tmp_path / vector.name).unlink(missing_ok=True)
        if content is not None:
            (tmp_path / vector.name).write_bytes(content)
        with pytest.raises(WarehouseError, match=r"damaged|can't be read"):
            deleted_rows(store, vector.descriptor)


WRONG = {
    "another number of rows": ({"cardinality": 2}, "it has 3 rows, the table's log says 2"),
    "another size": ({"sizeInBytes": 41}, "has other bytes than were written"),
    "outside of the folder": ({"storageType": "p", "pathOrInlineDv": "file:///x.bin"}, "outside of the table's folder"),
    "no bitmaps in the log": ({"storageType": "i", "pathOrInlineDv": "0000000000"}, "a form that is not known"),
}


@pytest.mark.parametrize(("change", "error"), WRONG.values(), ids=list(WRONG))
def test_a_descriptor_that_does_not_fit_is_refused(tmp_path, change, error):
    vector = deletion_vector(np.array([3, 5, 70_000]))
    (tmp_path / vector.name).write_bytes(vector.content)
    with pytest.raises(WarehouseError, match=error):
        deleted_rows(store_at(str(tmp_path), FS), {**vector.descriptor, **change})


def test_a_vector_of_another_file_is_refused(location):
    [name] = Table.load(location, FS).file_names()
    vector = deletion_vector(np.array([ROWS]))
    Path(location, vector.name).write_bytes(vector.content)
    delete_rows(location, name, vector.descriptor)
    with pytest.raises(WarehouseError, match=f"{name} has {ROWS} rows, its deletion vector deletes others"):
        Table.load(location, FS).kept_rows()[name]


def test_the_bytes_are_as_drawn():
    bitmap = struct.pack("<II", 12346, 2) + struct.pack("<HHHH", 0, 1, 2, 0) + struct.pack("<II", 24, 28)
    bitmap += struct.pack("<HHH", 3, 5, 9)
    bitmaps = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    vector = deletion_vector(np.array([3, 5, 2 * 65_536 + 9]))
    assert vector.content == b"\1" + struct.pack(">I", len(bitmaps)) + bitmaps + struct.pack(">I", zlib.crc32(bitmaps))
    descriptor = {name: vector.descriptor[name] for name in ("storageType", "offset", "sizeInBytes", "cardinality")}
    assert descriptor == {"storageType": "u", "offset": 1, "sizeInBytes": len(bitmaps), "cardinality": 3}
