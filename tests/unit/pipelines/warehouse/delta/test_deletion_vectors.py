"""Deletion vectors of other engines: rows are read without the deleted ones, added beside them, and else refused."""

import json
import struct
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from millrace.clock import SystemClock
from millrace.errors import WarehouseError
from millrace.fs import OsFileSystem
from millrace_pipelines.defs.tables.preview import preview
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.dead_letters.letters import EVERY_LETTER
from millrace_pipelines.warehouse.dead_letters.summary import count_reasons
from millrace_pipelines.warehouse.delta.location import dead_letters_dir
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import TableRefusedError
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.tables.find import describe_table
from millrace_pipelines.warehouse.tables.open import look_at_tables
from millrace_pipelines.warehouse.tables.query import query
from millrace_pipelines.warehouse.upkeep.compact import compact
from millrace_pipelines.warehouse.upkeep.policy import UpkeepPolicy, checkpoint, upkeep
from millrace_pipelines.warehouse.upkeep.vacuum import vacuum
from millrace_support.loads import Loads

FS = OsFileSystem()
DELETED = (3, 4, 7, 11, 18, 29)
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
ROARING_ARRAY = 1681511377
NO_RUNS = 12346
FEATURES = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors"]}  # fmt: skip


def vector_of(rows):
    """An inline deletion vector: an array of one Roaring bitmap, which has one container of single values."""
    values = b"".join(struct.pack("<H", row) for row in rows)
    bitmap = struct.pack("<IIHHI", NO_RUNS, 1, 0, len(rows) - 1, 16) + values
    content = struct.pack("<IQI", ROARING_ARRAY, 1, 0) + bitmap
    words = struct.unpack(f">{len(content) // 4}I", content)
    text = "".join(Z85[word // 85**place % 85] for word in words for place in (4, 3, 2, 1, 0))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(content), "cardinality": len(rows)}


def delete_rows(location, which=0, vector=None):
    """Deletes rows of a file as another engine does: the file is removed, and added with a vector."""
    table = DeltaTable(location)
    name = Table.load(location, FS).file_names()[which]
    [add] = [
        action["add"]
        for commit in sorted(Path(location, "_delta_log").glob("*.json"))
        for action in map(json.loads, commit.read_text().splitlines())
        if action.get("add", {}).get("path") == name
    ]
    remove = {"path": name, "deletionTimestamp": 1, "dataChange": True}
    actions = [
        {"protocol": FEATURES},
        {"remove": remove},
        {"add": add | {"deletionVector": vector or vector_of(DELETED)}},
    ]
    path = Path(location, "_delta_log", f"{table.version() + 1:020d}.json")
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


@pytest.fixture
def loads(tmp_path):
    loads = Loads(str(tmp_path / "events"))
    loads.load((0, 40), range(40), values={"key": [b"key-%d" % offset for offset in range(40)]})
    loads.load((40, 50), range(40, 50))
    [large] = [place for place, file in enumerate(loads.files()) if pq.read_metadata(file).num_rows == 40]
    delete_rows(loads.directory, large)
    return loads


def queried(location):
    with query(location, 'SELECT "offset" FROM events') as rows:
        return set(rows.read_all().column("offset").to_pylist())


def test_deleted_rows_are_not_read(loads):
    left = set(range(50)) - {*DELETED}
    assert queried(loads.directory) == left
    rows = Table.load(loads.directory, FS).dataset().to_table(filter=pc.field("offset") < 20)
    assert set(rows.column("offset").to_pylist()) == {offset for offset in left if offset < 20}
    assert describe_table(loads.directory).rows == len(left)
    shown = preview(Table.load(loads.directory, FS), 50)
    assert [f"key-{offset}" in shown for offset in (28, 29, 30)] == [True, False, True]


def test_rows_are_added_beside_them(loads):
    look_at_tables(loads.directory, "events", "id-1", None, FS)
    loads.load((50, 60), range(50, 60))
    assert queried(loads.directory) == set(range(60)) - {*DELETED}


@pytest.mark.parametrize("act", [
    lambda one: compact(one, FS, SystemClock()),
    lambda one: checkpoint(one, FS),
    lambda one: vacuum(one, FS, retention_hours=0),
    lambda one: upkeep(one, FS, SystemClock(), UpkeepPolicy(min_small_files=2)),
    lambda one: erase(one, [b"key-1"], FS),
    lambda one: look_at_tables(one, "events", "id-1", None, FS, access="remove"),
    audit,
])  # fmt: skip
def test_what_would_have_to_remove_files_or_count_rows_is_refused(loads, act):
    before = {path: path.read_bytes() for path in Path(loads.directory).rglob("*") if path.is_file()}
    with pytest.raises(TableRefusedError, match=r"deletion ?[vV]ectors.*REORG TABLE … APPLY \(PURGE\)"):
        act(loads.directory)
    assert {path: path.read_bytes() for path in Path(loads.directory).rglob("*") if path.is_file()} == before


def test_deleted_letters_are_not_read(tmp_path):
    loads = Loads(str(tmp_path / "events"))
    loads.load((0, 40), [], dead=range(40))
    delete_rows(dead_letters_dir(loads.directory))
    assert [count.letters for count in count_reasons(loads.directory, EVERY_LETTER)] == [40 - len(DELETED)]


def test_a_vector_that_cannot_be_read_is_no_empty_one(tmp_path):
    loads = Loads(str(tmp_path / "events"))
    loads.load((0, 40), range(40))
    delete_rows(loads.directory, vector={"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4,
                                         "sizeInBytes": 40, "cardinality": 6})  # fmt: skip
    with pytest.raises(WarehouseError, match="its deletion vectors can't be read"):
        Table.load(loads.directory, FS)
