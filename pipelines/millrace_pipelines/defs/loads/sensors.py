"""The sensor that requests a load for each topic with records that its table lacks; it is stopped by default."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from millrace.clock import SystemClock
from millrace.errors import WarehouseError
from millrace_pipelines.defs.loads.assets import warehouse_table
from millrace_pipelines.defs.loads.checks import selection_of
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.tables.checks.evaluate import AFTER_EACH_LOAD
from millrace_pipelines.defs.topics.offsets import TopicOffsets, read_topic_offsets
from millrace_pipelines.defs.topics.partitions import TOPICS
from millrace_pipelines.warehouse.errors import TableNotFoundError
from millrace_pipelines.warehouse.ledger.ledger import read_ledger

load = dg.define_asset_job(
    "load",
    selection=dg.AssetSelection.assets(warehouse_table).without_checks() | selection_of(*AFTER_EACH_LOAD),
    description="Load one topic into its warehouse table, then check what the load added.",
)

RETRY_AFTER_MS = 600_000  # a permanent failure is reported again, but not at every tick
UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


@dg.sensor(
    job=load,
    minimum_interval_seconds=30,
    description="Loads each topic whose offsets differ from those of its table, one load of a topic at a time; "
    "after a load that failed, it waits ten minutes.",
)
def new_records(context: dg.SensorEvaluationContext, millrace: MillraceResource) -> Iterator[dg.RunRequest]:
    """Compares the broker with the tables. Runs have no key: Dagster remembers keys, and would drop a repeated load."""
    known = set(context.instance.get_dynamic_partitions(TOPICS))
    with millrace.cluster() as cluster:
        topics = read_topic_offsets(cluster)
    for name, offsets in topics.items():
        if name not in known or is_load_unfinished(context.instance, name):
            continue
        if has_just_failed(context.instance, name, SystemClock().now_ms()):
            continue
        if is_load_due(offsets, millrace.table_dir(name)):
            yield dg.RunRequest(partition_key=name)


def is_load_due(offsets: TopicOffsets, table_dir: str) -> bool:
    """Returns whether a load has something to load or to report: a recreated topic, a cut log, a damaged table."""
    try:
        ledger = read_ledger(table_dir)
    except TableNotFoundError:
        return offsets.is_ahead_of({})
    except WarehouseError:
        return True
    if offsets.topic_id and offsets.topic_id != ledger.topic_id:
        return True
    following = {partition: entry.next_offset for partition, entry in ledger.partitions.items()}
    return offsets.is_ahead_of(following) or offsets.is_behind(following)


def is_load_unfinished(instance: dg.DagsterInstance, topic: str) -> bool:
    """Returns whether a run for this topic is queued or running."""
    unfinished = dg.RunsFilter(tags={"dagster/partition": topic}, statuses=UNFINISHED)
    return bool(instance.get_run_records(unfinished, limit=1))


def has_just_failed(instance: dg.DagsterInstance, topic: str, now_ms: int) -> bool:
    """Returns whether the newest run for this topic failed less than RETRY_AFTER_MS ago."""
    newest = instance.get_run_records(dg.RunsFilter(tags={"dagster/partition": topic}), limit=1)
    return any(
        one.dagster_run.status is dg.DagsterRunStatus.FAILURE and now_ms - 1000 * (one.end_time or 0) < RETRY_AFTER_MS
        for one in newest
    )
