"""The schedule of the check of groups: every hour, where there is a ZooKeeper."""

import os

import dagster as dg

from millrace_pipelines.defs.groups.checks import ONE_LIVE_OWNER

ZOOKEEPER_VARIABLE = "MILLRACE_ZOOKEEPER"


@dg.schedule(
    target=dg.AssetSelection.checks(ONE_LIVE_OWNER),
    cron_schedule="30 * * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Looks whether each partition that a group in ZooKeeper consumes has one live owner.",
)
def hourly_ownership_check() -> dg.RunRequest | dg.SkipReason:
    """Returns a request for the check, unless the brokers run without ZooKeeper."""
    if not os.environ.get(ZOOKEEPER_VARIABLE):
        return dg.SkipReason(f"{ZOOKEEPER_VARIABLE} names no ZooKeeper, so there are no groups to look at")
    return dg.RunRequest()
