"""Retention on request: the broker deletes what its policies no longer keep, and reports what it deleted."""

from __future__ import annotations

import dagster as dg

from millrace_pipelines.defs.maintenance import report_table
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.topics.assets import topic


@dg.asset(
    deps=[topic],
    group_name="millrace",
    kinds={"kafka"},
    retry_policy=dg.RetryPolicy(max_retries=2, delay=5),
    description="Deletes the segments that retention.ms or retention.bytes no longer keep, on every partition.",
)
def retention(millrace: MillraceResource) -> dg.MaterializeResult[None]:
    """Has the broker apply retention to all logs."""
    report = millrace.apply_retention()
    partitions = report["partitions"]
    return dg.MaterializeResult(
        metadata={
            "segments deleted": sum(one["deleted_segments"] for one in partitions),
            "bytes deleted": sum(one["deleted_bytes"] for one in partitions),
            "seconds": report["seconds"],
            "partitions": report_table(partitions),
        }
    )
