"""The sensors of loads: one reports the lag of tables; one, stopped by default, loads what a table lacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import dagster as dg

from millrace.client.fetched import IsolationLevel
from millrace.clock import SystemClock
from millrace_pipelines.defs.loads.assets import warehouse_table
from millrace_pipelines.defs.loads.checks import selection_of
from millrace_pipelines.defs.loads.due import Standing, TableLedger, decide_loads, standing
from millrace_pipelines.defs.loads.lag import lag_cursor, lag_report, lag_summary, lags_of
from millrace_pipelines.defs.loads.ledgers import LedgerReader
from millrace_pipelines.defs.loads.runs import LOAD_JOB, load_runs
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.tables.checks.evaluate import AFTER_EACH_LOAD
from millrace_pipelines.defs.ticks import failing_in_words
from millrace_pipelines.defs.topics.offsets import Look, read_topic_offsets
from millrace_pipelines.defs.topics.partitions import TOPICS
from millrace_pipelines.defs.topics.sensors import left_out, log_failed

load = dg.define_asset_job(
    LOAD_JOB,
    selection=dg.AssetSelection.assets(warehouse_table).without_checks() | selection_of(*AFTER_EACH_LOAD),
    description="Load one topic into its warehouse table, then check what the load added.",
)

# The queue starts runs with a higher priority first, and those that a person launches have 0.
BEHIND_PEOPLE = {"dagster/priority": "-1"}
LEDGERS = LedgerReader()


@dg.sensor(
    job=load,
    minimum_interval_seconds=30,
    description="Loads each topic whose offsets differ from those of its table, one load of a topic at a time; "
    "after a load that failed, it waits ten minutes. Loads that a person launches go first.",
)
def new_records(context: dg.SensorEvaluationContext, millrace: MillraceResource) -> dg.SensorResult:
    """Compares the cluster with the tables; the runs are asked for first, as they change the tables.

    Runs have no key: Dagster remembers keys, and would drop a repeated load.
    """
    runs = load_runs(context.instance, SystemClock().now_ms())
    tables = look_at_tables(millrace, context.instance.get_dynamic_partitions(TOPICS))
    log_failed(context, tables.look)
    decision = decide_loads(tables.standings, under_way=runs.under_way, failed_lately=runs.failed_lately)
    return dg.SensorResult(
        run_requests=[dg.RunRequest(partition_key=name, tags=BEHIND_PEOPLE) for name in decision.requested],
        skip_reason=None if decision.requested else decision.summary + left_out(tables.look),
    )


@dg.sensor(
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Observes how many records a load of each table would read now, as long as there are any.",
)
def table_lag(context: dg.SensorEvaluationContext, millrace: MillraceResource) -> dg.SensorResult:
    """Reports the lag of each table that lags, or has just caught up; a topic without a table has none."""
    tables = look_at_tables(millrace, context.instance.get_dynamic_partitions(TOPICS))
    log_failed(context, tables.look)
    lags = {name: one.lag for name, one in tables.standings.items() if tables.ledgers[name] is not None}
    report = lag_report(lags_of(context.cursor), lags)
    return dg.SensorResult(
        asset_events=[
            dg.AssetObservation(asset_key=warehouse_table.key, partition=name, metadata={"lag": lag})
            for name, lag in report.observed.items()
        ],
        skip_reason=lag_summary(lags) + left_out(tables.look),
        cursor=lag_cursor(report.seen),
    )


class Tables(NamedTuple):
    """What a look at topics and their tables found, by topic; `standings` lacks topics that can't be looked at."""

    look: Look
    ledgers: Mapping[str, TableLedger]
    standings: Mapping[str, Standing]


def look_at_tables(millrace: MillraceResource, topics: Iterable[str]) -> Tables:
    """Looks at the tables of these topics, and then at the offsets that a load would read.

    The ledgers are read first: a load that commits meanwhile makes no table seem ahead of its topic.
    """
    ledgers = {name: LEDGERS.read(millrace.table_dir(name)) for name in sorted(topics)}
    with failing_in_words(), millrace.cluster() as cluster:
        look = read_topic_offsets(cluster, IsolationLevel.READ_COMMITTED)
    standings = {name: standing(look.topics[name], ledger) for name, ledger in ledgers.items() if name in look.topics}
    return Tables(look, ledgers, standings)
