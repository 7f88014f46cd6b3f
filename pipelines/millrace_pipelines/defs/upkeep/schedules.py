"""The schedule of upkeep: every night."""

from __future__ import annotations

import dagster as dg

from millrace_pipelines.defs.upkeep.assets import table_upkeep

nightly_table_upkeep = dg.ScheduleDefinition(
    name="nightly_table_upkeep",
    target=dg.AssetSelection.assets(table_upkeep),
    cron_schedule="45 3 * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Compacts, checkpoints and vacuums every table.",
)
