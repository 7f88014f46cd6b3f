"""The check of the groups that ZooKeeper coordinates: each partition has one live owner."""

# Without `from __future__ import annotations`: Dagster reads the annotations of the check's function.

import time

import dagster as dg

from millrace_pipelines.defs.downstream.resource import ConsumerGroupResource
from millrace_pipelines.defs.groups.ownership import PAUSE_S, examine, ownership_result, read_groups
from millrace_pipelines.defs.maintenance import failures_in_words
from millrace_pipelines.defs.topics.assets import topic

NAME = "one_live_owner"


def ownership_check(asset: dg.AssetKey) -> dg.AssetChecksDefinition:
    """Returns the check as one of this asset; it needs a `ConsumerGroupResource` under the key `consumer_groups`."""

    @dg.asset_check(
        asset=asset,
        name=NAME,
        description="Each partition that a group in ZooKeeper consumes has one owner, which is a live member.",
    )
    def one_live_owner(consumer_groups: ConsumerGroupResource) -> dg.AssetCheckResult:
        """Looks at all groups, several times where a partition has no live owner."""
        with failures_in_words():
            return ownership_result(
                *examine(lambda: read_groups(consumer_groups.zookeeper), lambda: time.sleep(PAUSE_S))
            )

    return one_live_owner


ONE_LIVE_OWNER = dg.AssetCheckKey(topic.key, NAME)
one_live_owner = ownership_check(topic.key)
