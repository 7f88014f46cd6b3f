"""`millrace warehouse compact|checkpoint|vacuum|upkeep`: keeps tables in good order beside their loads."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.config import MAX_INT
from millrace_ops.cli.options import CLOCK, FS, DryRun, Json, TableDirectory
from millrace_ops.cli.output import print_json

if TYPE_CHECKING:
    from millrace_pipelines.warehouse.maintenance import CompactionReport, VacuumReport

TargetMiB = Annotated[int, typer.Option("--target-mib", min=1, help="How large compacted files become.")]
RetainHours = Annotated[
    int,
    typer.Option(
        "--retain",
        min=0,
        max=MAX_INT,
        metavar="HOURS",
        help="Remove files that no version names once they are this old.",
    ),
]
DEFAULT_TARGET_MIB = 256
DEFAULT_RETAIN_HOURS = 7 * 24


def compact(directory: TableDirectory, target_mib: TargetMiB = DEFAULT_TARGET_MIB, as_json: Json = False) -> None:
    """Make few large files of many small ones; rows and ledger stay as they are, and so do files of about that size."""
    from millrace_pipelines.warehouse.maintenance import compact as run

    report = run(directory, FS, CLOCK, target_bytes=target_mib << 20)
    print_json(asdict(report)) if as_json else print(_compaction_line(report))


def checkpoint(directory: TableDirectory, as_json: Json = False) -> None:
    """Write the newest version into one file of the table's log, from which readers start."""
    from millrace_pipelines.warehouse.maintenance import checkpoint as run

    version = run(directory, FS)
    print_json({"table": directory, "version": version}) if as_json else print(f"{directory}: checkpoint of {version}")


def vacuum(
    directory: TableDirectory,
    *,
    retain_hours: RetainHours = DEFAULT_RETAIN_HOURS,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove files that no version names any more, or never did; those of running loads stay.

    The table's dead letters are treated alike. Older versions can't be read any more without their files.
    """
    from millrace_pipelines.warehouse.dead_letters import companions
    from millrace_pipelines.warehouse.maintenance import vacuum as run

    locations = [directory, *companions(directory, FS)]
    reports = [run(location, FS, retention_hours=retain_hours, dry_run=dry_run) for location in locations]
    if as_json:
        print_json([asdict(report) for report in reports])
        return
    for report in reports:
        for name in report.files if dry_run else ():
            print(name)
        print(_vacuum_line(report))


def upkeep(
    directory: TableDirectory,
    *,
    target_mib: TargetMiB = DEFAULT_TARGET_MIB,
    min_small_files: Annotated[
        int, typer.Option(min=2, help="Compact where there are at least this many small files.")
    ] = 10,
    min_commits: Annotated[int, typer.Option(min=1, help="Checkpoint after at least this many commits.")] = 10,
    retain_hours: RetainHours = DEFAULT_RETAIN_HOURS,
    as_json: Json = False,
) -> None:
    """Compact, checkpoint and vacuum a table and its dead letters, where they need it."""
    from millrace_pipelines.warehouse.maintenance import MaintenancePolicy
    from millrace_pipelines.warehouse.maintenance import maintain as run

    policy = MaintenancePolicy(
        target_bytes=target_mib << 20,
        min_small_files=min_small_files,
        min_commits=min_commits,
        retention_hours=retain_hours,
    )
    reports = run(directory, FS, CLOCK, policy)
    if as_json:
        print_json([asdict(report) for report in reports])
        return
    for report in reports:
        if report.compaction is not None:
            print(_compaction_line(report.compaction))
        if report.checkpoint_version is not None:
            print(f"{report.table}: checkpoint of {report.checkpoint_version}")
        print(_vacuum_line(report.vacuum))


def _compaction_line(report: CompactionReport) -> str:
    if report.version is None:
        return f"{report.table}: no small files to compact"
    return (
        f"{report.table}: version {report.version}, {report.files_before} files of "
        f"{report.bytes_before / 2**20:,.1f} MiB are {report.files_after} of {report.bytes_after / 2**20:,.1f} MiB"
    )


def _vacuum_line(report: VacuumReport) -> str:
    verb = "would go" if report.dry_run else "are gone"
    left = f", {report.running} of running operations are left" if report.running else ""
    return f"{report.table}: {len(report.files)} files of {report.bytes / 2**20:,.1f} MiB {verb}{left}"


COMMANDS = (compact, checkpoint, vacuum, upkeep)
