"""Retention on request: the broker deletes what its policies no longer keep, and reports what it deleted."""

from collections.abc import Iterator

import dagster as dg

from millrace_pipelines.defs.maintenance import (
    MaintenanceConfig,
    failures_in_words,
    maintenance_group,
    partition_metadata,
)
from millrace_pipelines.defs.resources import resource_of


def retention_asset(cluster: str) -> dg.AssetsDefinition:
    """Returns the asset of a cluster's retention."""

    @dg.asset(
        name="retention",
        key_prefix=cluster,
        group_name=maintenance_group(cluster),
        required_resource_keys={cluster},
        kinds={"kafka"},
        output_required=False,
        retry_policy=dg.RetryPolicy(max_retries=2, delay=5),
        description=(
            "Deletes the segments that retention.ms, retention.bytes or another delete policy no longer keeps. "
            "A dry run is an observation of what would be deleted."
        ),
    )
    def retention(
        context: dg.AssetExecutionContext, config: MaintenanceConfig
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetObservation]:
        """Has the broker apply retention to the logs of the chosen topics."""
        with failures_in_words():
            report = resource_of(context, cluster).admin().apply_retention(config.topics, dry_run=config.dry_run)
        partitions = report["partitions"]
        what = "to delete" if config.dry_run else "deleted"
        metadata = {
            f"segments {what}": sum(one["deleted_segments"] for one in partitions),
            f"bytes {what}": sum(one["deleted_bytes"] for one in partitions),
            "seconds": report["seconds"],
            **partition_metadata(partitions, "deleted_bytes"),
        }
        if config.dry_run:
            yield dg.AssetObservation(context.asset_key, metadata=metadata)
        else:
            yield dg.MaterializeResult(metadata=metadata)

    return retention
