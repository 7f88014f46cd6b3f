"""What keeps tables in good order, each step safe beside a running load and complete in itself.

    compaction     where there are at least `min_small_files` small files
    checkpoint     at least `min_commits` commits after the last one
    vacuum         always, of files that are older than the retention

A table's dead letters get the same (`maintain`). What a crash leaves undone, the next run does.

Compaction makes few large files of many small ones, with the same rows. A file is small below three quarters of the
target size; larger ones are left as they are. Small files are put into bins of about the target size, in the order of
their partitions and offsets, so that the bounds in the log stay narrow; a bin with one file is left too. A file with a
deletion vector is written without the deleted rows, whatever its size. As many bins
as tasks run at once are written and committed together, so that a crash or a lost race costs no more than those.
The ledger stays as it is, and readers of the table's changes see none.

Vacuum removes files that no reader needs any more:

    removed files     named by an older version only: kept until the retention has passed since their removal
    orphans           named by no version, left by a crash or a lost race: kept until they are as old as the retention,
                      and for as long as their operation holds a lease; also files of offsets that no lineage names
    indexes of keys   as soon as their data file is gone
    deletion vectors  kept like the files that they are of (`delta.log_actions`); one that no version names is kept for
                      as long as any operation holds a lease, for its name has no operation
    snapshots         of Iceberg, which expire first; metadata goes like files that were removed (`iceberg.garbage`)

What the table names now, and what a running operation has written, stays whatever the retention. The log is synced
before a file is removed, so that no power cut brings back a version that names it, and the removal is durable when the
report names the file. A crash leaves some of the files to the next vacuum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from millrace.clock import Clock
from millrace.errors import WarehouseError
from millrace.fs import FileSystem
from millrace_pipelines.machine import CLOCK
from millrace_pipelines.warehouse.dead_letters import companions
from millrace_pipelines.warehouse.formats import load_if_there, load_table, location_of
from millrace_pipelines.warehouse.rewrite import CurrentFile, Rewrite, current_files, rewrite, rows_to_move, writer
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.leases import asked_leases, forget_ended
from millrace_pipelines.warehouse.stores.store import DEAD_LETTERS_SUFFIX, dead_letters_dir
from millrace_pipelines.warehouse.table.access import Access
from millrace_pipelines.warehouse.table.files import DataFile, indexed_name, is_vector, operation_of
from millrace_pipelines.warehouse.table.lineage import named_by, offset_files
from millrace_pipelines.warehouse.table.table import Table
from millrace_pipelines.warehouse.task_table import TaskTable
from millrace_pipelines.warehouse.tasks import THREADS, Tasks

DEFAULT_TARGET_BYTES = 256 << 20
DEFAULT_RETENTION_HOURS = 7 * 24
HOUR_MS = 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """The result of compacting one table; `version` is None where there was nothing to compact."""

    table: str
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0
    seconds: float = 0.0
    version: int | None = None


def plan_compaction(files: Iterable[CurrentFile], target_bytes: int) -> list[list[CurrentFile]]:
    """Puts small files with the same partition values into bins of about the target size, of at least two files.

    A file with a deletion vector is put into one whatever its size, and may be alone there.
    """
    bins: list[list[CurrentFile]] = []
    chosen = (file for file in files if file.size_bytes < target_bytes * 3 // 4 or file.has_vector)
    for file in sorted(chosen, key=_order):
        if bins and bins[-1][0].partition_values == file.partition_values and _size(bins[-1], file) <= target_bytes:
            bins[-1].append(file)
        else:
            bins.append([file])
    return [files for files in bins if len(files) > 1 or files[0].has_vector]


def _size(files: Iterable[CurrentFile], one_more: CurrentFile) -> int:
    return sum(file.size_bytes for file in files) + one_more.size_bytes


def _order(file: CurrentFile) -> tuple[list[tuple[bool, str]], tuple[int, ...], tuple[int, ...], str]:
    """Returns a file's sort key: its folder, then its least partition and offset, then its name."""
    folder = [(value is not None, value or "") for value in file.partition_values.values()]
    return folder, file.partitions or (0,), file.offsets or (0,), file.name


def compact(
    address: str,
    fs: FileSystem,
    clock: Clock,
    *,
    target_bytes: int = DEFAULT_TARGET_BYTES,
    tasks: Tasks = THREADS,
) -> CompactionReport:
    """Joins a table's small files into larger ones, in as many commits as it takes, each file in one of the tasks.

    Raises:
        TableNotFoundError: There is no table at the address.
        TableRefusedError: The table uses something of Delta's protocol with which it can't be compacted.
        StaleLedgerError: Others rewrote the table at every attempt; bins that were committed before stay compacted.
    """
    started_ms = clock.monotonic_ms()
    report = CompactionReport(table=address)
    written: set[str] = set()
    while True:
        wave = _Wave(fs, target_bytes, written, tasks)
        version = rewrite(address, fs, wave.make, Access.REARRANGE, tasks=tasks)
        if version is None:
            return report
        written |= {file.name for file in wave.after}
        report = replace(
            report,
            files_before=report.files_before + len(wave.before),
            files_after=report.files_after + len(wave.after),
            bytes_before=report.bytes_before + sum(file.size_bytes for file in wave.before),
            bytes_after=report.bytes_after + sum(file.size_bytes for file in wave.after),
            rows=report.rows + sum(file.rows for file in wave.after),
            seconds=(clock.monotonic_ms() - started_ms) / 1000,
            version=version,
        )


class _Wave:
    """One commit of a compaction: as many bins (files to join) as tasks run at once, without files it wrote itself."""

    def __init__(self, fs: FileSystem, target_bytes: int, written: AbstractSet[str], tasks: Tasks) -> None:
        self._fs = fs
        self._target_bytes = target_bytes
        self._written = written
        self._tasks = tasks
        self.before: list[CurrentFile] = []
        self.after: list[DataFile] = []

    def make(self, table: Table, operation_id: str) -> Rewrite | None:
        """Writes a file for each bin of this version's small files; returns None where nothing is to be joined."""
        files = [file for file in current_files(table) if file.name not in self._written]
        bins = plan_compaction(files, self._target_bytes)[: self._tasks.at_once]
        if not bins:
            return None
        join = _Join(TaskTable.of(table, self._fs, operation_id), operation_id)
        self.after = [file for file in self._tasks.run(join, enumerate(bins)) if file is not None]
        self.before = [file for files in bins for file in files]
        lineage = {"kind": "compact", "files_before": len(self.before), "files_after": len(self.after)}
        return Rewrite(added=self.after, removed=self.before, lineage=lineage, data_change=False)


@dataclass(frozen=True, slots=True)
class _Join:
    """Writes the rows of several files into one."""

    table: TaskTable
    operation_id: str

    def __call__(self, piece: tuple[int, Sequence[CurrentFile]]) -> DataFile | None:
        number, files = piece
        with writer(self.table, self.operation_id, number, self.table.fs, files[0]) as output:
            for file in files:
                for rows in rows_to_move(self.table, file.name):
                    output.write(rows)
            joined = output.finish()
        if (0 if joined is None else joined.rows) != sum(file.rows for file in files):
            raise WarehouseError(
                f"{self.table.location}: {[file.name for file in files]} have not the rows the log says"
            )
        return joined


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumReport:
    """The files that a vacuum removed from one table, or would.

    `running` counts those that it left to running operations.
    """

    table: str
    files: tuple[str, ...]
    bytes: int
    running: int
    dry_run: bool


def vacuum(
    address: str,
    fs: FileSystem,
    *,
    retention_hours: int = DEFAULT_RETENTION_HOURS,
    dry_run: bool = False,
    clock: Clock = CLOCK,
) -> VacuumReport:
    """Deletes files that were removed from the table, or never committed, and are older than the retention.

    Raises:
        TableNotFoundError: There is no table at the address.
        TableRefusedError: The table uses something of Delta's protocol with which it can't be vacuumed.
    """
    store = store_at(location_of(address, fs), fs)
    there = set(store.names())
    table = load_table(address, fs, clock)
    table.check_access(Access.REARRANGE)
    before_ms = clock.now_ms() - retention_hours * HOUR_MS
    table.expire(before_ms, dry_run=True)
    unneeded = [name for name in table.unneeded_files(retention_hours) if name in there]
    old_offsets = offset_files(store, sorted(there), before_ms)
    running = _running(address, fs, dry_run=dry_run)
    table = load_table(address, fs, clock)
    table.expire(before_ms, dry_run=dry_run)
    named = {
        *table.file_names(),
        *table.files_of_versions(before_ms),
        *named_by(table.lineage() if old_offsets else ()),
    }
    candidates = [name for name in (*unneeded, *old_offsets) if name not in named]
    left = [name for name in candidates if _may_be_of(name, running)]
    files = [name for name in candidates if name not in left]
    files += _indexes_without_files(there, files, running)
    size_bytes = sum(store.size_bytes(name) or 0 for name in files)
    if files and not dry_run:
        table.sync_log()
        store.remove_durably(files)
    return VacuumReport(
        table=address,
        files=tuple(files),
        bytes=size_bytes,
        running=len(left),
        dry_run=dry_run,
    )


def _may_be_of(name: str, running: AbstractSet[str]) -> bool:
    """Returns whether a file may have been written by one of the running operations."""
    return operation_of(name) in running or (is_vector(name) and bool(running))


def _indexes_without_files(there: AbstractSet[str], removed: Iterable[str], running: AbstractSet[str]) -> list[str]:
    """Returns the names of the indexes of keys whose data files are gone, or are removed now."""
    stays = there - {*removed}
    indexes = sorted(name for name in there if indexed_name(name) is not None and operation_of(name) not in running)
    return [name for name in indexes if indexed_name(name) not in stays]


def _running(address: str, fs: FileSystem, *, dry_run: bool) -> AbstractSet[str]:
    """Returns the operations that run on a table; unless `dry_run`, those that don't any more can't commit after this.

    What an operation whose lease had to be ended may still have on its way, a fence keeps out of the table and of its
    dead letters.
    """
    rows = address.rstrip("/").removesuffix(DEAD_LETTERS_SUFFIX)
    held: set[str] = set()
    for location in {location_of(each, fs) for each in (address, rows) if load_if_there(each, fs) is not None}:
        asked = asked_leases(location, fs, dry_run=dry_run)
        held |= asked.held
        if asked.ended:
            for each in (rows, dead_letters_dir(rows)):
                if (table := load_if_there(each, fs)) is not None:
                    table.fence()
            forget_ended(location, asked.ended, fs)
    return held


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePolicy:
    """The bounds from which on a table is compacted, checkpointed and vacuumed.

    Attributes:
        target_bytes: The size of compacted files.
        min_small_files: The number of small files from which a table is compacted.
        min_commits: The number of commits after the last checkpoint from which there is another.
        retention_hours: The age from which a file that no version names is removed.
    """

    target_bytes: int = DEFAULT_TARGET_BYTES
    min_small_files: int = 10
    min_commits: int = 10
    retention_hours: int = DEFAULT_RETENTION_HOURS


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport:
    """The results of maintaining one table; None for a step that the table did not need."""

    table: str
    compaction: CompactionReport | None
    checkpoint_version: int | None
    vacuum: VacuumReport


def maintain(
    address: str, fs: FileSystem, clock: Clock, policy: MaintenancePolicy, *, tasks: Tasks = THREADS
) -> list[MaintenanceReport]:
    """Compacts, checkpoints and vacuums a table and its dead letters, as far as the policy says that they need it.

    Compaction runs in the tasks.

    Raises:
        TableNotFoundError: There is no table at the address.
        TableRefusedError: One of them uses something of Delta's protocol that can't be obeyed.
        StaleLedgerError: Others rewrote the table at every attempt.
    """
    load_table(address, fs)
    tables = (address, *companions(address, fs))
    for each in tables:
        load_table(each, fs).check_access(Access.REARRANGE)
    return [_keep(each, fs, clock, policy, tasks) for each in tables]


def checkpoint(address: str, fs: FileSystem) -> int:
    """Writes a checkpoint of the newest version and returns that version."""
    table = load_table(address, fs)
    table.create_checkpoint()
    return table.version


def _keep(address: str, fs: FileSystem, clock: Clock, policy: MaintenancePolicy, tasks: Tasks) -> MaintenanceReport:
    small, done = _small_files(address, fs, policy), None
    if small >= policy.min_small_files:
        done = compact(address, fs, clock, target_bytes=policy.target_bytes, tasks=tasks)
    table = load_table(address, fs)
    is_due = table.version - (table.checkpoint_version() or 0) >= policy.min_commits
    return MaintenanceReport(
        table=address,
        compaction=done,
        checkpoint_version=checkpoint(address, fs) if is_due else None,
        vacuum=vacuum(address, fs, retention_hours=policy.retention_hours),
    )


def _small_files(address: str, fs: FileSystem, policy: MaintenancePolicy) -> int:
    """Returns how many files a compaction would join."""
    bins = plan_compaction(current_files(load_table(address, fs)), policy.target_bytes)
    return sum(len(files) for files in bins)
