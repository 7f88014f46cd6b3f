"""Topics as an external asset: producers fill them, and a sensor reports their offsets."""

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
    description="The topics of the broker, a partition for each. The sensor `topics` records offsets as they move.",
)


def materializations(topics: Iterable[TopicOffsets]) -> list[dg.AssetMaterialization]:
    """Returns an event with the offsets of each topic, without a data version: ledgers alone say what tables lack."""
    return [
        dg.AssetMaterialization(
            asset_key=topic.key,
            partition=offsets.topic,
            metadata={"records": offsets.records, "offsets": offsets.table(), "topic id": offsets.topic_id},
        )
        for offsets in topics
    ]
