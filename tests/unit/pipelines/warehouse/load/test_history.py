"""What a table's history says of each commit, read from its log."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from millrace.errors import WarehouseError
from millrace_pipelines.warehouse.delta.commits import commits_after, is_newest
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.load.history import LOOKED_BACK, commits_since, newest_load
from millrace_support.loads import FS, Loads

LOAD = {"rows": 3, "dead_letters": 1, "seconds": 0.5, "load_id": "l1", "run_id": "r1", "time_ms": 1000}
BACKFILLED = {"partition": 0, "from_offset": 0, "until_offset": 5, "rows": 4, "dead_letters": 1}
REPLACED = {"partition": 0, "from_offset": 5, "until_offset": 8, "rows": 3, "dead_letters": 0}
RELOAD = {"kind": "load", "load_id": "l2", "time_ms": 2000, "ranges": [BACKFILLED], "replaced": [REPLACED], "lost": []}
REPLAY = {"kind": "replay", "number": 1, "load_id": "l3", "time_ms": 3000, "rows": 2, "letters": {}}
ERASURE = {"kind": "erase", "absent": [{"partition": 0, "offsets": 2}, {"partition": 1, "offsets": 1}]}
COMPACTION = {"kind": "compact", "files_before": 2, "files_after": 1}


@pytest.fixture
def loads(tmp_path):
    """A table whose versions 1 to 5 are a load, a reload, a replay, an erasure and a compaction."""
    loads = Loads(str(tmp_path / "table"))
    table = Table.load(loads.directory, FS)
    for lineage in ({"kind": "load", "ranges": [], "lost": []} | LOAD, RELOAD, REPLAY, ERASURE, COMPACTION):
        table.commit([], expected={}, transactions={}, lineage=lineage)
    return loads


def table_of(loads):
    return Table.load(loads.directory, FS)


def test_each_commit_once_and_in_order(loads):
    found = commits_since(table_of(loads), -1)
    assert [(one.version, one.kind) for one in found] == [
        (0, "create table"), (1, "load"), (2, "reload"), (3, "replay"), (4, "erase"), (5, "compact"),
    ]  # fmt: skip
    assert [one.version for one in commits_since(table_of(loads), 3)] == [4, 5]
    assert [one.version for one in commits_since(table_of(loads), 0, 2)] == [1, 2]
    assert commits_since(table_of(loads), 5) == commits_since(table_of(loads), 9) == []


def test_what_each_did(loads):
    _, load, reload, replay, erasure, compaction = commits_since(table_of(loads), -1)
    assert (load.rows, load.dead_letters, load.time_ms) == (3, 1, 1000)
    assert (load.load_id, load.run_id, load.records_per_second) == ("l1", "r1", 8)
    assert (reload.rows, reload.dead_letters, reload.seconds, reload.records_per_second) == (7, 1, None, None)
    assert (replay.rows, replay.load_id, replay.run_id) == (2, "l3", None)
    assert (erasure.rows, erasure.removed) == (0, 3)
    assert erasure.time_ms > 1_700_000_000_000
    assert (compaction.rows, compaction.removed) == (0, 0)


def test_a_commit_of_another_program_has_the_name_that_delta_gives_it(loads):
    loads.add([1])
    DeltaTable(loads.directory).delete("offset = 1")
    assert commits_since(table_of(loads), 6)[-1].kind == "delete"


def test_files_and_bytes_are_those_that_the_commit_added(loads):
    loads.add([1, 2])
    [commit] = commits_since(table_of(loads), 5)
    [path] = loads.files()
    assert (commit.file_names, commit.bytes) == ((path.name,), path.stat().st_size)


def test_commits_that_the_log_has_no_longer_are_left_out(loads):
    log = Path(loads.directory) / "_delta_log"
    table_of(loads).create_checkpoint()
    for version in (0, 1, 2):
        (log / f"{version:020d}.json").unlink()
    assert [one.version for one in commits_since(table_of(loads), -1)] == [3, 4, 5]
    for path in log.glob("*.json"):
        path.unlink()
    assert commits_since(table_of(loads), -1) == []
    assert newest_load(table_of(loads)) is None


@pytest.mark.parametrize("content", [b'{"commitInfo"', b"\0" * 40, b'{"commitInfo":{"millrace.lineage":"[]"}}'])
def test_a_damaged_commit_is_named(loads, content):
    table = table_of(loads)
    (Path(loads.directory) / "_delta_log" / f"{2:020d}.json").write_bytes(content)
    with pytest.raises(WarehouseError, match="the commit of version 2"):
        commits_after(table, -1, 100)


def test_the_newest_load_is_found_behind_other_commits(loads):
    assert newest_load(table_of(loads)).version == 1
    table = table_of(loads)
    for _ in range(LOOKED_BACK - 5):
        table.commit([], expected={}, transactions={}, lineage=COMPACTION)
    assert newest_load(table_of(loads)).version == 1
    table.commit([], expected={}, transactions={}, lineage=COMPACTION)
    assert newest_load(table_of(loads)) is None


def test_whether_a_version_is_the_newest_is_seen_without_loading_the_table(loads):
    assert is_newest(loads.directory, 5, FS)
    assert not is_newest(loads.directory, 4, FS)
    assert not is_newest(loads.directory, 6, FS)
    assert not is_newest(loads.directory + "-none", 0, FS)
