"""Vacuum: files that no reader needs any more are removed.

    removed files     named by an older version only: kept until the retention has passed since their removal
    orphans           named by no version, left by a crash or a lost race: kept until they are as old as the retention,
                      and for as long as their operation holds a lease; also files of offsets that no lineage names
    deletion vectors  of other engines: kept like the files that they are of (`delta.vector_files`)

What the table names now, and what a running operation has written, stays whatever the retention. The log is synced
before a file is removed, so that no power cut brings back a version that names it, and the removal is durable when the
report names the file. A crash leaves some of the files to the next vacuum.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace.clock import Clock, SystemClock
from millrace.fs import FileSystem
from millrace_pipelines.warehouse.delta.files import operation_of
from millrace_pipelines.warehouse.delta.leases import held_leases, is_leased
from millrace_pipelines.warehouse.delta.offset_sets import named_by, offset_files
from millrace_pipelines.warehouse.delta.protocol import Access
from millrace_pipelines.warehouse.delta.store import store_at
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.delta.vector_files import files_of_versions
from millrace_pipelines.warehouse.errors import ModeError

DEFAULT_RETENTION_HOURS = 7 * 24
MIN_UNLEASED_RETENTION_HOURS = 24
HOUR_MS = 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumReport:
    """What was removed from one table, or would be; `running` counts files that were left to running operations."""

    table: str
    files: tuple[str, ...]
    bytes: int
    running: int
    dry_run: bool


def vacuum(
    location: str,
    fs: FileSystem,
    *,
    retention_hours: int = DEFAULT_RETENTION_HOURS,
    dry_run: bool = False,
    clock: Clock | None = None,
) -> VacuumReport:
    """Deletes removed files and orphans that are older than the retention, by `clock` or else the machine's clock.

    Raises:
        TableNotFoundError: There is no table at the location.
        TableRefusedError: The table uses something of Delta's protocol with which it can't be vacuumed.
        ModeError: The retention is too short for an object store, which has no leases.
    """
    store = store_at(location, fs)
    if not is_leased(store) and retention_hours < MIN_UNLEASED_RETENTION_HOURS:
        raise ModeError(f"{location}: an object store has no leases, so that files younger than "
                        f"{MIN_UNLEASED_RETENTION_HOURS} h may be a running load's")  # fmt: skip
    there = set(store.names())
    table = Table.load(location, fs)
    table.check_access(Access.REARRANGE)
    unneeded = [name for name in table.unneeded_files(retention_hours) if name in there]
    before_ms = (clock or SystemClock()).now_ms() - retention_hours * HOUR_MS
    old_offsets = offset_files(store, sorted(there), before_ms)
    running = held_leases(location, fs, dry_run=dry_run)
    table = Table.load(location, fs)
    named = {
        *table.file_names(),
        *files_of_versions(table, before_ms),
        *named_by(table.lineage() if old_offsets else ()),
    }
    candidates = [name for name in (*unneeded, *old_offsets) if name not in named]
    files = [name for name in candidates if operation_of(name) not in running]
    size_bytes = sum(store.size_bytes(name) or 0 for name in files)
    if files and not dry_run:
        table.sync_log()
        store.remove_durably(files)
    return VacuumReport(
        table=location,
        files=tuple(files),
        bytes=size_bytes,
        running=len(candidates) - len(files),
        dry_run=dry_run,
    )
