"""What commits said of themselves outlives the log: a cleanup of it changes neither the audit nor the lineage."""

import os
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from millrace_pipelines.warehouse.completeness.audit import audit
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.store import LINEAGE_FOLDER
from millrace_pipelines.warehouse.table.lineage import MANY_FILES, keep_lineage, kept_lineage
from millrace_support.loads import FS, Loads

DAYS_40_S = 40 * 24 * 60 * 60


@pytest.fixture
def loads(tmp_path):
    made = Loads(str(tmp_path / "table"))
    for number in range(12):
        made.load((number * 10, number * 10 + 10), range(number * 10, number * 10 + 9), dead=[number * 10 + 9])
    return made


def commits_of(directory):
    return sorted(Path(directory, "_delta_log").glob("*.json"))


def clean(directory):
    """Has delta-rs remove the commits that a checkpoint stands for, as if they were 40 days old."""
    Table.load(directory, FS).create_checkpoint()
    for commit in commits_of(directory):
        os.utime(commit, (time.time() - DAYS_40_S,) * 2)
    before = len(commits_of(directory))
    DeltaTable(directory).cleanup_metadata()
    assert len(commits_of(directory)) < before


def test_a_cleanup_of_the_log_changes_neither_lineage_nor_audit(loads):
    before = Table.load(loads.directory, FS).lineage()
    for directory in (loads.directory, loads.directory + "__dead_letters"):
        clean(directory)
    assert Table.load(loads.directory, FS).lineage() == before
    assert audit(loads.directory) == []
    loads.load((120, 130), range(120, 130))
    assert len(Table.load(loads.directory, FS).lineage()) == len(before) + 1
    assert audit(loads.directory) == []


def test_the_lineage_of_a_commit_that_a_crash_left_alone_comes_with_the_next_one(loads):
    [newest] = sorted(Path(loads.directory, LINEAGE_FOLDER).glob("*.json"))[-1:]
    newest.unlink()
    copy = Path(loads.directory, "_ledger.json")
    copy.unlink()
    loads.load((120, 130), range(120, 130))
    clean(loads.directory)
    assert [one["version"] for one in Table.load(loads.directory, FS).lineage()] == list(range(1, 14))


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b'{"lineage": ["id", {}], "crc32": 1}'])
def test_a_damaged_file_counts_as_none(loads, damage):
    [newest] = sorted(Path(loads.directory, LINEAGE_FOLDER).glob("*.json"))[-1:]
    newest.write_bytes(damage)
    table = Table.load(loads.directory, FS)
    assert len(kept_lineage(store_at(loads.directory, FS), table.id)) == 11
    assert len(table.lineage()) == 12  # the log has it still


def test_files_of_another_table_are_not_read(loads):
    assert kept_lineage(store_at(loads.directory, FS), "another") == {}


def test_many_files_become_one(tmp_path):
    store = store_at(str(tmp_path), FS)
    for version in range(MANY_FILES + 1):
        keep_lineage(store, "id", {version: {"kind": "load", "version": version}})
    [file] = Path(tmp_path, LINEAGE_FOLDER).glob("*.json")
    assert file.name == f"{0:020d}-{MANY_FILES:020d}.json"
    assert list(kept_lineage(store, "id")) == list(range(MANY_FILES + 1))


def test_a_vacuum_leaves_the_files(loads):
    DeltaTable(loads.directory).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert len(list(Path(loads.directory, LINEAGE_FOLDER).glob("*.json"))) == 12


def test_the_log_counts_where_it_has_the_commit(loads):
    table = Table.load(loads.directory, FS)
    before = table.lineage()
    keep_lineage(store_at(loads.directory, FS), table.id, {0: {"kind": "load"}, 3: {"kind": "other"}, 99: {}})
    assert table.lineage() == before
