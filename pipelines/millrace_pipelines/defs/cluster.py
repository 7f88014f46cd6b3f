"""All definitions of a cluster.

    topic ──> table ──> dead letters     by the group that the topic's name begins with, with their checks
    retention   compaction   recovery_check   table_upkeep     in the group maintenance_CLUSTER
    reload/…    a target for each table, by the day            in the group reload_CLUSTER
    mirror/…    what a mirror brings, before the topic of the same name, and mirrored_topics

All keys begin with the cluster's name, and all other names end with it, so that two clusters in one instance share
nothing but the pool of Spark.

The groups that ZooKeeper coordinates are an asset, with a check that each partition has one live owner. What ZooKeeper
says of the owners is looked at several times: a rebalance leaves partitions without an owner for
moments, so only what every look finds is a fault.
"""

# Without `from __future__ import annotations`: Dagster reads the annotations of steps and checks.

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import dagster as dg

from millrace.client.consumer.group_offsets import list_zookeeper_groups, open_session
from millrace.client.consumer.group_view import (
    GroupOwnership,
    OwnershipFinding,
    ownership_findings,
    read_group_ownership,
)
from millrace_pipelines.declaration.cluster import DeclaredCluster, named
from millrace_pipelines.defs.alert_sensor import alerts_sensor
from millrace_pipelines.defs.downstream import ConsumerGroupResource, groups_resource
from millrace_pipelines.defs.load_assets import cluster_assets
from millrace_pipelines.defs.load_automation import load_selection, load_sensors, table_history_sensor, table_schedules
from millrace_pipelines.defs.maintenance import (
    OF_LOGS,
    OF_TABLES,
    compaction_asset,
    failures_in_words,
    maintenance_group,
    maintenance_schedules,
    recovery_check_asset,
    retention_asset,
    table_upkeep_asset,
)
from millrace_pipelines.defs.maintenance_by_protocol import OF_FOREIGN_LOGS, log_check_asset, settings_assets
from millrace_pipelines.defs.mirror_assets import mirror_assets
from millrace_pipelines.defs.mirror_automation import mirror_schedules, mirror_sensors
from millrace_pipelines.defs.mirror_checks import mirror_checks
from millrace_pipelines.defs.repairs import reloads_by_day, repair_jobs
from millrace_pipelines.defs.table_check_results import findings_list
from millrace_pipelines.defs.table_checks import table_checks
from millrace_pipelines.defs.table_metadata import linked
from millrace_pipelines.defs.topic_checks import topic_checks
from millrace_pipelines.defs.topic_sensor import topics_sensor

LOOKS = 6
PAUSE_S = 5.0
ONE_LIVE_OWNER = "one_live_owner"


def read_groups(zookeeper: str) -> list[GroupOwnership]:
    """Returns all groups in ZooKeeper with members and owners; raises ZooKeeperError where it does not answer."""
    session = open_session(zookeeper)
    try:
        return [read_group_ownership(session, name) for name, _ in list_zookeeper_groups(session)]
    finally:
        session.close()


def examine(
    look: Callable[[], Sequence[GroupOwnership]], pause: Callable[[], None]
) -> tuple[Sequence[GroupOwnership], list[OwnershipFinding]]:
    """Looks at the groups up to LOOKS times, and returns them as last seen, with the findings that every look had.

    It looks again, after a pause, only while some finding was there at every look so far.
    """
    groups = look()
    found = _findings(groups)
    for _ in range(LOOKS - 1):
        if not found:
            break
        pause()
        groups = look()
        found &= _findings(groups)
    return groups, sorted(found)


def ownership_result(groups: Sequence[GroupOwnership], findings: Sequence[OwnershipFinding]) -> dg.AssetCheckResult:
    """Returns the result of the check: passed without findings, else failed with a sentence for each finding."""
    missing = f"Partitions without a live owner: {len(findings)}."
    return dg.AssetCheckResult(
        passed=not findings,
        description=missing if findings else "Each partition that a group consumes has one live owner.",
        metadata={
            "groups": dg.MetadataValue.int(len(groups)),
            "live members": dg.MetadataValue.int(sum(len(group.members) for group in groups)),
            "partitions owned": dg.MetadataValue.int(sum(len(group.owners) for group in groups)),
            "findings": findings_list([str(finding) for finding in findings]),
        },
    )


def _findings(groups: Sequence[GroupOwnership]) -> set[OwnershipFinding]:
    return {finding for group in groups for finding in ownership_findings(group)}


def groups_asset(cluster: str) -> dg.AssetSpec:
    """Returns the asset that stands for a cluster's consumer groups in ZooKeeper; no run materializes it."""
    return dg.AssetSpec(
        [cluster, "consumer_groups"],
        group_name=maintenance_group(cluster),
        kinds={"zookeeper"},
        description="The consumer groups that ZooKeeper coordinates.",
    )


def groups_check(cluster: str) -> dg.AssetChecksDefinition:
    """Returns the check that each partition of a cluster's ZooKeeper groups has one live owner."""

    @dg.asset_check(
        asset=groups_asset(cluster).key,
        name=ONE_LIVE_OWNER,
        required_resource_keys={groups_resource(cluster)},
        description="Each partition that a group in ZooKeeper consumes has one owner, which is a live member.",
    )
    def one_live_owner(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        """Fails unless one live member owns each partition of each group; looks again, as groups may rebalance."""
        groups: ConsumerGroupResource = getattr(context.resources, groups_resource(cluster))
        with failures_in_words():
            return ownership_result(*examine(lambda: read_groups(groups.zookeeper), lambda: time.sleep(PAUSE_S)))

    return one_live_owner


def ownership_schedule(cluster: str) -> dg.ScheduleDefinition:
    """Returns the hourly schedule of the check that `groups_check` makes."""
    return dg.ScheduleDefinition(
        name=named("hourly_ownership_check", cluster),
        target=dg.AssetSelection.checks(dg.AssetCheckKey(groups_asset(cluster).key, ONE_LIVE_OWNER)),
        cron_schedule="30 * * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Looks whether each partition that a group in ZooKeeper consumes has one live owner.",
    )


def cluster_definitions(
    cluster: DeclaredCluster, resources: Mapping[str, object], state: Path, webhook: str | None = None
) -> dg.Definitions:
    """Returns all of Dagster's definitions for a cluster: assets, checks, jobs, sensors and schedules.

    Args:
        cluster: What is declared, and the topics that are known.
        resources: By name, the cluster's resource and that of its downstream jobs.
        state: The path of the component's state file, which the sensor of the topics rewrites.
        webhook: The address to which failures are reported; None for that of the environment, if it has one.
    """
    name = cluster.name
    groups = [groups_asset(name)] if cluster.has_zookeeper else []
    groups_checks = [groups_check(name)] if groups else []
    alerts = [alerts_sensor(cluster, webhook)] if webhook is not None or cluster.environment.has_webhook else []
    return dg.Definitions(
        assets=linked(
            [
                *cluster_assets(cluster),
                *reloads_by_day(cluster),
                *maintenance_assets(cluster),
                *groups,
                *mirror_assets(cluster),
            ]
        ),
        asset_checks=[*table_checks(cluster), *topic_checks(cluster), *groups_checks, *mirror_checks(cluster)],
        jobs=[*_load_job(cluster), *repair_jobs(cluster)],
        sensors=[
            topics_sensor(cluster, state),
            *load_sensors(cluster),
            table_history_sensor(cluster),
            *mirror_sensors(cluster),
            *alerts,
        ],
        schedules=[
            *maintenance_schedules(name, [*(OF_LOGS if cluster.has_admin else OF_FOREIGN_LOGS), *OF_TABLES]),
            *table_schedules(cluster),
            *mirror_schedules(cluster),
            *([ownership_schedule(name)] if groups else []),
        ],
        resources=resources,
        # A load is another process, so that a run needs no process for each step.
        executor=dg.in_process_executor,
    )


def maintenance_assets(cluster: DeclaredCluster) -> list[dg.AssetsDefinition]:
    """Returns the assets of a cluster's maintenance; those of its logs go by whether they can be asked for."""
    name = cluster.name
    logs = (
        [retention_asset(name), compaction_asset(name), recovery_check_asset(name)]
        if cluster.has_admin
        else [settings_assets(cluster), log_check_asset(cluster)]
    )
    return [*logs, table_upkeep_asset(name, cluster.in_catalogs)]


def _load_job(cluster: DeclaredCluster) -> list["dg.UnresolvedAssetJobDefinition"]:
    """Returns the job that loads all tables and checks what it added; none where no topic becomes a table."""
    if not cluster.loaded:
        return []
    return [
        dg.define_asset_job(
            named("load", cluster.name),
            selection=load_selection(list(cluster.loaded)),
            description="Load what the tables lack, then check what was added.",
        )
    ]
