"""The commands of `millrace warehouse` that change a table by other means than appending to it.

erase, reload, backfill                 change which rows it has
compact, checkpoint, vacuum, upkeep     keep it in good order beside its loads
register                                enters it in the catalog of another engine
"""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.config import MAX_INT
from millrace.times import epoch_ms, parse_time
from millrace_ops.cli.interrupted import telling, telling_commits
from millrace_ops.cli.options import CLOCK, FS, ClusterAccess, DryRun, Json, TableDirectory, TopicName, given
from millrace_ops.cli.output import print_json, print_table
from millrace_ops.cli.warehouse import (
    AcceptKeyless,
    GroupChoices,
    ReadChoices,
    print_group_error,
)
from millrace_ops.cli.warehouse_engine import Engine, Settings, spark_settings
from millrace_ops.cli.warehouse_preview import show_reload
from millrace_ops.cli.warehouse_progress import shown_listener

if TYPE_CHECKING:
    from millrace_pipelines.warehouse.keys.erase import EraseReport
    from millrace_pipelines.warehouse.ledger.plan import Selection
    from millrace_pipelines.warehouse.load.options import LoadOptions
    from millrace_pipelines.warehouse.load.report import ReloadReport
    from millrace_pipelines.warehouse.maintenance import CompactionReport, VacuumReport

Table = Annotated[
    str,
    typer.Option("--table", metavar="DIR", help="The table's directory; created if it is missing."),
]
Master = Annotated[str | None, typer.Option(help="Spark's master; by default all cores of this machine.")]
Schema = Annotated[str | None, typer.Option(metavar="FILE", help="The declared schema, for a table that is created.")]
Partitions = Annotated[list[int] | None, typer.Option("--partition", min=0, help="Only this partition; repeatable.")]
AcceptLost = Annotated[
    bool, typer.Option("--accept-lost-offsets", help="Leave out offsets that retention has deleted since.")
]


class KeyFormat(StrEnum):
    """The form in which keys are given on the command line."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"


def erase(
    directory: TableDirectory,
    *,
    key: Annotated[list[str] | None, typer.Option(help="A key to erase; repeatable.")] = None,
    keys_file: Annotated[
        typer.FileBinaryRead | None, typer.Option(metavar="FILE", help="Keys to erase, one on a line; - for stdin.")
    ] = None,
    key_format: Annotated[KeyFormat, typer.Option(help="How the keys are written.")] = KeyFormat.TEXT,
    engine: Engine,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Erase all records of some keys from a table and its dead letters.

    The files that had them go with `vacuum --retain 0`. The topic keeps its records: send it a tombstone for each key.
    """
    from millrace_pipelines.warehouse.keys.erase import erase as run

    lines = [os.fsdecode(line.rstrip(b"\r\n")) for line in keys_file] if keys_file else []
    keys = [key_bytes(text, key_format) for text in [*(key or []), *filter(None, lines)]]
    if not keys:
        raise typer.BadParameter("name at least one key, by --key or --keys-file")
    with telling_commits(directory), engine.tasks(f"erase {directory}") as tasks:
        report = run(directory, keys, FS, dry_run=dry_run, tasks=tasks)
    print_json(asdict(report)) if as_json else _print_erasure(report)


def reload(
    topic: TopicName,
    *,
    table: Table,
    access: ClusterAccess,
    master: Master = None,
    conf: Settings = None,
    schema: Schema = None,
    reading: ReadChoices,
    partition: Partitions = None,
    from_offset: Annotated[int | None, typer.Option(min=0, help="The first offset.")] = None,
    until_offset: Annotated[int | None, typer.Option(min=0, help="The offset after the last one.")] = None,
    from_time: Annotated[str | None, typer.Option(metavar="TIME", help="From the first record at or after it.")] = None,
    until_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Up to the first record at or after it: ISO 8601, UTC.")
    ] = None,
    accept_lost_offsets: AcceptLost = False,
    accept_keyless_records: AcceptKeyless = False,
    lag_group: GroupChoices,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Read a part of a topic again, and replace what the table has of it, in one commit."""
    from millrace_pipelines.warehouse.ledger.plan import Selection
    from millrace_pipelines.warehouse.load.options import LoadOptions

    selection = Selection(
        partitions=tuple(partition) if partition else None,
        from_offset=from_offset,
        until_offset=until_offset,
        from_time_ms=time_ms(from_time),
        until_time_ms=time_ms(until_time),
    )
    options = LoadOptions(
        topic=topic,
        table=table,
        master=master,
        spark_settings=spark_settings(conf),
        schema=schema,
        accept_lost_offsets=accept_lost_offsets,
        accept_keyless_records=accept_keyless_records,
        **given(access, reading, lag_group),
    )
    _run(options, selection, dry_run=dry_run, as_json=as_json)


def backfill(
    topic: TopicName,
    *,
    table: Table,
    access: ClusterAccess,
    master: Master = None,
    conf: Settings = None,
    reading: ReadChoices,
    partition: Partitions = None,
    from_offset: Annotated[int | None, typer.Option(min=0, help="The first offset; by default the log's.")] = None,
    accept_lost_offsets: AcceptLost = False,
    lag_group: GroupChoices,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Load what lies below the table's first offsets, such as logs that were imported after its first load."""
    from millrace_pipelines.warehouse.ledger.plan import Selection
    from millrace_pipelines.warehouse.load.options import LoadOptions

    selection = Selection(
        partitions=tuple(partition) if partition else None, from_offset=from_offset, until_table_begins=True
    )
    options = LoadOptions(
        topic=topic,
        table=table,
        master=master,
        spark_settings=spark_settings(conf),
        accept_lost_offsets=accept_lost_offsets,
        **given(access, reading, lag_group),
    )
    _run(options, selection, dry_run=dry_run, as_json=as_json)


def key_bytes(text: str, key_format: KeyFormat) -> bytes:
    """Returns a key's bytes; raises typer.BadParameter if the text is not in its format."""
    try:
        if key_format is KeyFormat.HEX:
            return bytes.fromhex(text)
        if key_format is KeyFormat.BASE64:
            return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise typer.BadParameter(f"{text!r} is not {key_format}: {error}") from error
    return os.fsencode(text)


def time_ms(text: str | None) -> int | None:
    """Returns the milliseconds since the epoch of an ISO 8601 time, which is UTC if it has no offset."""
    if text is None:
        return None
    try:
        return epoch_ms(parse_time(text))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a time in ISO 8601: {error}") from error


def _run(options: LoadOptions, selection: Selection, *, dry_run: bool, as_json: bool) -> None:
    from millrace_pipelines.warehouse.load.load import reload_topic

    if dry_run:
        show_reload(options, selection, as_json=as_json)
        return
    with telling_commits(options.table), shown_listener() as listener:
        report = reload_topic(options, selection, listener=listener)
    print_json(asdict(report)) if as_json else _print_report(report)


def _print_erasure(report: EraseReport) -> None:
    erased = f"{report.table}: {report.keys} keys, {report.rows:,} rows and {report.dead_letters:,} dead letters"
    if report.dry_run:
        print(
            f"{erased} would be erased; {report.files} files of {report.bytes / 2**20:,.1f} MiB with "
            f"{report.file_rows:,} rows and letters would be rewritten"
        )
    else:
        print(
            f"{erased} erased; {report.files} files that had them go with "
            f"`millrace warehouse vacuum {report.table} --retain 0`"
        )
    if report.left:
        left = "would be" if report.dry_run else "are"
        print(f"{report.left:,} dead letters of a load that has not ended {left} left: load, and erase again")


def _print_report(report: ReloadReport) -> None:
    if report.version is None:
        print(f"{report.table}: nothing to reload")
        return
    rows = [
        (kind, span.partition, span.from_offset, span.until_offset, span.rows, span.dead_letters)
        for kind, spans in (("backfilled", report.backfilled), ("replaced", report.replaced))
        for span in spans
    ]
    print_table(("what", "partition", "from offset", "until offset", "rows", "dead letters"), rows)
    for lost in report.lost:
        print(f"partition {lost.partition}: offsets {lost.from_offset}-{lost.until_offset - 1} are lost: {lost.reason}")
    print_group_error(report)
    print(
        f"{report.table}: version {report.version}, {report.rows:,} rows in the place of {report.removed_rows:,}, "
        f"in {report.seconds:.1f} s"
    )


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


def compact(
    directory: TableDirectory, *, target_mib: TargetMiB = DEFAULT_TARGET_MIB, engine: Engine, as_json: Json = False
) -> None:
    """Make few large files of many small ones; rows and ledger stay as they are, and so do files of about that size."""
    from millrace_pipelines.warehouse.maintenance import compact as run

    with telling_commits(directory), engine.tasks(f"compact {directory}") as tasks:
        report = run(directory, FS, CLOCK, target_bytes=target_mib << 20, tasks=tasks)
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
    with telling(lambda: f"{directory}: the rest goes with the next vacuum; no version needs what is gone"):
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
    engine: Engine,
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
    with telling_commits(directory), engine.tasks(f"upkeep {directory}") as tasks:
        reports = run(directory, FS, CLOCK, policy, tasks=tasks)
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


def register(
    directory: TableDirectory,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="hive:thrift://HOST:PORT/DB.TABLE, glue:DB.TABLE or unity:https://HOST/CAT.DB.TABLE."
        ),
    ],
    *,
    as_json: Json = False,
) -> None:
    """Enter a Delta table in the catalog of another engine, with its columns; again where these have changed."""
    from millrace_pipelines.warehouse.registration.targets import register as run

    is_changed = run(directory, target, FS)
    if as_json:
        print_json({"table": directory, "target": target, "changed": is_changed})
    else:
        print(f"{target}: {'entered' if is_changed else 'was entered already'}")


COMMANDS = (erase, reload, backfill, compact, checkpoint, vacuum, upkeep, register)
