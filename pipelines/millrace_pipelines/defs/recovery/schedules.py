"""The schedule of the recovery check: every night."""

from __future__ import annotations

import dagster as dg

from millrace_pipelines.defs.recovery.assets import recovery_check

nightly_recovery_check = dg.ScheduleDefinition(
    name="nightly_recovery_check",
    target=dg.AssetSelection.assets(recovery_check),
    cron_schedule="15 3 * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Walks every log of the broker.",
)
