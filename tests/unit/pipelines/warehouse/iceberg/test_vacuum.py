"""Vacuum of Iceberg tables: snapshots expire, and the files that nothing needs go, beside others at work."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from millrace.clock import SystemClock
from millrace.errors import WarehouseError
from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.errors import CatalogError, StaleLedgerError
from millrace_pipelines.warehouse.formats import load_table, load_to_write
from millrace_pipelines.warehouse.iceberg import catalogs, commits, requests
from millrace_pipelines.warehouse.iceberg.garbage import LEAST_HOURS, StoredFile, unneeded
from millrace_pipelines.warehouse.ledger.ledger import LedgerEntry, ledger_of, swap
from millrace_pipelines.warehouse.maintenance import MaintenancePolicy, maintain, vacuum
from millrace_pipelines.warehouse.stores.lease import LEASE_SUFFIX, LEASES_DIRECTORY
from millrace_pipelines.warehouse.stores.leases import lease
from millrace_support.iceberg_tables import (
    LostAnswerError,
    commit_range,
    commits_pass,
    each_once,
    load_range,
    made,
    offsets,
    other_engine,
    rows_of,
    written,
)
from millrace_support.unchanged import unchanged

FS = OsFileSystem()
HOUR_MS = 60 * 60 * 1000
OURS = "part-{}-00000-12345678-1234-1234-1234-123456789abc.parquet"


class Clock(SystemClock):
    """A clock that is ahead by some hours, as if files and snapshots had aged."""

    def __init__(self, hours):
        self._ahead_ms = int(hours * HOUR_MS)

    def now_ms(self):
        return super().now_ms() + self._ahead_ms


@pytest.fixture
def address(tmp_path):
    made(f"iceberg:{tmp_path}/lake/shop.events")
    return f"iceberg:{tmp_path}/lake/shop.events"


def there(address):
    root = Path(load_table(address, FS).location)
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    return {name for name in found if not name.startswith("_")}


def snapshots(address):
    return [one.sequence_number for one in other_engine(address).metadata.snapshots]


def overwritten(address):
    """Lets another engine write all rows again, so that the files of before belong to older snapshots alone."""
    before = load_table(address, FS).file_names()
    other_engine(address).overwrite(other_engine(address).scan().to_arrow())
    assert not {*before} & {*load_table(address, FS).file_names()}
    return set(before)


def test_what_older_snapshots_alone_need_goes_once_they_ended_so_long_ago(address):
    load_range(address, 10)
    old = overwritten(address)
    load_range(address, 20)
    before = there(address)
    assert vacuum(address, FS, retention_hours=48, clock=Clock(47)).files == ()
    assert there(address) == before
    would = vacuum(address, FS, retention_hours=48, clock=Clock(49), dry_run=True)
    assert there(address) == before
    assert len(snapshots(address)) > 1
    gone = vacuum(address, FS, retention_hours=48, clock=Clock(49))
    assert gone == replace(would, dry_run=False)
    assert old < set(gone.files)
    assert {name.partition("/")[0] for name in gone.files} == {"metadata", *old}
    assert snapshots(address) == [load_table(address, FS).version]
    assert offsets(load_table(address, FS)) == each_once(20)
    assert other_engine(address).scan().to_arrow().num_rows == 20
    assert load_range(address, 30) > 4
    assert len(load_table(address, FS).lineage()) == 3


def test_a_dry_run_changes_nothing(address, tmp_path):
    load_range(address, 10)
    overwritten(address)
    leases = Path(load_table(address, FS).location, LEASES_DIRECTORY)
    leases.mkdir(exist_ok=True)
    (leases / f"crashed{LEASE_SUFFIX}").touch()
    with unchanged(tmp_path):
        assert vacuum(address, FS, retention_hours=0, dry_run=True).files


def test_files_that_were_removed_go_at_once_without_a_retention(address):
    """As after an erasure, for which the rows have to be gone."""
    load_range(address, 10)
    old = overwritten(address)
    load_range(address, 20)
    assert old <= set(vacuum(address, FS, retention_hours=0).files)
    assert not old & there(address)
    assert offsets(load_table(address, FS)) == each_once(20)


def test_metadata_of_many_commits_goes(address, monkeypatch):
    monkeypatch.setattr(requests, "KEPT_SNAPSHOTS", 5)
    loaded = load_to_write(address, FS)
    for number in range(80):
        commit_range(loaded, number + 1)
    assert len([name for name in there(address) if name.endswith(".avro")]) > 100
    assert vacuum(address, FS, retention_hours=LEAST_HOURS, clock=Clock(LEAST_HOURS + 1)).files
    other = other_engine(address)
    lists = {one.manifest_list for one in other.metadata.snapshots}
    manifests = {one.manifest_path for one in other.current_snapshot().manifests(other.io)}
    assert {Path(path).name for path in lists | manifests} == {
        Path(name).name for name in there(address) if name.endswith(".avro")
    }
    assert offsets(load_table(address, FS)) == each_once(80)
    assert len(load_table(address, FS).lineage()) == 80


@pytest.mark.parametrize(
    ("hours", "name", "goes"),
    [
        (LEAST_HOURS - 1, OURS.format("crashed"), True),
        (LEAST_HOURS - 1, "day=2026-01-01/" + OURS.format("crashed"), True),
        (LEAST_HOURS - 1, "data/00000-0-12345678-1234-1234-1234-123456789abc-0-00001.parquet", False),
        (LEAST_HOURS + 1, "data/00000-0-12345678-1234-1234-1234-123456789abc-0-00001.parquet", True),
        (LEAST_HOURS - 1, "part-00000-12345678-1234-1234-1234-123456789abc-c000.snappy.parquet", False),
        (LEAST_HOURS - 1, "metadata/12-m0.avro", False),
        (LEAST_HOURS + 1, "metadata/12-m0.avro", True),
        (LEAST_HOURS + 1, "metadata/snap-12-1-12345678.avro", True),
        (LEAST_HOURS + 1, "metadata/00001-12345678.metadata.json", True),
        (LEAST_HOURS + 1, "metadata/00001-12345678.metadata.json.tmp", True),
        (LEAST_HOURS + 1, "metadata/version-hint.text", False),
        (LEAST_HOURS + 1, "_spark_metadata/0", False),
        (LEAST_HOURS + 1, ".hoodie/x.parquet", False),
        (LEAST_HOURS + 1, "inner/data/x.parquet", False),
    ],
)
def test_which_files_that_nothing_names_go(address, hours, name, goes):
    load_range(address, 10)
    root = Path(load_table(address, FS).location)
    for each in (name, "inner/metadata/00000-1.metadata.json"):
        path = root / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"left by a crash")
    gone = vacuum(address, FS, retention_hours=1, clock=Clock(hours)).files
    assert (name in gone) is goes
    assert (root / name).exists() is not goes
    assert "inner/metadata/00000-1.metadata.json" not in gone
    assert offsets(load_table(address, FS)) == each_once(10)


def test_files_of_a_running_load_stay(address):
    load_range(address, 10)
    loaded = load_to_write(address, FS)
    with lease(loaded.location, "running", FS):
        file = written(loaded, "running", 0, 10, 20)
        report = vacuum(address, FS, retention_hours=0, clock=Clock(1))
        assert report.running == 1
        expected, transactions = swap(ledger_of(loaded), {0: LedgerEntry(10, 20)})
        loaded.commit([file], expected=expected, transactions=transactions, lineage={})
    assert offsets(load_table(address, FS)) == each_once(20)


def test_a_request_that_is_on_its_way_is_refused_once_its_files_are_gone(address):
    """A load whose answer was lost has ended, and its request may still come."""
    load_range(address, 10)
    loaded = load_to_write(address, FS)
    file = written(loaded, "lost", 0, 10, 20)
    expected, transactions = swap(ledger_of(loaded), {0: LedgerEntry(10, 20)})
    late = []

    def act(commit):
        late.append(commit)
        raise LostAnswerError

    with pytest.MonkeyPatch.context() as patch, commits_pass(act):
        patch.setattr(catalogs.load_patiently.retry, "stop", lambda _: True)
        patch.setattr(catalogs, "load", down)
        with pytest.raises(WarehouseError, match="not answer"):
            loaded.commit([file], expected=expected, transactions=transactions, lineage={})
    assert file.name in vacuum(address, FS, retention_hours=0, clock=Clock(1)).files
    with pytest.raises(Exception, match="has changed"):
        late[0]()
    assert offsets(load_table(address, FS)) == each_once(10)


def down(_):
    raise CatalogError("the catalog is down")


@pytest.mark.parametrize("is_made", [True, False])
def test_a_catalog_that_does_not_answer_an_expiry_is_asked_again(address, is_made):
    load_range(address, 10)
    old = overwritten(address)
    load_range(address, 20)
    asked = []

    def act(commit):
        asked.append(commit)
        if len(asked) > 1:
            return commit()
        if is_made:
            commit()
        raise LostAnswerError

    with commits_pass(act):
        assert old <= set(vacuum(address, FS, retention_hours=48, clock=Clock(49)).files)
    assert len(asked) == (1 if is_made else 2)
    assert offsets(load_table(address, FS)) == each_once(20)


def test_a_catalog_that_stays_silent_removes_nothing(address, tmp_path):
    load_range(address, 10)
    overwritten(address)
    load_range(address, 20)
    before = there(address)

    def act(_):
        raise LostAnswerError

    with commits_pass(act), pytest.MonkeyPatch.context() as patch:
        patch.setattr(commits.PATIENCE, "wait", lambda _: 0)
        with pytest.raises(StaleLedgerError):
            vacuum(address, FS, retention_hours=48, clock=Clock(49))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlCatalog, "load_table", lambda *_: down(_))
        with pytest.raises(CatalogError):
            vacuum(address, FS, retention_hours=48, clock=Clock(49))
    assert there(address) == before


def test_branches_and_tags_keep_their_files(address):
    load_range(address, 10)
    kept = set(load_table(address, FS).file_names())
    other = other_engine(address)
    other.manage_snapshots().create_tag(other.metadata.current_snapshot_id, "audited").commit()
    gone = overwritten(address)
    load_range(address, 20)
    other = other_engine(address)
    other.manage_snapshots().create_branch(other.metadata.current_snapshot_id, "trial").commit()
    on_branch = set(load_table(address, FS).file_names())
    overwritten(address)
    load_range(address, 30)
    files = set(vacuum(address, FS, retention_hours=48, clock=Clock(49)).files)
    assert not files & (kept | on_branch)
    assert gone == kept
    tagged = other_engine(address).scan(snapshot_id=other_engine(address).metadata.refs["audited"].snapshot_id)
    assert tagged.to_arrow().num_rows == 10
    assert other_engine(address).scan(
        snapshot_id=other_engine(address).metadata.refs["trial"].snapshot_id
    ).to_arrow().num_rows == 20  # fmt: skip


def test_the_snapshot_with_the_ledger_stays_below_those_of_others(address):
    load_range(address, 10)
    other_engine(address).append(rows_of(7, 0, 1))
    other_engine(address).append(rows_of(7, 1, 2))
    vacuum(address, FS, retention_hours=48, clock=Clock(49))
    assert snapshots(address) == [1, 2, 3]
    assert ledger_of(load_table(address, FS)).partitions == {0: LedgerEntry(0, 10)}
    assert load_range(address, 20) == 4


def test_a_version_that_a_commit_expired_early_keeps_its_files_for_the_retention(address, monkeypatch):
    """A reader may have it still: it was current until lately, though the next commits were many."""
    monkeypatch.setattr(requests, "KEPT_SNAPSHOTS", 5)
    load_range(address, 10)
    old = set(load_table(address, FS).file_names())
    root = Path(load_table(address, FS).location)
    for path in root.rglob("*.*"):
        os.utime(path, (1_000_000, 1_000_000))
    overwritten(address)
    for number in range(10):
        load_range(address, 11 + number)
    assert 1 not in snapshots(address)
    assert not old & set(vacuum(address, FS, retention_hours=48).files)
    assert old <= there(address)
    assert old <= set(vacuum(address, FS, retention_hours=48, clock=Clock(49)).files)


def test_a_table_whose_garbage_is_not_collected_keeps_all(address):
    load_range(address, 10)
    overwritten(address)
    with other_engine(address).transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    before = there(address)
    assert vacuum(address, FS, retention_hours=0, clock=Clock(99)).files == ()
    assert there(address) == before
    assert len(snapshots(address)) > 1


def test_files_that_a_store_lists_in_another_spelling_stay():
    files = [StoredFile(name, 0) for name in ("hour=01%3A00/a.parquet", "hour=02:00/b.parquet", "hour=03/c.parquet")]
    needed = {"hour=01:00/a.parquet", "hour=02%3A00/b.parquet"}
    assert unneeded(files, needed, now_ms=99 * HOUR_MS, retention_hours=0) == ["hour=03/c.parquet"]


def test_files_that_others_name_by_another_scheme_stay(address):
    """`file:///x` and `/x` are one place, as `s3a://` and `s3://` are."""
    load_range(address, 10)
    other = other_engine(address)
    path = f"{load_table(address, FS).location}/data/theirs.parquet"
    Path(path).parent.mkdir()
    theirs = Path(load_table(address, FS).files()[0]).read_bytes()
    Path(path).write_bytes(theirs)
    other.add_files([path], check_duplicate_files=False)
    assert "data/theirs.parquet" not in vacuum(address, FS, retention_hours=0, clock=Clock(99)).files
    assert Path(path).exists()


def test_upkeep_keeps_an_iceberg_table(address):
    loaded = load_to_write(address, FS)
    for number in range(12):
        commit_range(loaded, number + 1)
    [report] = maintain(address, FS, Clock(0), MaintenancePolicy(retention_hours=0))
    assert (report.compaction.files_before, report.compaction.files_after) == (12, 1)
    assert report.checkpoint_version is None
    assert len(report.vacuum.files) >= 12
    assert offsets(load_table(address, FS)) == each_once(12)
