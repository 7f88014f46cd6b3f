"""The maintenance of a cluster: its assets and schedules, their run configuration, and how reports are shown.

    retention        the broker deletes what its policies no longer keep
    compaction       the broker keeps the last value of each key
    recovery_check   the broker reads its segments as it does after a crash, and reports each damaged range
    table_upkeep     small files are compacted, checkpoints written, and files removed that no version names

A dry run is recorded as an observation, so that no materialization claims what was not done. Its figures have other
names ("segments to delete"), since Dagster draws those of one name as one line. Retention and compaction keep to
`REQUEST_INTERVAL_MS`, by which the broker knows that they are asked for.

The first three need the brokers' admin endpoint; `maintenance_by_protocol` has those of a cluster without one.
"""

# Without `from __future__ import annotations`: Dagster reads the annotations of steps and checks.

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple, TypeAlias, cast

import dagster as dg
import pyarrow as pa
from pydantic import Field

from millrace.errors import MillraceError
from millrace_pipelines.declaration.cluster import named
from millrace_pipelines.defs.admin_endpoint import (
    CompactionOfPartition,
    Report,
    RetentionOfPartition,
    ScrubbedDirectory,
    VerifiedPartition,
)
from millrace_pipelines.defs.resources import resource_of
from millrace_pipelines.machine import CLOCK, DISK
from millrace_pipelines.warehouse.errors import TableNotFoundError
from millrace_pipelines.warehouse.ledger.ledger import SKIPPED_SUFFIX
from millrace_pipelines.warehouse.maintenance import MaintenancePolicy, MaintenanceReport, maintain
from millrace_pipelines.warehouse.tables.find import State, table_locations, unreadable
from millrace_pipelines.warehouse.tasks import Tasks

Cell: TypeAlias = str | int | float | bool | None
Metadata: TypeAlias = "dict[str, dg.RawMetadataValue]"
SHOWN_ROWS = 1_000
SHOWN_ERRORS = 10
NO_FINDINGS = "no_findings"


class MaintenanceConfig(dg.Config):
    """The configuration of one run of a broker's maintenance.

    Attributes:
        topics: Names of topics, and patterns as in a shell, such as `logs-*`; none for all topics.
        dry_run: Whether the run reports what would be done and changes nothing.
    """

    topics: list[str] = Field(default=[], description="Names of topics, or patterns such as logs-*; none: all topics.")
    dry_run: bool = Field(default=False, description="Report what would be done, and change nothing.")


def maintenance_group(cluster: str) -> str:
    """Returns the name of Dagster's group of the assets that look after a cluster."""
    return named("maintenance", cluster)


@contextmanager
def failures_in_words() -> Iterator[None]:
    """Turns an error of Millrace into a failure of the step with the same message; only a retriable one is retried."""
    try:
        yield
    except MillraceError as error:
        raise dg.Failure(str(error), allow_retries=error.retriable) from error


def partition_metadata(reports: Sequence[Mapping[str, object]], size: str) -> Metadata:
    """Returns metadata with a table of partitions and one of segments, each of the 1,000 largest rows at most.

    `size` names the field by which partitions are ordered. Beside each table stands how many rows it leaves out.
    """
    segments = [
        {"topic": report["topic"], "partition": report["partition"], **segment}
        for report in reports
        for segment in cast("list[dict[str, object]]", report["by_segment"])
    ]
    return {**largest("partitions", reports, size), **largest("segments by size", segments, "size_bytes")}


def report_table(partitions: Sequence[Mapping[str, object]]) -> dg.TableMetadataValue:
    """Returns rows as a table of Dagster's UI, in which a list, such as findings, is shown as its length."""
    fields = list(partitions[0]) if partitions else []
    return dg.MetadataValue.table(
        records=[dg.TableRecord({label(field): _cell(report[field]) for field in fields}) for report in partitions],
        schema=dg.TableSchema(columns=[dg.TableColumn(label(field)) for field in fields]),
    )


def label(field: str) -> str:
    """Returns the name of a report's field for people, with spaces for underscores."""
    return field.replace("_", " ")


def largest(name: str, rows: Sequence[Mapping[str, object]], size: str) -> Metadata:
    """Returns metadata with a table of the 1,000 largest rows, by their field `size`, and how many it leaves out."""
    shown = heapq.nlargest(SHOWN_ROWS, rows, key=lambda row: cast("int", row[size]))
    return {name: report_table(shown), f"{name}, left out": len(rows) - len(shown)}


def _cell(value: object) -> Cell:
    return len(value) if isinstance(value, list) else cast("Cell", value)


def _asset(
    cluster: str, name: str, kind: str, description: str, *, output_required: bool = True
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Returns the decorator that makes a function an asset in the group of a cluster's maintenance."""
    return dg.asset(
        name=name,
        key_prefix=cluster,
        group_name=maintenance_group(cluster),
        required_resource_keys={cluster},
        kinds={kind},
        output_required=output_required,
        retry_policy=dg.RetryPolicy(max_retries=2, delay=5),
        description=description,
    )


def _result(
    context: dg.AssetExecutionContext,
    report: Report[RetentionOfPartition] | Report[CompactionOfPartition],
    figures: Mapping[str, int],
    size: str,
    outcome: Mapping[str, int] | None,
) -> dg.MaterializeResult[None] | dg.AssetObservation:
    """Returns a materialization of what the broker did, or with `outcome` None, for a dry run, an observation.

    `figures` are totals for the metadata; `size` names the field of a partition by which partitions are ordered.
    """
    metadata: Metadata = {**figures, "seconds": report["seconds"], **partition_metadata(report["partitions"], size)}
    if outcome is None:
        return dg.AssetObservation(context.asset_key, metadata=metadata)
    return dg.MaterializeResult(metadata={**metadata, **outcome})


def retention_asset(cluster: str) -> dg.AssetsDefinition:
    """Returns the asset whose runs have a cluster's brokers apply retention."""

    @_asset(
        cluster,
        "retention",
        "kafka",
        "Deletes the segments that retention.ms, retention.bytes or another delete policy no longer keeps. "
        "A dry run is an observation of what would be deleted.",
        output_required=False,
    )
    def retention(
        context: dg.AssetExecutionContext, config: MaintenanceConfig
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetObservation]:
        """Has the broker apply retention to the logs of the chosen topics."""
        with failures_in_words():
            report = resource_of(context, cluster).admin().apply_retention(config.topics, dry_run=config.dry_run)
        what = "to delete" if config.dry_run else "deleted"
        figures = {
            f"segments {what}": sum(one["deleted_segments"] for one in report["partitions"]),
            f"bytes {what}": sum(one["deleted_bytes"] for one in report["partitions"]),
        }
        yield _result(context, report, figures, "deleted_bytes", None if config.dry_run else {})

    return retention


class CompactionConfig(MaintenanceConfig):
    """The configuration of one run of compaction.

    Attributes:
        only_due: Whether logs are left out that their own settings do not ask to compact yet.
    """

    only_due: bool = Field(
        default=True,
        description="Leave out logs that the settings of their topics do not ask to compact yet.",
    )


def compaction_asset(cluster: str) -> dg.AssetsDefinition:
    """Returns the asset whose runs have a cluster's brokers compact logs."""

    @_asset(
        cluster,
        "compaction",
        "kafka",
        "Compacts the logs of topics with cleanup.policy=compact that are due: the last value of each key stays. "
        "A dry run is an observation of what would be rewritten.",
        output_required=False,
    )
    def compaction(
        context: dg.AssetExecutionContext, config: CompactionConfig
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetObservation]:
        """Has the broker compact the logs of the chosen topics; fails where some logs can't be compacted."""
        admin = resource_of(context, cluster).admin()
        with failures_in_words():
            report = admin.compact(config.topics, dry_run=config.dry_run, only_due=config.only_due)
        partitions = report["partitions"]
        what = "to rewrite" if config.dry_run else "rewritten"
        segments = [segment for one in partitions for segment in one["by_segment"]]
        figures = {
            f"segments {what}": len(segments),
            f"bytes {what}": sum(segment["size_bytes"] for segment in segments),
        }
        yield _result(context, report, figures, "bytes_before", None if config.dry_run else _outcome(partitions))
        if config.dry_run:
            return
        if errors := [f"{one['topic']}-{one['partition']}: {one['error']}" for one in partitions if one["error"]]:
            shown = "; ".join(errors[:SHOWN_ERRORS])
            raise dg.Failure(
                f"{len(errors)} of {len(partitions)} logs could not be compacted: {shown}", allow_retries=False
            )

    return compaction


def _outcome(partitions: Sequence[CompactionOfPartition]) -> dict[str, int]:
    return {
        name.replace("_", " "): sum(one[name] for one in partitions)
        for name in ("bytes_before", "bytes_after", "records_kept", "records_dropped")
    }


def recovery_check_asset(cluster: str) -> dg.AssetsDefinition:
    """Returns the asset whose runs have a cluster's brokers verify their logs, and the check of what they find."""
    key = dg.AssetKey([cluster, "recovery_check"])

    # A multi-asset: only one that can be subset may leave out the result of its check, and a dry run has no result.
    @dg.multi_asset(
        can_subset=True,
        name=f"{cluster}__recovery_check",
        required_resource_keys={cluster},
        specs=[
            dg.AssetSpec(
                key,
                group_name=maintenance_group(cluster),
                kinds={"kafka"},
                description=(
                    "Walks every segment of every partition: sizes, offsets, CRC-32C. The broker goes on serving. "
                    "A dry run is an observation of how much there is to read."
                ),
            )
        ],
        check_specs=[
            dg.AssetCheckSpec(NO_FINDINGS, asset=key, description="Every batch is whole and its CRC-32C is right.")
        ],
    )
    def recovery_check(
        context: dg.AssetExecutionContext, config: MaintenanceConfig
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult | dg.AssetObservation]:
        """Has the broker verify the logs of the chosen topics."""
        with failures_in_words():
            report = resource_of(context, cluster).admin().verify(config.topics, dry_run=config.dry_run)
        partitions = report["partitions"]
        to_read = {
            "segments": sum(one["segments"] for one in partitions),
            "bytes": sum(one["size_bytes"] for one in partitions),
        }
        shown = {
            "seconds": report["seconds"],
            **partition_metadata(partitions, "size_bytes"),
            **scrub_metadata(report.get("scrub", [])),
        }
        if config.dry_run:
            figures = {f"{name} to read": figure for name, figure in to_read.items()}
            yield dg.AssetObservation(key, metadata={**figures, **shown})
            return
        if context.selected_asset_keys:
            found = {
                "records": sum(one["records"] for one in partitions),
                "findings": sum(len(one["findings"]) for one in partitions),
            }
            yield dg.MaterializeResult(asset_key=key, metadata={**to_read, **found, **shown})
        if context.selected_asset_check_keys:
            yield no_findings(partitions, key)

    return recovery_check


def scrub_metadata(directories: Sequence[ScrubbedDirectory]) -> Metadata:
    """Returns metadata that says how far the brokers' scrubbers have come, and what is damaged; {} of older brokers.

    The last complete round is the one that ended first: since then all directories were checked.
    """
    if not directories:
        return {}
    ended_ms = [one["last_ended_ms"] or 0 for one in directories]
    ended = dg.MetadataValue.timestamp(min(ended_ms) / 1000) if all(ended_ms) else "none yet"
    return {
        "bytes scrubbed": sum(one["checked_bytes"] for one in directories),
        "bytes to scrub": sum(one["total_bytes"] for one in directories),
        "last complete scrub": ended,
        "damaged ranges": sum(len(one["damage"]) for one in directories),
        "scrubbers": report_table(directories),
    }


def no_findings(partitions: Sequence[VerifiedPartition], asset_key: dg.AssetKey) -> dg.AssetCheckResult:
    """Returns a result that passes without findings, and else has a line with file and byte for each."""
    lines = [
        f"- `{finding['file']}` at byte {finding['position']}: {finding['reason']}"
        for report in partitions
        for finding in report["findings"]
    ]
    return findings_result(lines, asset_key)


def findings_result(lines: Sequence[str], asset_key: dg.AssetKey) -> dg.AssetCheckResult:
    """Returns a result that passes without lines, and else shows them."""
    return dg.AssetCheckResult(
        check_name=NO_FINDINGS,
        asset_key=asset_key,
        passed=not lines,
        metadata={"findings": dg.MetadataValue.md("\n".join(lines) or "none")},
    )


def table_upkeep_asset(cluster: str, in_catalogs: Sequence[str] = ()) -> dg.AssetsDefinition:
    """Returns the asset whose runs compact, checkpoint and vacuum a cluster's tables, those in catalogs, too."""

    @_asset(
        cluster,
        "table_upkeep",
        "parquet",
        "Compacts small files, writes checkpoints and removes files that no version names any more, in each table "
        "of the warehouse, a folder or a bucket, in those of catalogs, and in their dead letters, while loads go on.",
    )
    def table_upkeep(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        """Compacts, checkpoints and vacuums each table of the warehouse that needs it."""
        millrace = resource_of(context, cluster)
        tables = [*(_tables(context, millrace.warehouse_dir) if millrace.warehouse_dir else ()), *in_catalogs]
        failed: dict[str, str] = {}
        with millrace.tasks(f"{cluster} table_upkeep") as tasks:
            reports = [report for table in tables for report in _kept(context, table, tasks, failed)]
        if failed:
            raise dg.Failure(f"{len(failed)} of {len(tables)} tables could not be maintained", metadata=dict(failed))
        return dg.MaterializeResult(
            metadata={
                "files compacted": sum(report.compaction.files_before for report in reports if report.compaction),
                "files gone": sum(len(report.vacuum.files) for report in reports),
                "bytes gone": sum(report.vacuum.bytes for report in reports),
                "tables": report_table([_shown(report) for report in reports]),
            }
        )

    return table_upkeep


def _tables(context: dg.AssetExecutionContext, warehouse: str) -> list[str]:
    """Returns the locations of the warehouse's tables; none, with a warning, where it is not there yet."""
    try:
        return [table for table in table_locations(warehouse) if not table.endswith(SKIPPED_SUFFIX)]
    except FileNotFoundError as error:
        context.log.warning("there are no tables yet: %s", error)
        return []
    except (MillraceError, pa.ArrowException, OSError) as error:
        raise dg.Failure(f"the tables of {warehouse} can't be listed: {error}") from error


def _kept(
    context: dg.AssetExecutionContext, table: str, tasks: Tasks, failed: dict[str, str]
) -> list[MaintenanceReport]:
    """Compacts, checkpoints and vacuums a table; returns what was done, or adds the error to `failed` by table."""
    try:
        return maintain(table, DISK, CLOCK, MaintenancePolicy(), tasks=tasks)
    except TableNotFoundError as error:
        context.log.warning("%s", error)
    except (MillraceError, pa.ArrowException, OSError) as error:
        if unreadable(table, error).state is State.FOREIGN:
            context.log.warning("%s is another program's table, which can't be read: %s", table, error)
            return []
        context.log.exception("%s could not be maintained", table)
        failed[table] = str(error)
    return []


def _shown(report: MaintenanceReport) -> dict[str, int | str]:
    compaction = asdict(report.compaction) if report.compaction else {}
    return {
        "table": report.table,
        "files_compacted": compaction.get("files_before", 0),
        "files_made": compaction.get("files_after", 0),
        "checkpoint": "none needed" if report.checkpoint_version is None else report.checkpoint_version,
        "files_gone": len(report.vacuum.files),
        "bytes_gone": report.vacuum.bytes,
    }


class Upkeep(NamedTuple):
    """A schedule of a cluster's maintenance: its name, the assets that it updates, when, and what it does."""

    name: str
    assets: tuple[str, ...]
    cron: str
    description: str


OF_LOGS = (
    Upkeep("hourly_retention", ("retention",), "0 * * * *", "Applies the retention policies of every topic."),
    Upkeep("hourly_compaction", ("compaction",), "30 * * * *", "Compacts the logs that are due."),
    Upkeep("nightly_recovery_check", ("recovery_check",), "15 3 * * *", "Walks every log of the broker."),
)
OF_TABLES = (
    Upkeep("nightly_table_upkeep", ("table_upkeep",), "45 3 * * *", "Compacts, checkpoints and vacuums every table."),
)


def maintenance_schedules(cluster: str, upkeep: Iterable[Upkeep]) -> list[dg.ScheduleDefinition]:
    """Returns the schedules of a cluster's maintenance, which run by default."""
    return [
        dg.ScheduleDefinition(
            name=named(one.name, cluster),
            target=dg.AssetSelection.assets(*([cluster, asset] for asset in one.assets)),
            cron_schedule=one.cron,
            default_status=dg.DefaultScheduleStatus.RUNNING,
            description=one.description,
        )
        for one in upkeep
    ]
