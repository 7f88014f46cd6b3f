"""Maintenance by policy: a table gets what it needs.

    compaction     where there are at least `min_small_files` small files
    checkpoint     at least `min_commits` commits after the last one
    vacuum         always, of files that are older than the retention

A table's dead letters get the same. Each step is safe beside a running load and complete in itself; what a crash leaves
undone, the next run does.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace.clock import Clock
from millrace.fs import FileSystem
from millrace_pipelines.warehouse.delta.protocol import Access
from millrace_pipelines.warehouse.delta.rewrite import current_files
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.maintenance.compact import (
    DEFAULT_TARGET_BYTES,
    CompactionReport,
    compact,
    plan_compaction,
)
from millrace_pipelines.warehouse.maintenance.vacuum import DEFAULT_RETENTION_HOURS, VacuumReport, vacuum
from millrace_pipelines.warehouse.tables.companions import companions


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePolicy:
    """When something is done.

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
    """What was done for one table; None for a step that it did not need."""

    table: str
    compaction: CompactionReport | None
    checkpoint_version: int | None
    vacuum: VacuumReport


def maintain(location: str, fs: FileSystem, clock: Clock, policy: MaintenancePolicy) -> list[MaintenanceReport]:
    """Does what a table and its dead letters need.

    Raises:
        TableNotFoundError: There is no table at the location.
        TableRefusedError: One of them uses something of Delta's protocol that can't be obeyed.
        StaleLedgerError: Others rewrote the table at every attempt.
    """
    Table.load(location, fs)
    tables = (location, *companions(location, fs))
    for each in tables:
        Table.load(each, fs).check_access(Access.REARRANGE)
    return [_keep(each, fs, clock, policy) for each in tables]


def checkpoint(location: str, fs: FileSystem) -> int:
    """Writes a checkpoint of the newest version and returns that version."""
    table = Table.load(location, fs)
    table.create_checkpoint()
    return table.version


def _keep(location: str, fs: FileSystem, clock: Clock, policy: MaintenancePolicy) -> MaintenanceReport:
    small = sum(len(files) for files in plan_compaction(current_files(Table.load(location, fs)), policy.target_bytes))
    done = compact(location, fs, clock, target_bytes=policy.target_bytes) if small >= policy.min_small_files else None
    table = Table.load(location, fs)
    is_due = table.version - (table.checkpoint_version() or 0) >= policy.min_commits
    return MaintenanceReport(
        table=location,
        compaction=done,
        checkpoint_version=checkpoint(location, fs) if is_due else None,
        vacuum=vacuum(location, fs, retention_hours=policy.retention_hours),
    )
