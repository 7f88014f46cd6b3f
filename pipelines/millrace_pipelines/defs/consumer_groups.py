"""The groups that ZooKeeper coordinates, as an asset, and its check: each partition has one live owner.

What ZooKeeper says of the owners is looked at several times: a rebalance leaves partitions without an owner for
moments, so only what every look finds is a fault.
"""

# Without `from __future__ import annotations`: Dagster reads the annotations of steps and checks.

import time
from collections.abc import Callable, Sequence

import dagster as dg

from millrace.client.consumer.group_offsets import list_zookeeper_groups, open_session
from millrace.client.consumer.group_view import (
    GroupOwnership,
    OwnershipFinding,
    ownership_findings,
    read_group_ownership,
)
from millrace_pipelines.defs.downstream import ConsumerGroupResource, groups_resource
from millrace_pipelines.defs.maintenance import failures_in_words, maintenance_group
from millrace_pipelines.defs.table_check_results import findings_list

LOOKS = 6
PAUSE_S = 5.0
ONE_LIVE_OWNER = "one_live_owner"


def read_groups(zookeeper: str) -> list[GroupOwnership]:
    """Reads all groups; raises ZooKeeperError where ZooKeeper does not answer."""
    session = open_session(zookeeper)
    try:
        return [read_group_ownership(session, name) for name, _ in list_zookeeper_groups(session)]
    finally:
        session.close()


def examine(
    look: Callable[[], Sequence[GroupOwnership]], pause: Callable[[], None]
) -> tuple[Sequence[GroupOwnership], list[OwnershipFinding]]:
    """Returns the groups as they are at the last of at most LOOKS looks, and what every look found.

    It looks again, after a pause, as long as all looks have found the same fault.
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
    """Returns a result that passes without findings, and else has a sentence for each."""
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
