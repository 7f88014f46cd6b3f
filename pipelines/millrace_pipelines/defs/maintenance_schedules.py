"""When a cluster is looked after: retention and compaction every hour, checks and upkeep every night, in UTC.

Retention and compaction keep to `REQUEST_INTERVAL_MS`, by which the broker knows that they are asked for.
"""

from __future__ import annotations

from typing import NamedTuple

import dagster as dg


class _Schedule(NamedTuple):
    name: str
    asset: str
    cron: str
    description: str


SCHEDULES = (
    _Schedule("hourly_retention", "retention", "0 * * * *", "Applies the retention policies of every topic."),
    _Schedule("hourly_compaction", "compaction", "30 * * * *", "Compacts the logs that are due."),
    _Schedule("nightly_recovery_check", "recovery_check", "15 3 * * *", "Walks every log of the broker."),
    _Schedule("nightly_table_upkeep", "table_upkeep", "45 3 * * *", "Compacts, checkpoints and vacuums every table."),
)


def maintenance_schedules(cluster: str) -> list[dg.ScheduleDefinition]:
    """Returns the schedules of a cluster's maintenance, which run by default."""
    return [
        dg.ScheduleDefinition(
            name=f"{cluster}_{schedule.name}",
            target=dg.AssetSelection.assets([cluster, schedule.asset]),
            cron_schedule=schedule.cron,
            default_status=dg.DefaultScheduleStatus.RUNNING,
            description=schedule.description,
        )
        for schedule in SCHEDULES
    ]
