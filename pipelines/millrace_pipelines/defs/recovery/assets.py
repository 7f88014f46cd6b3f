"""The recovery check: the broker reads its segments as it does after a crash, and reports each damaged place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import dagster as dg

from millrace_pipelines.defs.maintenance import report_table
from millrace_pipelines.defs.resources import MillraceResource, VerifiedPartition
from millrace_pipelines.defs.topics.assets import topic


@dg.asset(
    deps=[topic],
    group_name="millrace",
    kinds={"kafka"},
    check_specs=[
        dg.AssetCheckSpec(
            "no_findings", asset="recovery_check", description="Every batch is whole and its CRC-32C is right."
        )
    ],
    description="Walks every segment of every partition: sizes, offsets, CRC-32C. The broker goes on serving.",
)
def recovery_check(millrace: MillraceResource) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
    """Has the broker verify all logs."""
    report = millrace.verify_logs()
    partitions = report["partitions"]
    yield dg.MaterializeResult(
        metadata={
            "records": sum(report["records"] for report in partitions),
            "bytes": sum(report["size_bytes"] for report in partitions),
            "findings": sum(len(report["findings"]) for report in partitions),
            "seconds": report["seconds"],
            "partitions": report_table(partitions),
        }
    )
    yield no_findings(partitions)


def no_findings(partitions: Sequence[VerifiedPartition]) -> dg.AssetCheckResult:
    """Returns a result that passes without findings, and else has a line with file and byte for each."""
    lines = [
        f"- `{finding['file']}` at byte {finding['position']}: {finding['reason']}"
        for report in partitions
        for finding in report["findings"]
    ]
    return dg.AssetCheckResult(
        check_name="no_findings",
        passed=not lines,
        metadata={"findings": dg.MetadataValue.md("\n".join(lines) or "none")},
    )
