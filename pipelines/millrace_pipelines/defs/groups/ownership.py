"""What ZooKeeper says of the owners of partitions in all its groups, looked at several times.

A rebalance leaves partitions without an owner for moments, so only what every look finds is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import dagster as dg

from millrace.client.consumer.group_offsets import list_zookeeper_groups, open_session
from millrace.client.consumer.group_owners import (
    GroupOwnership,
    OwnershipFinding,
    ownership_findings,
    read_group_ownership,
)
from millrace_pipelines.defs.tables.checks.results import findings_list

LOOKS = 6
PAUSE_S = 5.0


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
