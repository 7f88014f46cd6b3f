"""Deletion vectors of other engines: deleted rows are not there for any command, and files go with their vectors."""

import json
import os
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from millrace.clock import SystemClock
from millrace.errors import WarehouseError
from millrace.fs import OsFileSystem
from millrace_pipelines.defs.table_metadata import preview
from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.dead_letters import EVERY_DEAD_LETTER, count_reasons
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import StaleLedgerError
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.maintenance import MaintenancePolicy, checkpoint, compact, maintain, vacuum
from millrace_pipelines.warehouse.stores.store import dead_letters_dir
from millrace_pipelines.warehouse.table.files import NamedFile
from millrace_pipelines.warehouse.tables.find import describe_table
from millrace_pipelines.warehouse.tables.open import look_at_tables
from millrace_pipelines.warehouse.tables.query import query
from millrace_support.deletion_vectors import delete_rows, inline_vector, largest_file, stored_vector
from millrace_support.loads import Loads

FS = OsFileSystem()
DELETED = (3, 4, 7, 11, 18, 29)
LEFT = set(range(50)) - {*DELETED}
STORED = {
    "inline": lambda location, rows: inline_vector(rows),
    "by UUID": stored_vector,
    "by UUID with a prefix": lambda location, rows: stored_vector(location, rows, prefix="ab"),
    "by address": lambda location, rows: stored_vector(location, rows, by_address=True),
}


def loaded(directory):
    loads = Loads(str(directory))
    loads.load((0, 40), range(40), values={"key": [b"key-%d" % offset for offset in range(40)]})
    loads.load((40, 50), range(40, 50), values={"key": [b"key-%d" % offset for offset in range(40, 50)]})
    return loads


@pytest.fixture(params=STORED.values(), ids=list(STORED))
def stored(request):
    return request.param


@pytest.fixture
def loads(tmp_path, stored):
    loads = loaded(tmp_path / "events")
    delete_rows(loads.directory, largest_file(loads.directory), stored(loads.directory, DELETED))
    return loads


def queried(location):
    with query(location, 'SELECT "offset" FROM events') as rows:
        offsets = rows.read_all().column("offset").to_pylist()
    assert len(offsets) == len(set(offsets))
    return set(offsets)


def last_commit(location):
    lines = max(Path(location, "_delta_log").glob("*.json")).read_text().splitlines()
    return [json.loads(line) for line in lines]


def vector_files(location):
    return sorted(path for path in Path(location).rglob("deletion_vector_*.bin"))


def test_deleted_rows_are_not_read(loads):
    assert queried(loads.directory) == LEFT
    rows = Table.load(loads.directory, FS).dataset().to_table(filter=pc.field("offset") < 20)
    assert set(rows.column("offset").to_pylist()) == {offset for offset in LEFT if offset < 20}
    assert describe_table(loads.directory).rows == len(LEFT)
    shown = preview(Table.load(loads.directory, FS), 50)
    assert [f"key-{offset}" in shown for offset in (28, 29, 30)] == [True, False, True]


def test_rows_are_added_beside_them(loads):
    look_at_tables(loads.directory, "events", "id-1", None, FS)
    loads.load((50, 60), range(50, 60))
    assert queried(loads.directory) == set(range(60)) - {*DELETED}


REWRITES = {
    "compact": (lambda one: compact(one, FS, SystemClock()), LEFT),
    "upkeep": (lambda one: maintain(one, FS, SystemClock(), MaintenancePolicy(min_small_files=2)), LEFT),
    "erase a row that is left": (lambda one: erase(one, [b"key-1"], FS), LEFT - {1}),
    "erase a deleted row": (lambda one: erase(one, [b"key-3"], FS), LEFT),
    "erase all rows": (lambda one: erase(one, [b"key-%d" % offset for offset in range(40)], FS), LEFT - {*range(40)}),
}


@pytest.mark.parametrize(("act", "left"), REWRITES.values(), ids=list(REWRITES))
def test_a_file_is_removed_with_its_vector(loads, act, left):
    name = largest_file(loads.directory)
    [vector] = [action["add"]["deletionVector"] for action in last_commit(loads.directory) if "add" in action]
    act(loads.directory)
    assert queried(loads.directory) == left
    removed = {one["remove"]["path"]: one["remove"] for one in last_commit(loads.directory) if "remove" in one}
    assert removed[name]["deletionVector"] == vector
    assert not any("deletionVector" in action["add"] for action in last_commit(loads.directory) if "add" in action)
    assert not Table.load(loads.directory, FS).kept_rows()
    checkpoint(loads.directory, FS)
    assert queried(loads.directory) == left


def test_a_checkpoint_keeps_vectors(loads):
    checkpoint(loads.directory, FS)
    for commit in Path(loads.directory, "_delta_log").glob("*.json"):
        commit.unlink()
    assert queried(loads.directory) == LEFT
    compact(loads.directory, FS, SystemClock())
    assert queried(loads.directory) == LEFT


def test_an_erased_key_is_gone_from_all_files(loads):
    assert erase(loads.directory, [b"key-3"], FS).files == 1
    vacuum(loads.directory, FS, retention_hours=0)
    there = Path(loads.directory).glob("*.parquet")
    keys = [key for path in there for key in pq.read_table(path).column("key").to_pylist()]
    assert sorted(keys) == sorted(b"key-%d" % offset for offset in LEFT)
    assert not vector_files(loads.directory)


def test_vacuum_keeps_a_vector_as_long_as_its_file(loads):
    before = vector_files(loads.directory)
    vacuum(loads.directory, FS, retention_hours=0)
    assert (vector_files(loads.directory), queried(loads.directory)) == (before, LEFT)
    compact(loads.directory, FS, SystemClock())
    assert not {*vacuum(loads.directory, FS, retention_hours=1).files} & {*map(str, before)}
    assert vector_files(loads.directory) == before
    report = vacuum(loads.directory, FS, retention_hours=0)
    assert (len(report.files), vector_files(loads.directory)) == (2 + len(before), [])
    assert queried(loads.directory) == LEFT


def test_a_file_that_was_removed_with_two_vectors_stays_for_the_retention_of_the_last(loads, stored):
    name = largest_file(loads.directory)
    more = stored(loads.directory, [*DELETED, 30])
    delete_rows(loads.directory, name, more)
    compact(loads.directory, FS, SystemClock())
    for path in (*Path(loads.directory).glob("*.parquet"), *vector_files(loads.directory)):
        os.utime(path, (0, 0))
    old = len(vector_files(loads.directory)) // 2
    assert len(vacuum(loads.directory, FS, retention_hours=1).files) == old
    assert Path(loads.directory, name).exists()
    assert queried(loads.directory) == LEFT - {30}


@pytest.mark.parametrize("data_change", [True, False])
def test_rows_that_are_deleted_meanwhile_do_not_come_back(loads, stored, data_change):
    table, name = Table.load_to_write(loads.directory, FS), largest_file(loads.directory)
    delete_rows(loads.directory, name, stored(loads.directory, [*DELETED, 30]))
    with pytest.raises(StaleLedgerError, match="another engine deleted rows"):
        table.commit([], expected={}, transactions={}, lineage={}, removed=[NamedFile(name=name)],
                     data_change=data_change)  # fmt: skip
    assert queried(loads.directory) == LEFT - {30}


def test_the_audit_names_deleted_rows_and_the_way_to_bring_them_back(loads):
    path = Path(loads.directory, largest_file(loads.directory))
    found = audit(loads.directory)
    assert found[0] == (
        f"{path}: partition 0, offsets 3-4, 7, 11, 18, 29: deleted by another engine's deletion vector; `millrace "
        f"warehouse reload events --table {loads.directory} --partition 0 --from-offset 3 --until-offset 30` reads "
        "these records again; keys that `millrace warehouse erase` has erased stay erased"
    )
    [not_there] = found[1:]
    assert "6 offsets are not there: 3, 4, 7, 11, 18, …; `millrace warehouse reload" in not_there


def test_the_audit_takes_a_row_that_was_updated_for_there(loads):
    loads.add([*DELETED], lineage={})
    assert audit(loads.directory) == []


def test_deleted_letters_are_not_read(tmp_path, stored):
    loads = Loads(str(tmp_path / "events"))
    loads.load((0, 40), [], dead=range(40))
    beside = dead_letters_dir(loads.directory)
    delete_rows(beside, largest_file(beside), stored(beside, DELETED))
    assert [count.letters for count in count_reasons(loads.directory, EVERY_DEAD_LETTER)] == [40 - len(DELETED)]
    [finding, not_there] = audit(loads.directory)
    assert f"reload events --table {loads.directory} --partition 0" in finding
    assert "6 offsets are not there: 3, 4, 7, 11, 18, …" in not_there


READERS = {
    "rows": lambda location: Table.load(location, FS).dataset().to_table(),
    "query": queried,
    "preview": lambda location: preview(Table.load(location, FS), 50),
    "compact": lambda location: compact(location, FS, SystemClock()),
    "erase": lambda location: erase(location, [b"key-1"], FS),
    "audit": audit,
}


@pytest.mark.parametrize("read", READERS.values(), ids=list(READERS))
def test_a_vector_that_cannot_be_read_is_no_empty_one(tmp_path, read):
    loads = loaded(tmp_path / "events")
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40,
              "cardinality": 6}  # fmt: skip
    delete_rows(loads.directory, largest_file(loads.directory), vector)
    with pytest.raises(WarehouseError, match="can't be read"):
        raise WarehouseError("; ".join(read(loads.directory)))  # the audit says what the others raise
