"""The schedule of compaction: every hour, half an hour after retention."""

from __future__ import annotations

import dagster as dg

from millrace_pipelines.defs.compaction.assets import compaction

hourly_compaction = dg.ScheduleDefinition(
    name="hourly_compaction",
    target=dg.AssetSelection.assets(compaction),
    cron_schedule="30 * * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Compacts the logs that are due.",
)
