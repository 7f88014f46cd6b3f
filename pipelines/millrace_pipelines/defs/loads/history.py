"""The sensor that reports commits which no run of Dagster reported."""

from __future__ import annotations

import dagster as dg

from millrace.fs import OsFileSystem
from millrace_pipelines.defs.loads.assets import warehouse_table
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.tables.history import TableAsset, cursor_of, look, parse_cursor
from millrace_pipelines.defs.tables.runs import InstanceRuns
from millrace_pipelines.defs.topics.assets import topic
from millrace_pipelines.defs.topics.partitions import TOPICS


@dg.sensor(
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Reports the loads, reloads, replays and erasures that the command line made, by the tables' history.",
)
def table_history(context: dg.SensorEvaluationContext, millrace: MillraceResource) -> dg.SensorResult | dg.SkipReason:
    """Looks at the table of each topic."""
    names = sorted(context.instance.get_dynamic_partitions(TOPICS))
    assets = [TableAsset(millrace.table_dir(name), warehouse_table.key, name, topic.key) for name in names]
    positions = parse_cursor(context.cursor)
    seen = look(InstanceRuns(context.instance), assets, positions, OsFileSystem())
    for location, error in seen.damaged.items():
        context.log.error("%s can't be read: %s", location, error)
    if not seen.events and seen.positions == positions:
        return dg.SkipReason("no table has a commit that is not reported")
    return dg.SensorResult(asset_events=seen.events, cursor=cursor_of(seen.positions))
