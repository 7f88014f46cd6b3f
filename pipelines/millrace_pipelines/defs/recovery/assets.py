"""The recovery check: the broker reads its segments as it does after a crash, and reports each damaged place."""

from collections.abc import Iterator, Sequence

import dagster as dg

from millrace_pipelines.defs.admin_endpoint import VerifiedPartition
from millrace_pipelines.defs.maintenance import MaintenanceConfig, failures_in_words, partition_metadata
from millrace_pipelines.defs.resources import MillraceResource
from millrace_pipelines.defs.topics.assets import topic


# A multi-asset: only one that can be subset may leave out the result of its check, and a dry run has no result.
@dg.multi_asset(
    can_subset=True,
    specs=[
        dg.AssetSpec(
            "recovery_check",
            deps=[topic],
            group_name="millrace",
            kinds={"kafka"},
            description=(
                "Walks every segment of every partition: sizes, offsets, CRC-32C. The broker goes on serving. "
                "A dry run is an observation of how much there is to read."
            ),
        )
    ],
    check_specs=[
        dg.AssetCheckSpec(
            "no_findings", asset="recovery_check", description="Every batch is whole and its CRC-32C is right."
        )
    ],
)
def recovery_check(
    context: dg.AssetExecutionContext, config: MaintenanceConfig, millrace: MillraceResource
) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult | dg.AssetObservation]:
    """Has the broker verify the logs of the chosen topics."""
    with failures_in_words():
        report = millrace.admin().verify(config.topics, dry_run=config.dry_run)
    partitions = report["partitions"]
    to_read = {
        "segments": sum(one["segments"] for one in partitions),
        "bytes": sum(one["size_bytes"] for one in partitions),
    }
    shown = {"seconds": report["seconds"], **partition_metadata(partitions, "size_bytes")}
    if config.dry_run:
        figures = {f"{name} to read": figure for name, figure in to_read.items()}
        [key] = context.assets_def.keys
        yield dg.AssetObservation(key, metadata={**figures, **shown})
        return
    if context.selected_asset_keys:
        found = {
            "records": sum(one["records"] for one in partitions),
            "findings": sum(len(one["findings"]) for one in partitions),
        }
        yield dg.MaterializeResult(metadata={**to_read, **found, **shown})
    if context.selected_asset_check_keys:
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
