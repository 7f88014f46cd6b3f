"""The jobs that mend tables, and what a person gives them: reload, backfill, replay, erase; and reloads by the day.

A job is one step on the tables of the topics it is given, which are mended one after the other; one that fails stops no
other, and the step fails at the end. What a job commits is a materialization of the table's asset; a dry run, and a job
that finds nothing to do, is an observation.

The checks of a table belong to its newest materialization: without new ones, its page would show none until the next
load. So all of its checks are made again. One that can't be made, such as one that asks a broker which does not answer,
is a warning in the log of the run, since the commit stands.

Reloads by the day are a target for each table with a partition for each day, in UTC, from its topic's first day on. A
range of days that is chosen in the UI is one run, and one reload: of the records from the first one of the range's
first day up to the first one after its last day, by the records' timestamps (`ledger.plan`). Loads are no such
partitions: they go by offsets.
"""

# Without `from __future__ import annotations`: Dagster reads the annotations of steps and checks.

import base64
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum
from typing import TypeAlias

import dagster as dg
from pydantic import Field

from millrace.errors import InvalidConfigError, MillraceError
from millrace.times import epoch_ms, parse_time
from millrace_pipelines.declaration.attributes import Check
from millrace_pipelines.declaration.cluster import DeclaredCluster, DeclaredTable, named, step_key, under_own_keys
from millrace_pipelines.defs.load_assets import SPARK_POOL, table_options
from millrace_pipelines.defs.load_process import (
    PREVIEW,
    Context,
    Event,
    asset_events,
    load_previews,
    run_jobs,
    step_failure,
)
from millrace_pipelines.defs.maintenance import failures_in_words
from millrace_pipelines.defs.resources import MillraceResource, resource_of
from millrace_pipelines.defs.table_checks import check_evaluations
from millrace_pipelines.defs.table_metadata import STORAGE_KINDS, loaded_metadata
from millrace_pipelines.machine import CLOCK, DISK
from millrace_pipelines.runs.jobs import Failed, ReloadJob, failure_of
from millrace_pipelines.warehouse.dead_letters import Selection as LetterSelection
from millrace_pipelines.warehouse.dead_letters import companions
from millrace_pipelines.warehouse.keys.erase import EraseReport, erase
from millrace_pipelines.warehouse.ledger.plan import Selection
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.load.replay import ReplayOptions, ReplayReport, replay
from millrace_pipelines.warehouse.maintenance import vacuum

PARTITIONS = Field(default=None, description="Only these partitions; by default all.")
FROM_OFFSET = Field(default=None, ge=0, description="The first offset; by default as far back as there are records.")
UNTIL_OFFSET = Field(default=None, ge=0, description="The offset after the last one.")
ACCEPT_LOST = Field(default=False, description="Leave out offsets that retention has deleted since.")
ACCEPT_KEYLESS = Field(default=False, description="Leave records without a key out of an upsert.")
DRY_RUN = Field(default=False, description="Report what would be done, and change nothing.")


class KeyFormat(Enum):
    """The form in which a key's bytes are written; a run configuration has a member's name, not its value."""

    text = "text"
    hex = "hex"
    base64 = "base64"


class RepairConfig(dg.Config):
    """The configuration that the jobs of reload, backfill, replay and erasure share."""

    topics: list[str] = Field(min_length=1, description="The topics whose tables are mended.")
    dry_run: bool = DRY_RUN

    def tables(self, cluster: DeclaredCluster) -> list[DeclaredTable]:
        """Returns the tables of the configured topics; raises InvalidConfigError for a topic without a table."""
        there = {table.topic: table for table in cluster.loaded}
        unknown = [topic for topic in self.topics if topic not in there]
        if unknown:
            raise InvalidConfigError(f"topics: {', '.join(unknown)}: no topic of {cluster.name} that becomes a table")
        return [there[topic] for topic in dict.fromkeys(self.topics)]


class DaysConfig(dg.Config):
    """The configuration that reloads and backfills share: how Spark runs, and what is accepted."""

    accept_lost_offsets: bool = ACCEPT_LOST
    accept_keyless_records: bool = ACCEPT_KEYLESS
    spark: dict[str, str] = Field(default={}, description="Settings of Spark for this run.")
    dry_run: bool = DRY_RUN

    def applied(self, options: LoadOptions) -> LoadOptions:
        """Returns a table's options with those of this configuration; a reload has no limit of records per run."""
        return replace(
            options,
            max_records_per_run=None,
            accept_lost_offsets=self.accept_lost_offsets,
            accept_keyless_records=self.accept_keyless_records,
        )


class BackfillConfig(RepairConfig, DaysConfig):
    """The configuration of a backfill: which offsets to load below a table's first ones."""

    partitions: list[int] | None = PARTITIONS
    from_offset: int | None = FROM_OFFSET

    def selection(self) -> Selection:
        """Returns the part of the topic to load: from `from_offset` up to where the table begins."""
        return Selection(partitions=_partitions(self.partitions), from_offset=self.from_offset, until_table_begins=True)


class ReloadConfig(RepairConfig, DaysConfig):
    """The configuration of a reload: which part of a topic to read again."""

    partitions: list[int] | None = PARTITIONS
    from_offset: int | None = FROM_OFFSET
    until_offset: int | None = UNTIL_OFFSET
    from_time: str | None = Field(default=None, description="From the first record at or after it: ISO 8601, UTC.")
    until_time: str | None = Field(default=None, description="Up to the first record at or after it: ISO 8601, UTC.")

    def selection(self) -> Selection:
        """Returns the part of the topic to reload; raises InvalidConfigError where a time can't be parsed."""
        return Selection(
            partitions=_partitions(self.partitions),
            from_offset=self.from_offset,
            until_offset=self.until_offset,
            from_time_ms=_time_ms("from_time", self.from_time),
            until_time_ms=_time_ms("until_time", self.until_time),
        )


class ReplayConfig(RepairConfig):
    """The configuration of a replay: which dead letters to decode again."""

    reason: str | None = Field(default=None, description="Only letters of this reason, as the dead letters name it.")
    partition: int | None = Field(default=None, ge=0, description="Only letters of this partition.")
    from_offset: int | None = FROM_OFFSET
    until_offset: int | None = UNTIL_OFFSET
    corrected_schema: str | None = Field(
        default=None,
        description="The path of a corrected schema, which becomes the table's; by default its declared one.",
    )


class EraseConfig(RepairConfig):
    """The configuration of an erasure: which keys to erase, and how they are written."""

    keys: list[str] = Field(min_length=1, description="The keys; all of their records go from the table.")
    key_format: KeyFormat = Field(default=KeyFormat.text, description="How the keys are written.")
    vacuum: bool = Field(
        default=True, description="Also delete the files that had them, at once: readers of older versions fail."
    )

    def key_bytes(self) -> Sequence[bytes]:
        """Returns the keys' bytes; raises InvalidConfigError for one that is not in its format."""
        return [_key_bytes(key, self.key_format) for key in self.keys]


def _partitions(partitions: Sequence[int] | None) -> tuple[int, ...] | None:
    return tuple(partitions) if partitions else None


def _time_ms(field: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return epoch_ms(parse_time(text))
    except ValueError as error:
        raise InvalidConfigError(f"{field}: {text!r} is not a time in ISO 8601: {error}") from error


def _key_bytes(text: str, key_format: KeyFormat) -> bytes:
    try:
        if key_format is KeyFormat.hex:
            return bytes.fromhex(text)
        if key_format is KeyFormat.base64:
            return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidConfigError(f"keys: {text!r} is not {key_format.value}: {error}") from error
    return os.fsencode(text)


Logged = dg.AssetMaterialization | dg.AssetObservation
Metadata: TypeAlias = "Mapping[str, dg.RawMetadataValue]"
AT_ONCE = 0


def report_mended(context: Context, millrace: MillraceResource, table: DeclaredTable, event: Logged) -> None:
    """Reports the event of a repaired table; where the table was changed, runs its checks and reports them, too."""
    context.log_event(event)
    if isinstance(event, dg.AssetObservation):
        return
    try:
        for evaluation in check_evaluations(table, millrace, Check):
            context.log_event(evaluation)  # type: ignore[arg-type]  # Dagster's type leaves these out, its code does not
    except MillraceError as error:
        context.log.warning("%s: not all checks were made: %s", table.keys.table.to_user_string(), error)


def repair_jobs(cluster: DeclaredCluster) -> list[dg.JobDefinition]:
    """Returns a cluster's jobs for reload, backfill, replay and erasure; none where no topic becomes a table."""
    if not cluster.loaded:
        return []
    return [_reload_job(cluster), _backfill_job(cluster), _replay_job(cluster), _erase_job(cluster)]


def _job(cluster: DeclaredCluster, name: str, op: dg.OpDefinition, description: str) -> dg.JobDefinition:
    """Returns the job that runs one op, with the given name and description."""

    @dg.job(
        name=named(name, cluster.name),
        tags=cluster.tags,
        executor_def=dg.in_process_executor,
        description=description,
    )
    def job() -> None:
        op()

    return job


def _reload_job(cluster: DeclaredCluster) -> dg.JobDefinition:
    @dg.op(name=f"{cluster.name}_reload_range", required_resource_keys={cluster.name}, pool=SPARK_POOL)
    def reload_range(context: dg.OpExecutionContext, config: ReloadConfig) -> None:
        """Reads a part of topics again, and replaces what their tables have of it."""
        _reload(context, cluster, config)

    description = "Read a part of topics again, by offsets or times, and replace what their tables have of it."
    return _job(cluster, "reload", reload_range, description)


def _backfill_job(cluster: DeclaredCluster) -> dg.JobDefinition:
    @dg.op(name=f"{cluster.name}_backfill_tables", required_resource_keys={cluster.name}, pool=SPARK_POOL)
    def backfill_tables(context: dg.OpExecutionContext, config: BackfillConfig) -> None:
        """Loads what lies below the first offsets of tables."""
        _reload(context, cluster, config)

    description = "Load what lies below the first offsets of tables, such as logs that were imported later."
    return _job(cluster, "backfill", backfill_tables, description)


def _reload(context: dg.OpExecutionContext, cluster: DeclaredCluster, config: ReloadConfig | BackfillConfig) -> None:
    millrace = resource_of(context, cluster.name)
    with failures_in_words():
        tables, selection = config.tables(cluster), config.selection()
    by_key = {table.keys.table: table for table in tables}
    for event in _reloaded(context, millrace, by_key, selection, config):
        logged = _logged(event)
        report_mended(context, millrace, by_key[logged.asset_key], logged)


def _reloaded(
    context: Context,
    millrace: MillraceResource,
    tables: Mapping[dg.AssetKey, DeclaredTable],
    selection: Selection,
    config: DaysConfig,
) -> Iterator[Event]:
    """Reloads `selection` of each table's topic, and yields the assets' events; a dry run yields previews only."""
    jobs = [
        ReloadJob(
            key=key.to_user_string(),
            options=config.applied(table_options(table, millrace, context.run.run_id)),
            selection=selection,
        )
        for key, table in tables.items()
    ]
    if config.dry_run:
        yield from load_previews(context, jobs, DISK)
        return
    settings = {**millrace.spark, **config.spark}
    outcomes = run_jobs(context, jobs, master=millrace.master or None, spark_settings=settings, stores=millrace.stores)
    yield from asset_events(context, outcomes)


def _logged(event: Event) -> Logged:
    """Returns an asset's event in a form that a step of a job without assets can log."""
    if isinstance(event, dg.AssetObservation):
        return event
    assert event.asset_key is not None
    return dg.AssetMaterialization(event.asset_key, metadata=event.metadata)


def _replay_job(cluster: DeclaredCluster) -> dg.JobDefinition:
    @dg.op(name=f"{cluster.name}_replay_letters", required_resource_keys={cluster.name})
    def replay_letters(context: dg.OpExecutionContext, config: ReplayConfig) -> None:
        """Appends the dead letters that decode now to the rows."""
        millrace = resource_of(context, cluster.name)
        selection = LetterSelection(config.reason, config.partition, config.from_offset, config.until_offset)

        def mend(table: DeclaredTable) -> Logged:
            options = ReplayOptions(
                table=_location(table, millrace),
                schema=config.corrected_schema or table.schema or millrace.schema_file(table.topic),
                selection=selection,
                dry_run=config.dry_run,
                run_id=context.run.run_id,
            )
            return _replayed(table, replay(options))

        with failures_in_words():
            tables = config.tables(cluster)
        _mend_each(context, millrace, tables, mend)

    description = "Append dead letters that decode now to the rows of their tables, each exactly once."
    return _job(cluster, "replay", replay_letters, description)


def _erase_job(cluster: DeclaredCluster) -> dg.JobDefinition:
    @dg.op(name=f"{cluster.name}_erase_keys", required_resource_keys={cluster.name})
    def erase_keys(context: dg.OpExecutionContext, config: EraseConfig) -> None:
        """Erases all records of some keys from tables and their dead letters."""
        millrace, fs = resource_of(context, cluster.name), DISK

        def mend(table: DeclaredTable) -> Logged:
            location = _location(table, millrace)
            with millrace.tasks(f"erase from {location}") as tasks:
                report = erase(location, keys, fs, dry_run=config.dry_run, run_id=context.run.run_id, tasks=tasks)
            shown: dict[str, dg.RawMetadataValue] = {}
            if config.vacuum:
                locations = (location, *companions(location, fs))
                gone = [vacuum(one, fs, retention_hours=AT_ONCE, dry_run=config.dry_run) for one in locations]
                what = "files to remove" if config.dry_run else "files removed"
                shown[what] = sum(len(report.files) for report in gone)
            return _erased(table, report, shown)

        with failures_in_words():
            tables, keys = config.tables(cluster), config.key_bytes()
        _mend_each(context, millrace, tables, mend)

    description = (
        "Erase all records of some keys from tables and their dead letters, and the files that had them. "
        "The topic keeps its records: send it a tombstone for each key."
    )
    return _job(cluster, "erase", erase_keys, description)


def _mend_each(
    context: dg.OpExecutionContext,
    millrace: MillraceResource,
    tables: list[DeclaredTable],
    mend: Callable[[DeclaredTable], Logged],
) -> None:
    """Calls `mend` for each table and logs its event; at the end raises dg.Failure with all errors."""
    failed: dict[str, Failed] = {}
    for table in tables:
        try:
            report_mended(context, millrace, table, mend(table))
        except MillraceError as error:
            failed[table.keys.table.to_user_string()] = failure_of(error)
    if failed:
        raise step_failure(failed, len(tables))


def _location(table: DeclaredTable, millrace: MillraceResource) -> str:
    return millrace.table_dir(table.location or table.topic)


def _replayed(table: DeclaredTable, report: ReplayReport) -> Logged:
    metadata: dict[str, dg.RawMetadataValue] = {
        "letters selected": report.selected,
        "letters to replay" if report.dry_run else "letters replayed": report.replayed,
        "letters that stay": dict(report.staying) or "none",
    }
    return _event(table, report.table, report.versions[-1] if report.versions else None, metadata, report.dry_run)


def _erased(table: DeclaredTable, report: EraseReport, shown: Metadata) -> Logged:
    what = "to erase" if report.dry_run else "erased"
    metadata: dict[str, dg.RawMetadataValue] = {
        f"rows {what}": report.rows,
        f"dead letters {what}": report.dead_letters,
        "dead letters of loads under way, which stay": report.left,
        "files with the keys": report.files,
        **shown,
    }
    return _event(table, report.table, report.version, metadata, report.dry_run)


def _event(table: DeclaredTable, location: str, version: int | None, metadata: Metadata, dry_run: bool) -> Logged:
    if version is None:
        return dg.AssetObservation(table.keys.table, description=PREVIEW if dry_run else None, metadata=metadata)
    shown = loaded_metadata(location, version, DISK, topic=table.keys.topic)
    return dg.AssetMaterialization(table.keys.table, metadata={**shown, **metadata})


def reloads_by_day(cluster: DeclaredCluster) -> list[dg.AssetsDefinition]:
    """Returns the partitioned assets by which days of tables are reloaded; none where no topic becomes a table."""
    if not cluster.loaded:
        return []
    by_key: Mapping[dg.AssetKey, DeclaredTable] = {table.keys.reload: table for table in cluster.loaded}

    @dg.multi_asset(
        name=f"{cluster.name}_reload_days",
        specs=[_spec(cluster.name, table) for table in cluster.loaded],
        backfill_policy=dg.BackfillPolicy.single_run(),
        can_subset=True,
        pool=SPARK_POOL,
        required_resource_keys={cluster.name},
    )
    def reload_days(context: dg.AssetExecutionContext, config: DaysConfig) -> Iterator[Event]:
        """Reloads the days that are chosen, in each of the selected tables."""
        millrace, days = resource_of(context, cluster.name), context.partition_time_window
        selection = Selection.of_times(days.start, days.end)
        selected = {key: by_key[key] for key in sorted(context.selected_asset_keys)}
        for event in _reloaded(context, millrace, selected, selection, config):
            yield event
            if isinstance(event, dg.MaterializeResult) and event.asset_key is not None:
                table = by_key[event.asset_key]
                reloaded = dg.AssetMaterialization(table.keys.table, metadata=event.metadata)
                report_mended(context, millrace, table, reloaded)

    return [under_own_keys(reload_days, by_key)]


def _days_of(table: DeclaredTable) -> dg.DailyPartitionsDefinition:
    """Returns the days from the topic's first one to today; today alone where it has had no record yet."""
    first_day = table.first_day or datetime.fromtimestamp(CLOCK.now_ms() / 1000, UTC).date()
    return dg.DailyPartitionsDefinition(start_date=first_day.isoformat(), end_offset=1)


def _spec(cluster: str, table: DeclaredTable) -> dg.AssetSpec:
    return dg.AssetSpec(
        step_key(table.keys.reload),
        group_name=named("reload", cluster),
        partitions_def=_days_of(table),
        kinds={"spark", STORAGE_KINDS[table.format], "reload"},
        owners=table.declared.owners,
        tags=table.declared.tags,
        skippable=True,
        description=f"Reads days of the topic {table.topic} again, and replaces what the table has of them, in one "
        "commit.",
    )
