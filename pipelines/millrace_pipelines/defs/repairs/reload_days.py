"""Reloads by the day: a target for each table with a partition for each day, in UTC.

A range of days that is chosen in the UI is one run, and one reload: of the records from the first one of the range's
first day up to the first one after its last day, by the records' timestamps (`ledger.selection`). Loads are no such
partitions: they go by offsets. The reload is a materialization of the table, too, with its checks (`mended`).
"""

from collections.abc import Iterator, Mapping

import dagster as dg

from millrace.fs import OsFileSystem
from millrace_pipelines.declaration.cluster import DeclaredCluster, DeclaredTable
from millrace_pipelines.declaration.keys import step_key, under_own_keys
from millrace_pipelines.defs.loads.assets import SPARK_POOL
from millrace_pipelines.defs.loads.child_process import run_jobs
from millrace_pipelines.defs.loads.events import Event, asset_events
from millrace_pipelines.defs.loads.options import table_options
from millrace_pipelines.defs.loads.previews import load_previews
from millrace_pipelines.defs.repairs.config import DaysConfig
from millrace_pipelines.defs.repairs.mended import report_mended
from millrace_pipelines.defs.resources import resource_of
from millrace_pipelines.runs.jobs import ReloadJob
from millrace_pipelines.warehouse.ledger.selection import Selection


def reloads_by_day(cluster: DeclaredCluster) -> list[dg.AssetsDefinition]:
    """Returns the targets of a cluster's tables, none where no topic becomes a table."""
    if not cluster.loaded:
        return []
    by_key: Mapping[dg.AssetKey, DeclaredTable] = {table.keys.reload: table for table in cluster.loaded}

    @dg.multi_asset(
        name=f"{cluster.name}_reload_days",
        specs=[_spec(cluster.name, table) for table in cluster.loaded],
        partitions_def=dg.DailyPartitionsDefinition(start_date=cluster.reload_since.isoformat(), end_offset=1),
        backfill_policy=dg.BackfillPolicy.single_run(),
        can_subset=True,
        pool=SPARK_POOL,
        required_resource_keys={cluster.name},
    )
    def reload_days(context: dg.AssetExecutionContext, config: DaysConfig) -> Iterator[Event]:
        """Reloads the days that are chosen, in each of the selected tables."""
        millrace, days = resource_of(context, cluster.name), context.partition_time_window
        selection = Selection.of_times(days.start, days.end)
        jobs = [
            ReloadJob(
                key=key.to_user_string(),
                options=config.applied(table_options(by_key[key], millrace, context.run.run_id)),
                selection=selection,
            )
            for key in sorted(context.selected_asset_keys)
        ]
        if config.dry_run:
            yield from load_previews(context, jobs, OsFileSystem())
            return
        outcomes = run_jobs(
            context, jobs, master=millrace.master or None, spark_settings={**millrace.spark, **config.spark}
        )
        for event in asset_events(context, outcomes):
            yield event
            if isinstance(event, dg.MaterializeResult) and event.asset_key is not None:
                table = by_key[event.asset_key]
                reloaded = dg.AssetMaterialization(table.keys.table, metadata=event.metadata)
                report_mended(context, millrace, table, reloaded)

    return [under_own_keys(reload_days, by_key)]


def _spec(cluster: str, table: DeclaredTable) -> dg.AssetSpec:
    return dg.AssetSpec(
        step_key(table.keys.reload),
        group_name=f"{cluster}_reload",
        kinds={"spark", "deltalake", "reload"},
        owners=table.declared.owners,
        tags=table.declared.tags,
        skippable=True,
        description=f"Reads days of the topic {table.topic} again, and replaces what the table has of them, in one "
        "commit.",
    )
