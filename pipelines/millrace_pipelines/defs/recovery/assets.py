"""The recovery check: the broker reads its segments as it does after a crash, and reports each damaged place."""

from collections.abc import Iterator, Sequence

import dagster as dg

from millrace_pipelines.defs.admin_endpoint import VerifiedPartition
from millrace_pipelines.defs.maintenance import (
    MaintenanceConfig,
    failures_in_words,
    maintenance_group,
    partition_metadata,
)
from millrace_pipelines.defs.resources import resource_of


def recovery_check_asset(cluster: str) -> dg.AssetsDefinition:
    """Returns the asset of a cluster's recovery check, and its check."""
    key = dg.AssetKey([cluster, "recovery_check"])

    # A multi-asset: only one that can be subset may leave out the result of its check, and a dry run has no result.
    @dg.multi_asset(
        can_subset=True,
        name=f"{cluster}__recovery_check",
        required_resource_keys={cluster},
        specs=[
            dg.AssetSpec(
                key,
                group_name=maintenance_group(cluster),
                kinds={"kafka"},
                description=(
                    "Walks every segment of every partition: sizes, offsets, CRC-32C. The broker goes on serving. "
                    "A dry run is an observation of how much there is to read."
                ),
            )
        ],
        check_specs=[
            dg.AssetCheckSpec("no_findings", asset=key, description="Every batch is whole and its CRC-32C is right.")
        ],
    )
    def recovery_check(
        context: dg.AssetExecutionContext, config: MaintenanceConfig
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult | dg.AssetObservation]:
        """Has the broker verify the logs of the chosen topics."""
        with failures_in_words():
            report = resource_of(context, cluster).admin().verify(config.topics, dry_run=config.dry_run)
        partitions = report["partitions"]
        to_read = {
            "segments": sum(one["segments"] for one in partitions),
            "bytes": sum(one["size_bytes"] for one in partitions),
        }
        shown = {"seconds": report["seconds"], **partition_metadata(partitions, "size_bytes")}
        if config.dry_run:
            figures = {f"{name} to read": figure for name, figure in to_read.items()}
            yield dg.AssetObservation(key, metadata={**figures, **shown})
            return
        if context.selected_asset_keys:
            found = {
                "records": sum(one["records"] for one in partitions),
                "findings": sum(len(one["findings"]) for one in partitions),
            }
            yield dg.MaterializeResult(asset_key=key, metadata={**to_read, **found, **shown})
        if context.selected_asset_check_keys:
            yield no_findings(partitions, key)

    return recovery_check


def no_findings(partitions: Sequence[VerifiedPartition], asset_key: dg.AssetKey) -> dg.AssetCheckResult:
    """Returns a result that passes without findings, and else has a line with file and byte for each."""
    lines = [
        f"- `{finding['file']}` at byte {finding['position']}: {finding['reason']}"
        for report in partitions
        for finding in report["findings"]
    ]
    return dg.AssetCheckResult(
        check_name="no_findings",
        asset_key=asset_key,
        passed=not lines,
        metadata={"findings": dg.MetadataValue.md("\n".join(lines) or "none")},
    )
