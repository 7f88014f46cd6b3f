"""Compaction on request: the broker keeps the last value of each key, and reports what it rewrote."""

from collections.abc import Iterator, Sequence

import dagster as dg
from pydantic import Field

from millrace_pipelines.defs.admin_endpoint import CompactionOfPartition
from millrace_pipelines.defs.maintenance import (
    MaintenanceConfig,
    failures_in_words,
    maintenance_group,
    partition_metadata,
)
from millrace_pipelines.defs.resources import resource_of

SHOWN_ERRORS = 10


class CompactionConfig(MaintenanceConfig):
    """What a run of compaction is to look after.

    Attributes:
        only_due: Whether logs are left out that their own settings do not ask to compact yet.
    """

    only_due: bool = Field(
        default=True,
        description="Leave out logs that the settings of their topics do not ask to compact yet.",
    )


def compaction_asset(cluster: str) -> dg.AssetsDefinition:
    """Returns the asset of a cluster's compaction."""

    @dg.asset(
        name="compaction",
        key_prefix=cluster,
        group_name=maintenance_group(cluster),
        required_resource_keys={cluster},
        kinds={"kafka"},
        output_required=False,
        retry_policy=dg.RetryPolicy(max_retries=2, delay=5),
        description=(
            "Compacts the logs of topics with cleanup.policy=compact that are due: the last value of each key stays. "
            "A dry run is an observation of what would be rewritten."
        ),
    )
    def compaction(
        context: dg.AssetExecutionContext, config: CompactionConfig
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetObservation]:
        """Has the broker compact the logs of the chosen topics; fails where some logs can't be compacted."""
        with failures_in_words():
            report = (
                resource_of(context, cluster)
                .admin()
                .compact(config.topics, dry_run=config.dry_run, only_due=config.only_due)
            )
        partitions = report["partitions"]
        what = "to rewrite" if config.dry_run else "rewritten"
        segments = [segment for one in partitions for segment in one["by_segment"]]
        metadata = {
            f"segments {what}": len(segments),
            f"bytes {what}": sum(segment["size_bytes"] for segment in segments),
            "seconds": report["seconds"],
            **partition_metadata(partitions, "bytes_before"),
        }
        if config.dry_run:
            yield dg.AssetObservation(context.asset_key, metadata=metadata)
            return
        yield dg.MaterializeResult(metadata=metadata | _outcome(partitions))
        if errors := [f"{one['topic']}-{one['partition']}: {one['error']}" for one in partitions if one["error"]]:
            shown = "; ".join(errors[:SHOWN_ERRORS])
            raise dg.Failure(
                f"{len(errors)} of {len(partitions)} logs could not be compacted: {shown}", allow_retries=False
            )

    return compaction


def _outcome(partitions: Sequence[CompactionOfPartition]) -> dict[str, int]:
    return {
        "bytes before": sum(one["bytes_before"] for one in partitions),
        "bytes after": sum(one["bytes_after"] for one in partitions),
        "records kept": sum(one["records_kept"] for one in partitions),
        "records dropped": sum(one["records_dropped"] for one in partitions),
    }
