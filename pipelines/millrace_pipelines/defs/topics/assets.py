"""Makes an event for the asset of each topic whose offsets have changed since they were last read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import dagster as dg

from millrace_pipelines.defs.topics.offsets import TopicOffsets


def materializations(topics: Iterable[TopicOffsets], keys: Mapping[str, dg.AssetKey]) -> list[dg.AssetMaterialization]:
    """Returns an event with the offsets of each topic that has an asset.

    It has no data version: ledgers alone say what tables lack.

    Args:
        topics: What the look found.
        keys: By topic, the key of its asset.
    """
    return [
        dg.AssetMaterialization(
            asset_key=keys[offsets.topic],
            metadata={"records": offsets.records, "offsets": offsets.table(), "topic id": offsets.topic_id},
        )
        for offsets in topics
        if offsets.topic in keys
    ]
