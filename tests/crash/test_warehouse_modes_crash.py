"""kill -9 of upsert, erasure, compaction and vacuum at their steps; races of them; the order of their syncs."""

import errno
import os
import runpy
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_pipelines.arrow import ENVELOPE_SCHEMA
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.errors import StaleLedgerError
from millrace_pipelines.warehouse.keys.erase import erase
from millrace_pipelines.warehouse.maintenance import compact, vacuum
from millrace_pipelines.warehouse.rewrite import Rewrite, commit_rewrite, current_files
from millrace_pipelines.warehouse.stores.leases import held_leases, lease
from millrace_pipelines.warehouse.table.files import DataFileWriter

FS = OsFileSystem()
SCRIPT = str(Path(__file__).with_name("modes_and_die.py"))
PROPERTIES = {"millrace.topic": "events", "millrace.topicId": "id", "millrace.mode": "upsert"}
KEYS = [b"key %d" % number for number in range(30)]
script = runpy.run_path(SCRIPT)
upsert, operate, rows_of = (script[name] for name in ("upsert", "operate", "rows_of"))


@pytest.fixture
def table(tmp_path):
    """Three files of ten keys each, and three that vacuum is to take away."""
    directory = str(tmp_path / "t")
    Table.load_or_create(directory, FS, schema=ENVELOPE_SCHEMA, name="events", configuration=PROPERTIES)
    for value in (b"old", b"first"):
        for start in (0, 10, 20):
            upsert(directory, [(key, value) for key in KEYS[start : start + 10]], FS)
    return directory


def held(directory):
    files = Table.load(directory, FS).files()
    rows = ds.dataset(files).to_table().to_pylist() if files else []
    assert len({row["key"] for row in rows}) == len(rows)
    return {row["key"]: row["value"] for row in rows}


def data_files(directory):
    return sorted(str(path) for path in Path(directory).glob("*.parquet"))


BEFORE = dict.fromkeys(KEYS, b"first")
DONE = {
    "upsert": dict.fromkeys(KEYS, b"newer"),
    "erase": {key: value for key, value in BEFORE.items() if key != b"key 1"},
    "compact": BEFORE,
    "vacuum": BEFORE,
}


@pytest.mark.parametrize(
    ("operation", "step"),
    [(operation, step) for operation in ("upsert", "erase", "compact") for step in ("written", "before", "after")]
    + [("vacuum", "removed")],
)
def test_a_killed_operation_is_whole_or_not_there(table, operation, step):
    killed = subprocess.run([sys.executable, SCRIPT, table, operation, step], check=False, timeout=400)
    assert killed.returncode == -signal.SIGKILL
    assert held(table) == (DONE[operation] if step == "after" else BEFORE)
    operate(table, operation, FS)
    assert held(table) == DONE[operation]
    vacuum(table, FS, retention_hours=0)
    assert data_files(table) == Table.load(table, FS).files()
    assert held_leases(table, FS) == set()


def beside(done, errors, operation):
    """Calls the operation until `done` is set; it may raise StaleLedgerError, where other commits always come first."""
    while not done.is_set():
        try:
            operation()
        except StaleLedgerError:
            continue
        except BaseException as error:  # noqa: BLE001  shown by the test
            errors.append(error)
            return


def test_upserts_erasures_compactions_and_vacuums_at_once(table):
    done, errors, model = threading.Event(), [], dict(BEFORE)
    others = [
        lambda: compact(table, FS, SystemClock()),
        lambda: vacuum(table, FS, retention_hours=0),
        lambda: erase(table, [b"nobody"], FS),
    ]
    threads = [threading.Thread(target=beside, args=[done, errors, operation]) for operation in others]
    for thread in threads:
        thread.start()
    runs = 0
    for run in range(12):
        pairs = [(KEYS[(run * 7 + n) % 30], None if n == 4 else b"run %d" % run) for n in range(9)]
        try:
            upsert(table, pairs, FS, load_id=f"load{run}")
        except StaleLedgerError:
            continue
        runs += 1
        model = {key: value for key, value in {**model, **dict(pairs)}.items() if value is not None}
    done.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert runs > 0
    assert held(table) == model


def test_of_two_rewrites_of_one_version_one_is_refused(table):
    first, second = Table.load(table, FS), Table.load(table, FS)
    removed = current_files(first)[:1]
    commit_rewrite(first, Rewrite(added=[], removed=removed, lineage={}, data_change=False))
    with pytest.raises(StaleLedgerError):
        commit_rewrite(second, Rewrite(added=[], removed=removed, lineage={}, data_change=False))


def test_vacuum_leaves_what_a_running_operation_has_written(table):
    vacuum(table, FS, retention_hours=0)
    with lease(table, "running", FS):
        with DataFileWriter(table, "running", 0, ENVELOPE_SCHEMA, FS) as writer:
            writer.write(rows_of([(b"a", b"b")], 100))
            file = writer.finish()
        assert held_leases(table, FS) == {"running"}
        assert vacuum(table, FS, retention_hours=0).running == 1
        assert os.path.exists(os.path.join(table, file.name))
    assert vacuum(table, FS, retention_hours=0, dry_run=True).files == (file.name,)
    assert vacuum(table, FS, retention_hours=1).files == ()
    assert vacuum(table, FS, retention_hours=0).files == (file.name,)


def test_removed_files_stay_for_the_retention(table):
    upsert(table, [(KEYS[0], b"again")], FS)
    for path in data_files(table):
        os.utime(path, (0, 0))  # old as they are, they were removed just now
    assert vacuum(table, FS, retention_hours=1).files == ()
    removed = vacuum(table, FS, retention_hours=0).files
    assert len([one for one in removed if one.endswith(".parquet")]) == 4


class RecordingFileSystem(OsFileSystem):
    def __init__(self, directory):
        self.directory, self.names, self.synced = directory, {}, []

    def open(self, path, *, create=False):
        fd = super().open(path, create=create)
        self.names[fd] = path
        return fd

    def fsync(self, fd):
        super().fsync(fd)
        self.note(self.names[fd])

    def fsync_dir(self, path):
        super().fsync_dir(path)
        self.note(path)

    def note(self, path):
        self.synced.append(
            (os.path.relpath(path, self.directory), tuple(map(os.path.basename, data_files(self.directory))))
        )


@pytest.mark.parametrize("operation", ["upsert", "erase", "compact"])
def test_data_files_are_synced_before_the_commit_and_the_log_after_it(table, operation):
    before = set(data_files(table))
    fs = RecordingFileSystem(table)
    operate(table, operation, fs)
    paths = [path for path, _ in fs.synced]
    table = Table.load(table, FS)
    commit = f"_delta_log/{table.version:020d}.json"
    new = [os.path.basename(path) for path in table.files() if path not in before]
    assert new
    for name in new:
        assert paths.index(name) < paths.index(".", paths.index(name)) < paths.index(commit)
    assert "_delta_log" in paths[paths.index(commit) :]


@pytest.mark.parametrize("operation", ["upsert", "erase", "compact"])
def test_a_rewrite_syncs_the_commit_that_it_builds_on_first(table, operation):
    version = Table.load(table, FS).version
    fs = RecordingFileSystem(table)
    operate(table, operation, fs)
    paths = [path for path, _ in fs.synced]
    assert paths.index(f"_delta_log/{version:020d}.json") < paths.index(f"_delta_log/{version + 1:020d}.json")


def test_vacuum_syncs_the_log_before_and_the_names_after(table):
    fs = RecordingFileSystem(table)
    files = [one for one in vacuum(table, fs, retention_hours=0).files if one.endswith(".parquet")]  # beside their keys
    assert files
    log = [there for path, there in fs.synced if path == f"_delta_log/{Table.load(table, FS).version:020d}.json"]
    assert set(files) <= set(log[0])
    after = dict(fs.synced[-2:])
    assert after.keys() == {".", "_keys"}
    assert not set(files) & set(after["."])


@pytest.mark.parametrize("operation", ["upsert", "erase", "compact"])
def test_a_file_that_cannot_be_synced_is_never_committed(table, operation):
    class FailingFileSystem(RecordingFileSystem):
        def fsync(self, fd):
            if self.names[fd].endswith(".parquet"):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().fsync(fd)

    before, version = data_files(table), Table.load(table, FS).version
    with pytest.raises(OSError, match="Input/output error"):
        operate(table, operation, FailingFileSystem(table))
    assert Table.load(table, FS).version == version
    assert held(table) == BEFORE
    assert [path for path in data_files(table) if path not in before and "part-load-" not in path] == []
