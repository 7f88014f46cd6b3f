"""The schedule of retention: every hour."""

from __future__ import annotations

import dagster as dg

from millrace_pipelines.defs.retention.assets import retention

hourly_retention = dg.ScheduleDefinition(
    name="hourly_retention",
    target=dg.AssetSelection.assets(retention),
    cron_schedule="0 * * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Applies the retention policies of every topic.",
)
