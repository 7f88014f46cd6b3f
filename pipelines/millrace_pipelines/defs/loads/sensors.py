"""Requests a load for each topic that holds records which its table lacks. Stopped until someone turns it on."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from millrace_pipelines.defs.loads.assets import warehouse_table
from millrace_pipelines.defs.loads.checks import completeness
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.topics.partitions import TOPICS
from millrace_pipelines.warehouse.errors import TableNotFoundError
from millrace_pipelines.warehouse.ledger import read_ledger

load = dg.define_asset_job(
    "load",
    selection=dg.AssetSelection.assets(warehouse_table) | dg.AssetSelection.checks(completeness),
    description="Load one topic into its warehouse table, then audit the table.",
)

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
    description="Loads every topic whose end offsets are beyond those in its table, one load of a topic at a time.",
)
def new_records(context: dg.SensorEvaluationContext, millrace: MillraceResource) -> Iterator[dg.RunRequest]:
    """Compare the broker with the tables. No run key: it is remembered for ever, and would drop a repeated load."""
    known = set(context.instance.get_dynamic_partitions(TOPICS))
    for name, offsets in millrace.topic_offsets().items():
        if name not in known or is_load_unfinished(context.instance, name):
            continue
        if offsets.is_ahead_of(next_offsets(millrace.table_dir(name))):
            yield dg.RunRequest(partition_key=name)


def next_offsets(table_dir: str) -> dict[int, int]:
    """The first offset that the table lacks, by partition; empty where there is no table yet."""
    try:
        ledger = read_ledger(table_dir)
    except TableNotFoundError:
        return {}
    return {partition: entry.next_offset for partition, entry in ledger.partitions.items()}


def is_load_unfinished(instance: dg.DagsterInstance, topic: str) -> bool:
    """Whether a run for this topic waits or runs."""
    unfinished = dg.RunsFilter(tags={"dagster/partition": topic}, statuses=UNFINISHED)
    return bool(instance.get_run_records(unfinished, limit=1))
