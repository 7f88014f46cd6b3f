"""The groups that ZooKeeper coordinates, as an asset, and its check: each partition has one live owner."""

# Without `from __future__ import annotations`: Dagster reads the annotations of the check's function.

import time

import dagster as dg

from millrace_pipelines.defs.downstream.resource import ConsumerGroupResource, groups_resource
from millrace_pipelines.defs.groups.ownership import PAUSE_S, examine, ownership_result, read_groups
from millrace_pipelines.defs.maintenance import failures_in_words, maintenance_group

ONE_LIVE_OWNER = "one_live_owner"


def groups_asset(cluster: str) -> dg.AssetSpec:
    """Returns the asset of a cluster's groups, which consumers keep."""
    return dg.AssetSpec(
        [cluster, "consumer_groups"],
        group_name=maintenance_group(cluster),
        kinds={"zookeeper"},
        description="The consumer groups that ZooKeeper coordinates.",
    )


def groups_check(cluster: str) -> dg.AssetChecksDefinition:
    """Returns the check of a cluster's groups."""

    @dg.asset_check(
        asset=groups_asset(cluster).key,
        name=ONE_LIVE_OWNER,
        required_resource_keys={groups_resource(cluster)},
        description="Each partition that a group in ZooKeeper consumes has one owner, which is a live member.",
    )
    def one_live_owner(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        """Looks at all groups, several times where a partition has no live owner."""
        groups: ConsumerGroupResource = getattr(context.resources, groups_resource(cluster))
        with failures_in_words():
            return ownership_result(*examine(lambda: read_groups(groups.zookeeper), lambda: time.sleep(PAUSE_S)))

    return one_live_owner


def ownership_schedule(cluster: str) -> dg.ScheduleDefinition:
    """Returns the schedule of the check: every hour."""
    return dg.ScheduleDefinition(
        name=f"{cluster}_hourly_ownership_check",
        target=dg.AssetSelection.checks(dg.AssetCheckKey(groups_asset(cluster).key, ONE_LIVE_OWNER)),
        cron_schedule="30 * * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Looks whether each partition that a group in ZooKeeper consumes has one live owner.",
    )
