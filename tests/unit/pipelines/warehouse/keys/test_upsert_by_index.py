"""An upsert reads what the indexes of keys name, makes those that are missing or wrong, and is never misled by one."""

from pathlib import Path

import pyarrow as pa
import pytest

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.completeness.stored_files import audit_stored_files
from millrace_pipelines.warehouse.keys.key_hashes import salt_of
from millrace_pipelines.warehouse.keys.key_index import EntriesOfRows
from millrace_pipelines.warehouse.maintenance import compact, vacuum
from millrace_pipelines.warehouse.table import files
from millrace_pipelines.warehouse.table.files import index_name
from millrace_support.upserts import Upserts

FS = OsFileSystem()


@pytest.fixture(params=[files.BLOCK_BYTES, 1], ids=["in one block", "row by row"])
def table(any_address, request, monkeypatch):
    """A table whose files are read in blocks of so many bytes."""
    monkeypatch.setattr(files, "BLOCK_BYTES", request.param)
    return Upserts(any_address)


def is_right(table, name):
    """Returns whether a file's index is there and has each of its rows."""
    entries = EntriesOfRows(salt_of(table.table.id))
    entries.add(pa.array(table.keys_of(name), pa.binary()))
    return table.index(name).read_bytes() == entries.content(name)


def test_every_file_of_an_upsert_has_its_index(table):
    table.run(b"a", b"b", b"c")
    counts = table.run(b"b", b"d")
    assert (counts.inserted, counts.updated) == (1, 1)
    assert table.keys() == [b"a", b"b", b"c", b"d"]
    assert all(is_right(table, name) for name in table.names())


def test_a_file_without_one_of_the_keys_is_not_opened(table):
    table.run(b"a", b"b")
    [untouched] = table.names()
    table.run(b"c", b"d")
    Path(table.location, untouched).write_bytes(b"not to be read")
    assert table.run(b"c").updated == 1


def test_a_file_of_another_engine_is_read_and_then_has_an_index(table):
    name = table.append(b"a", b"b", b"c")
    assert not table.index(name).exists()
    assert table.run(b"z").inserted == 1
    assert is_right(table, name)
    assert table.run(b"b").updated == 1
    assert table.keys() == [b"a", b"b", b"c", b"z"]


def lie(table, name, keys, of=None):
    """Writes an index that says that the rows of a file have other keys."""
    entries = EntriesOfRows(salt_of(table.table.id))
    entries.add(pa.array(keys, pa.binary()))
    table.index(name).write_bytes(entries.content(of or name))


DAMAGES = {
    "no index": lambda table, name: table.index(name).unlink(),
    "an empty index": lambda table, name: table.index(name).write_bytes(b""),
    "a torn index": lambda table, name: table.index(name).write_bytes(table.index(name).read_bytes()[:-5]),
    "a flipped bit": lambda table, name: table.index(name).write_bytes(
        bytes([*table.index(name).read_bytes()[:-1], table.index(name).read_bytes()[-1] ^ 1])),
    "the index of another file": lambda table, name: lie(table, name, [b"x", b"y", b"z"], of="another.parquet"),
    "other rows": lambda table, name: lie(table, name, [b"c", b"b", b"a"]),
    "too many rows": lambda table, name: lie(table, name, [b"x", b"y", b"z", b"a"]),
    "too few rows": lambda table, name: lie(table, name, [b"a"]),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_a_wrong_index_misleads_nobody_and_is_made_again(table, damage):
    table.run(b"a", b"b", b"c")
    [name] = table.names()
    damage(table, name)
    assert table.run(b"a").updated == 1
    assert is_right(table, name)
    assert table.keys() == [b"a", b"b", b"c"]


@pytest.mark.parametrize("damage", [one for what, one in DAMAGES.items() if what != "no index"])
def test_the_deep_audit_compares_indexes_with_their_files(table, damage):
    table.run(b"a", b"b", b"c")
    assert audit_stored_files(table.address).findings == ()
    [name] = table.names()
    damage(table, name)
    [finding] = audit_stored_files(table.address).findings
    assert finding.startswith(str(table.index(name)))
    table.index(name).unlink()
    table.run(b"a")
    assert audit_stored_files(table.address).findings == ()


def test_compacted_files_are_found_again(table):
    for key in (b"a", b"b", b"c"):
        table.run(key)
    compact(table.address, FS, SystemClock())
    assert (table.run(b"b").updated, table.run(b"d").inserted) == (1, 1)
    assert table.keys() == [b"a", b"b", b"c", b"d"]


def test_an_index_goes_with_its_file(table):
    table.run(b"a", b"b")
    [before] = table.names()
    table.run(b"a")
    orphan = table.index("part-of-another-engine.parquet")
    orphan.write_bytes(b"")
    looked = vacuum(table.address, FS, retention_hours=0, dry_run=True)
    assert table.index(before).exists()
    assert vacuum(table.address, FS, retention_hours=0).files == looked.files
    left = {path.name for path in Path(table.location, "_keys").iterdir()}
    assert left == {Path(index_name(name)).name for name in table.names()}


def test_a_run_that_is_not_committed_leaves_no_index(table, monkeypatch):
    table.run(b"a", b"b")
    before = sorted(Path(table.location, "_keys").iterdir())

    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr("millrace_pipelines.warehouse.keys.upsert.Rewrite", fail)
    with pytest.raises(MemoryError):
        table.run(b"a")
    assert sorted(Path(table.location, "_keys").iterdir()) == before
