"""The sensor that reports commits which no run of Dagster reported, with the checks that follow a load."""

from __future__ import annotations

import dagster as dg

from millrace.errors import MillraceError
from millrace.fs import OsFileSystem
from millrace_pipelines.declaration.cluster import DeclaredCluster, DeclaredTable
from millrace_pipelines.defs.loads.checks import check_evaluations
from millrace_pipelines.defs.resources import MillraceResource, resource_of
from millrace_pipelines.defs.tables.checks.evaluate import AFTER_EACH_LOAD
from millrace_pipelines.defs.tables.history import TableAsset, cursor_of, look, parse_cursor
from millrace_pipelines.defs.tables.runs import InstanceRuns
from millrace_pipelines.warehouse.delta.location import dead_letters_dir

CHECKED_AT_ONCE = 20  # tables; their checks read their newest files, and a tick has a minute


def table_history_sensor(cluster: DeclaredCluster) -> dg.SensorDefinition:
    """Returns the sensor, which runs by default."""

    @dg.sensor(
        name=f"{cluster.name}_table_history",
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={cluster.name},
        description="Reports the loads, reloads, replays and erasures that the command line made, by the tables' "
        "history, and those of dead letters.",
    )
    def table_history(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        """Looks at each table, and at its dead letters."""
        millrace = resource_of(context, cluster.name)
        assets = []
        for table in cluster.loaded:
            location = millrace.table_dir(table.location or table.topic)
            assets.append(TableAsset(location, table.keys.table, topic=table.keys.topic))
            if table.schema is not None:
                assets.append(TableAsset(dead_letters_dir(location), table.keys.dead_letters))
        positions = parse_cursor(context.cursor)
        seen = look(InstanceRuns(context.instance), assets, positions, OsFileSystem())
        for location, error in seen.damaged.items():
            context.log.error("%s can't be read: %s", location, error)
        if not seen.events and seen.positions == positions:
            return dg.SkipReason("no table has a commit that is not reported")
        reported = {event.asset_key for event in seen.events}
        tables = [table for table in cluster.loaded if table.keys.table in reported]
        checks = [check for table in tables[:CHECKED_AT_ONCE] for check in _checks(context, table, millrace)]
        return dg.SensorResult(asset_events=[*seen.events, *checks], cursor=cursor_of(seen.positions))

    return table_history


def _checks(
    context: dg.SensorEvaluationContext, table: DeclaredTable, millrace: MillraceResource
) -> list[dg.AssetCheckEvaluation]:
    """Returns the checks that follow a load; none where they can't be made, as where no broker answers."""
    try:
        return list(check_evaluations(table, millrace, AFTER_EACH_LOAD))
    except MillraceError as error:
        context.log.warning("the checks of the table %s can't be made: %s", table.topic, error)
        return []
