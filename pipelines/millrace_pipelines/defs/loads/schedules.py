"""The schedule of the audit: every night, the whole table of each topic."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from millrace_pipelines.defs.loads.checks import selection_of
from millrace_pipelines.defs.tables.checks.results import Check
from millrace_pipelines.defs.topics.partitions import TOPICS

audit = dg.define_asset_job(
    "audit",
    selection=selection_of(Check.COMPLETENESS),
    description="Audit the whole table of one topic, against its history and its topic.",
)


@dg.schedule(
    job=audit,
    cron_schedule="15 4 * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Audits the whole table of each topic.",
)
def nightly_audit(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
    """Yields a run for each topic."""
    for name in sorted(context.instance.get_dynamic_partitions(TOPICS)):
        yield dg.RunRequest(partition_key=name)
