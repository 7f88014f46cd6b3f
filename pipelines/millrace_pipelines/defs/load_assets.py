"""The assets of topics, tables and dead letters, and the step that loads tables.

    CLUSTER/topic/NAME (external) ──> CLUSTER/table/NAME ──> CLUSTER/dead_letters/NAME (external)
                                            │
                                            one run loads all selected tables in one process and one Spark session

Each table is reported by itself, and its failure stops no other. Dagster repeats a step as a whole, and one step loads
all tables: so another attempt, or a re-execution from the failure, loads only those that failed (`left_to_load`).
"""

# Without `from __future__ import annotations`: Dagster reads the annotations of steps and checks.

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import dagster as dg
from pydantic import Field

from millrace.errors import SetupError
from millrace_pipelines.declaration.cluster import DeclaredCluster, DeclaredTable, named, step_key, under_own_keys
from millrace_pipelines.declaration.loads import Place, load_options
from millrace_pipelines.defs.load_due import left_to_load, noting_failures
from millrace_pipelines.defs.load_process import Context, Event, Outcome, asset_events, load_previews, run_jobs
from millrace_pipelines.defs.resources import MillraceResource, resource_of
from millrace_pipelines.defs.table_checks import report_checks
from millrace_pipelines.defs.table_metadata import FORMAT_NAMES, STORAGE_KINDS
from millrace_pipelines.machine import DISK
from millrace_pipelines.runs.jobs import Failed, LoadJob
from millrace_pipelines.spark.errors import FORMER_OFFSETS_STAY
from millrace_pipelines.warehouse.load.metrics import LoadAttempts
from millrace_pipelines.warehouse.load.options import LoadOptions

SPARK_POOL = "spark"  # the instance limits it to one run: a Spark session takes all cores that it is given

Specs = list[dg.AssetSpec | dg.AssetsDefinition]


class LoadConfig(dg.Config):
    """The options of one run of loads; they hold for every table that it loads."""

    max_records_per_run: int | None = Field(
        default=None, ge=1, description="The largest number of offsets for each table; by default as declared."
    )
    accept_lost_offsets: bool = Field(
        default=False,
        description="Go on past offsets that retention deleted before they were loaded, or that the log has lost, or "
        "holds in a damaged batch.",
    )
    accept_recreated_topic: bool = Field(
        default=False,
        description=f"Go on with a topic that was deleted and created again, in a new ledger; {FORMER_OFFSETS_STAY}.",
    )
    accept_truncated_log: bool = Field(
        default=False,
        description="Go on where a log ends below, or differs from, what was loaded, in a new ledger; "
        f"{FORMER_OFFSETS_STAY}.",
    )
    accept_keyless_records: bool = Field(default=False, description="Leave records without a key out of an upsert.")
    spark: dict[str, str] = Field(default={}, description="Settings of Spark for this run.")
    dry_run: bool = Field(default=False, description="Report what would be loaded, and change nothing.")

    def applied(self, options: LoadOptions) -> LoadOptions:
        """Returns a table's options with the values of this configuration in their place."""
        return replace(
            options,
            max_records_per_run=self.max_records_per_run or options.max_records_per_run,
            accept_lost_offsets=self.accept_lost_offsets,
            accept_recreated_topic=self.accept_recreated_topic,
            accept_truncated_log=self.accept_truncated_log,
            accept_keyless_records=self.accept_keyless_records,
        )


def table_options(table: DeclaredTable, millrace: MillraceResource, run_id: str) -> LoadOptions:
    """Returns the options of a load, or a reload, of a declared table that the Dagster run `run_id` makes."""
    place = Place(
        bootstrap=millrace.bootstrap, client_config=millrace.client_config or None, warehouse=millrace.warehouse_dir
    )
    return load_options(table, place, table.schema or millrace.schema_file(table.topic), run_id)


def noting_attempts(
    context: Context, directory: str, jobs: Sequence[LoadJob], outcomes: Iterable[tuple[str, Outcome]]
) -> Iterator[tuple[str, Outcome]]:
    """Yields the given outcomes, and counts each in its table's metrics file; a failed write is only a warning."""
    by_key = {job.key: job.options for job in jobs}
    for key, outcome in outcomes:
        options = by_key[key]
        path = os.path.join(directory, f"{key.replace('/', '.')}.prom")
        try:
            LoadAttempts(options.table, options.topic).note(
                path, outcome.error if isinstance(outcome, Failed) else None
            )
        except SetupError as error:
            context.log.warning("load_metrics: %s", error)
        yield key, outcome


def cluster_assets(cluster: DeclaredCluster) -> Specs:
    """Returns the assets of a cluster's topics, tables and dead letters."""
    mirrored = cluster.mirror.topics if cluster.mirror is not None else {}
    topics = [_topic_spec(table, is_mirrored=table.topic in mirrored) for table in cluster.tables]
    letters = [_dead_letters_spec(table) for table in cluster.loaded if table.schema is not None]
    return [*topics, *letters, *([_loads(cluster)] if cluster.loaded else [])]


def _topic_spec(table: DeclaredTable, *, is_mirrored: bool) -> dg.AssetSpec:
    who = "A mirror fills it" if is_mirrored else "Producers fill it"
    return dg.AssetSpec(
        table.keys.topic,
        deps=[table.keys.mirror] if is_mirrored else [],
        group_name=table.asset_group,
        kinds={"kafka", "topic"},
        owners=table.declared.owners,
        tags=table.declared.tags,
        description=f"The topic {table.topic}. {who}; a sensor reports its offsets as they move.",
    )


def loaded_when(cluster: DeclaredCluster, table: DeclaredTable) -> str:
    """Returns the sentence of a table's page that says what loads it, and when."""
    declared = table.declared
    if declared.schedule is not None:
        return f"The schedule {declared.schedule} (UTC) loads it."
    sensor = named("new_records", cluster.name)
    lag = "any record" if declared.lag_bound is None else f"{declared.lag_bound:,} records"
    unless = "" if cluster.load_new_records else ", once that is switched on,"
    return f"The sensor {sensor}{unless} loads it as soon as it lacks {lag} of the topic."


def _table_spec(cluster: DeclaredCluster, table: DeclaredTable) -> dg.AssetSpec:
    records = "typed columns beside the raw envelope" if table.schema else "the raw envelope"
    return dg.AssetSpec(
        step_key(table.keys.table),
        deps=[step_key(table.keys.topic)],
        group_name=table.asset_group,
        kinds={"spark", STORAGE_KINDS[table.format], "table"},
        owners=table.declared.owners,
        tags=table.declared.tags,
        skippable=True,
        description=f"The records of the topic {table.topic} as {FORMAT_NAMES[table.format]} table: {records}. "
        f"{loaded_when(cluster, table)} A run loads what is new since the offsets in the table, and commits rows and "
        "offsets at once; one that finds nothing new is an observation.",
    )


def _dead_letters_spec(table: DeclaredTable) -> dg.AssetSpec:
    return dg.AssetSpec(
        table.keys.dead_letters,
        deps=[table.keys.table],
        group_name=table.asset_group,
        kinds={STORAGE_KINDS[table.format], "dead_letters"},
        owners=table.declared.owners,
        tags=table.declared.tags,
        description=f"The records of the topic {table.topic} that do not fit its schema, each with the reason.",
    )


def _loads(cluster: DeclaredCluster) -> dg.AssetsDefinition:
    by_key: Mapping[dg.AssetKey, DeclaredTable] = {table.keys.table: table for table in cluster.loaded}

    @dg.multi_asset(
        name=f"{cluster.name}_load_tables",
        specs=[_table_spec(cluster, table) for table in cluster.loaded],
        can_subset=True,
        pool=SPARK_POOL,
        required_resource_keys={cluster.name},
    )
    def load_tables(context: dg.AssetExecutionContext, config: LoadConfig) -> Iterator[Event]:
        """Loads the selected tables up to the end offsets that their topics have when each load begins."""
        millrace = resource_of(context, cluster.name)
        left = left_to_load(context)
        jobs = [
            LoadJob(
                key=key.to_user_string(),
                options=config.applied(table_options(by_key[key], millrace, context.run.run_id)),
            )
            for key in sorted(left)
        ]
        if config.dry_run:
            yield from load_previews(context, jobs, DISK)
            return
        if not context.retry_number:  # a re-execution has planned the checks of all tables, and Dagster skips these
            report_checks(context, millrace, [by_key[key] for key in sorted(context.selected_asset_keys - set(left))])
        settings = {**millrace.spark, **config.spark}
        outcomes = run_jobs(
            context, jobs, master=millrace.master or None, spark_settings=settings, stores=millrace.stores
        )
        if millrace.load_metrics:
            outcomes = noting_attempts(context, millrace.load_metrics, jobs, outcomes)
        loaded: list[DeclaredTable] = []
        try:
            for event in asset_events(context, noting_failures(context, outcomes)):
                yield event
                if isinstance(event, dg.MaterializeResult) and event.asset_key is not None:
                    loaded.append(by_key[event.asset_key])
        except dg.Failure:
            report_checks(context, millrace, loaded)
            raise

    return under_own_keys(load_tables, [key for table in cluster.loaded for key in table.keys])
