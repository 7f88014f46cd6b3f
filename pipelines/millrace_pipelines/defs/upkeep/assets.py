"""Upkeep of all tables: compaction of small files, checkpoints, removal of files that no version names."""

from dataclasses import asdict

import dagster as dg
import pyarrow as pa

from millrace.clock import SystemClock
from millrace.errors import MillraceError
from millrace.fs import OsFileSystem
from millrace_pipelines.defs.maintenance import maintenance_group, report_table
from millrace_pipelines.defs.resources import resource_of
from millrace_pipelines.warehouse.errors import TableNotFoundError
from millrace_pipelines.warehouse.ledger.skipped import SKIPPED_SUFFIX
from millrace_pipelines.warehouse.tables.find import table_locations
from millrace_pipelines.warehouse.tables.places import State, unreadable
from millrace_pipelines.warehouse.upkeep.policy import UpkeepPolicy, UpkeepReport, upkeep


def table_upkeep_asset(cluster: str) -> dg.AssetsDefinition:
    """Returns the asset of the upkeep of a cluster's tables."""

    @dg.asset(
        name="table_upkeep",
        key_prefix=cluster,
        group_name=maintenance_group(cluster),
        required_resource_keys={cluster},
        kinds={"deltalake"},
        retry_policy=dg.RetryPolicy(max_retries=2, delay=5),
        description=(
            "Compacts small files, writes checkpoints and removes files that no version names any more, in each table "
            "of the warehouse, a folder or a bucket, and in its dead letters, while loads go on."
        ),
    )
    def table_upkeep(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        """Does what each table of the warehouse needs."""
        tables = _tables(context, resource_of(context, cluster).warehouse_dir)
        failed: dict[str, str] = {}
        reports = [report for table in tables for report in _kept(context, table, failed)]
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
    """Returns the locations of the warehouse's tables. Warns and returns none where there is no warehouse yet."""
    try:
        return [table for table in table_locations(warehouse) if not table.endswith(SKIPPED_SUFFIX)]
    except FileNotFoundError as error:
        context.log.warning("there are no tables yet: %s", error)
        return []
    except (MillraceError, pa.ArrowException, OSError) as error:
        raise dg.Failure(f"the tables of {warehouse} can't be listed: {error}") from error


def _kept(context: dg.AssetExecutionContext, table: str, failed: dict[str, str]) -> list[UpkeepReport]:
    """Does what a table needs and returns what was done; notes an error instead of raising it, for the other tables."""
    try:
        return upkeep(table, OsFileSystem(), SystemClock(), UpkeepPolicy())
    except TableNotFoundError as error:
        context.log.warning("%s", error)
    except (MillraceError, pa.ArrowException, OSError) as error:
        if unreadable(table, error).state is State.FOREIGN:
            context.log.warning("%s is another program's table, which can't be read: %s", table, error)
            return []
        context.log.exception("%s could not be maintained", table)
        failed[table] = str(error)
    return []


def _shown(report: UpkeepReport) -> dict[str, int | str]:
    compaction = asdict(report.compaction) if report.compaction else {}
    return {
        "table": report.table,
        "files_compacted": compaction.get("files_before", 0),
        "files_made": compaction.get("files_after", 0),
        "checkpoint": "none needed" if report.checkpoint_version is None else report.checkpoint_version,
        "files_gone": len(report.vacuum.files),
        "bytes_gone": report.vacuum.bytes,
    }
