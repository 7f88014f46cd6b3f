"""The sensors of loads: one reports the lag of tables, the other requests loads of the tables that lack records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import dagster as dg

from millrace.client.fetched import IsolationLevel
from millrace.clock import SystemClock
from millrace_pipelines.declaration.cluster import DeclaredCluster, DeclaredTable
from millrace_pipelines.defs.loads.due import Standing, TableLedger, decide_loads, standing
from millrace_pipelines.defs.loads.lag import lag_cursor, lag_report, lag_summary, lags_of
from millrace_pipelines.defs.loads.ledgers import LedgerReader
from millrace_pipelines.defs.loads.runs import load_runs
from millrace_pipelines.defs.loads.schedules import load_selection
from millrace_pipelines.defs.resources import MillraceResource, resource_of
from millrace_pipelines.defs.tables.checks.evaluate import AFTER_EACH_LOAD
from millrace_pipelines.defs.ticks import failing_in_words
from millrace_pipelines.defs.topics.offsets import Look, TopicOffsets, read_topic_offsets
from millrace_pipelines.defs.topics.sensors import left_out, log_failed
from millrace_pipelines.spark.choices import Isolation

# The queue starts runs with a higher priority first, and those that a person launches have 0.
BEHIND_PEOPLE = {"dagster/priority": "-1"}
LEDGERS = LedgerReader()
LEVELS: Mapping[Isolation, IsolationLevel] = {
    Isolation.READ_COMMITTED: IsolationLevel.READ_COMMITTED,
    Isolation.READ_UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED,
}


def load_sensors(cluster: DeclaredCluster) -> list[dg.SensorDefinition]:
    """Returns the sensors of a cluster's loads, none where no topic becomes a table."""
    return [new_records_sensor(cluster), table_lag_sensor(cluster)] if cluster.loaded else []


def new_records_sensor(cluster: DeclaredCluster) -> dg.SensorDefinition:
    """Returns the sensor that loads tables without a schedule; it runs by default where one has a lag bound."""
    tables = [table for table in cluster.loaded if table.declared.schedule is None]
    is_bounded = any(table.declared.lag_bound for table in tables)

    @dg.sensor(
        name=f"{cluster.name}_new_records",
        target=load_selection(list(cluster.loaded)),
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING if is_bounded else dg.DefaultSensorStatus.STOPPED,
        required_resource_keys={cluster.name},
        description="Loads all tables that lack records, or as many as their lag_bound says, in one run; tables with a "
        "schedule are left to it. After a load that failed, a table waits ten minutes. Loads that a person launches go "
        "first.",
    )
    def new_records(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        """Compares the topics with the tables; the runs are asked for first, as they change the tables.

        Runs have no key: Dagster remembers keys, and would drop a repeated load.
        """
        keys = {table.keys.table: table for table in tables}
        runs = load_runs(context.instance, keys, SystemClock().now_ms())
        seen = look_at_tables(resource_of(context, cluster.name), tables)
        log_failed(context, seen.look)
        decision = decide_loads(
            {table.topic: seen.standings[table.topic].bounded(table.declared.lag_bound)
             for table in tables if table.topic in seen.standings},
            under_way={keys[key].topic for key in runs.under_way},
            failed_lately={keys[key].topic for key in runs.failed_lately},
        )  # fmt: skip
        requested = [table for table in tables if table.topic in decision.requested]
        return dg.SensorResult(
            run_requests=[load_request(requested)] if requested else [],
            skip_reason=None if requested else decision.summary + left_out(seen.look),
        )

    return new_records


def load_request(tables: Iterable[DeclaredTable]) -> dg.RunRequest:
    """Returns the request of one run that loads these tables, and checks what it added to each."""
    tables = list(tables)
    return dg.RunRequest(
        asset_selection=[table.keys.table for table in tables],
        asset_check_keys=[
            dg.AssetCheckKey(table.keys.table, check.value) for table in tables for check in AFTER_EACH_LOAD
        ],
        tags=BEHIND_PEOPLE,
    )


def table_lag_sensor(cluster: DeclaredCluster) -> dg.SensorDefinition:
    """Returns the sensor that observes the lag of tables; it runs by default."""

    @dg.sensor(
        name=f"{cluster.name}_table_lag",
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={cluster.name},
        description="Observes how many records a load of each table would read now, as long as there are any.",
    )
    def table_lag(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        """Reports the lag of each table that lags, or has just caught up; a topic without a table has none."""
        seen = look_at_tables(resource_of(context, cluster.name), cluster.loaded)
        log_failed(context, seen.look)
        lags = {name: one.lag for name, one in seen.standings.items() if seen.ledgers[name] is not None}
        report = lag_report(lags_of(context.cursor), lags)
        keys = {table.topic: table.keys.table for table in cluster.loaded}
        return dg.SensorResult(
            asset_events=[
                dg.AssetObservation(asset_key=keys[name], metadata={"lag": lag})
                for name, lag in report.observed.items()
            ],
            skip_reason=lag_summary(lags) + left_out(seen.look),
            cursor=lag_cursor(report.seen),
        )

    return table_lag


class Tables(NamedTuple):
    """What a look at topics and their tables found, by topic; `standings` lacks topics that can't be looked at."""

    look: Look
    ledgers: Mapping[str, TableLedger]
    standings: Mapping[str, Standing]


def look_at_tables(millrace: MillraceResource, tables: Iterable[DeclaredTable]) -> Tables:
    """Looks at tables, and then at the offsets that a load would read: at the isolation that each table declares.

    The ledgers are read first: a load that commits meanwhile makes no table seem ahead of its topic.
    """
    tables = list(tables)
    ledgers = {table.topic: LEDGERS.read(millrace.table_dir(table.location or table.topic)) for table in tables}
    looks: dict[Isolation, Look] = {}
    with failing_in_words(), millrace.cluster() as client:
        for isolation in {table.declared.isolation for table in tables}:
            looks[isolation] = read_topic_offsets(client, LEVELS[isolation])
    standings = {
        table.topic: standing(offsets, ledgers[table.topic])
        for table in tables
        if (offsets := looks[table.declared.isolation].topics.get(table.topic)) is not None
    }
    return Tables(_merged(looks.values()), ledgers, standings)


def _merged(looks: Iterable[Look]) -> Look:
    topics: dict[str, TopicOffsets] = {}
    failed: dict[str, str] = {}
    for look in looks:
        topics |= look.topics
        failed |= look.failed
    return Look(topics, failed)
