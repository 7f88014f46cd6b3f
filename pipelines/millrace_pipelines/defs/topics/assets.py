"""Topics as an external asset: producers fill them, and the sensor reports what it sees."""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg

from millrace_pipelines.defs.topics.offsets import TopicOffsets
from millrace_pipelines.defs.topics.partitions import topics_partitions

topic = dg.AssetSpec(
    "topic",
    partitions_def=topics_partitions,
    group_name="millrace",
    kinds={"kafka"},
    description="A topic on the broker; one partition each. The sensor `topics` records its offsets as they move.",
)


def materializations(topics: Iterable[TopicOffsets]) -> list[dg.AssetMaterialization]:
    """One event per topic with its offsets. No data version: what a table lacks is told by its ledger alone."""
    return [
        dg.AssetMaterialization(
            asset_key=topic.key,
            partition=offsets.topic,
            metadata={"records": offsets.records, "offsets": offsets.table(), "topic id": offsets.topic_id},
        )
        for offsets in topics
    ]
