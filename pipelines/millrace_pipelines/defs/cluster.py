"""All definitions of a cluster.

    topic ──> table ──> dead letters     by the group that the topic's name begins with, with their checks
    retention   compaction   recovery_check   table_upkeep     in the group CLUSTER_maintenance
    reload/…    a target for each table, by the day            in the group CLUSTER_reload

All names begin with the cluster's, so that two clusters in one instance share nothing but the pool of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import dagster as dg

from millrace_pipelines.declaration.cluster import DeclaredCluster
from millrace_pipelines.defs.alert_sensor import alerts_sensor
from millrace_pipelines.defs.consumer_groups import groups_asset, groups_check, ownership_schedule
from millrace_pipelines.defs.load_assets import cluster_assets
from millrace_pipelines.defs.load_automation import load_selection, load_sensors, table_history_sensor, table_schedules
from millrace_pipelines.defs.maintenance import (
    compaction_asset,
    maintenance_schedules,
    recovery_check_asset,
    retention_asset,
    table_upkeep_asset,
)
from millrace_pipelines.defs.repairs import reloads_by_day, repair_jobs
from millrace_pipelines.defs.table_checks import table_checks
from millrace_pipelines.defs.table_metadata import linked
from millrace_pipelines.defs.topic_checks import topic_checks
from millrace_pipelines.defs.topic_sensor import topics_sensor


def cluster_definitions(
    cluster: DeclaredCluster, resources: Mapping[str, object], state: Path, webhook: str | None = None
) -> dg.Definitions:
    """Returns the definitions of a cluster.

    Args:
        cluster: What is declared, and the topics that are known.
        resources: By name, the cluster's resource and that of its downstream jobs.
        state: The file in which the sensor of the topics keeps what it knows.
        webhook: The address to which failures are reported; None for that of the environment, if it has one.
    """
    name = cluster.name
    maintenance = [retention_asset(name), compaction_asset(name), recovery_check_asset(name), table_upkeep_asset(name)]
    groups = [groups_asset(name)] if cluster.has_zookeeper else []
    groups_checks = [groups_check(name)] if groups else []
    alerts = [alerts_sensor(cluster, webhook)] if webhook is not None or cluster.environment.has_webhook else []
    return dg.Definitions(
        assets=linked([*cluster_assets(cluster), *reloads_by_day(cluster), *maintenance, *groups]),
        asset_checks=[*table_checks(cluster), *topic_checks(cluster), *groups_checks],
        jobs=[*_load_job(cluster), *repair_jobs(cluster)],
        sensors=[topics_sensor(cluster, state), *load_sensors(cluster), table_history_sensor(cluster), *alerts],
        schedules=[
            *maintenance_schedules(name),
            *table_schedules(cluster),
            *([ownership_schedule(name)] if groups else []),
        ],
        resources=resources,
        # A load is another process, so that a run needs no process for each step.
        executor=dg.in_process_executor,
    )


def _load_job(cluster: DeclaredCluster) -> list[dg.UnresolvedAssetJobDefinition]:
    """Returns the job that loads all tables and checks what it added; none where no topic becomes a table."""
    if not cluster.loaded:
        return []
    return [
        dg.define_asset_job(
            f"{cluster.name}_load",
            selection=load_selection(list(cluster.loaded)),
            description="Load what the tables lack, then check what was added.",
        )
    ]
