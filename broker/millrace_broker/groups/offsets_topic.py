"""The topic `__consumer_offsets`: its settings."""

from __future__ import annotations

from millrace_broker.group_config import GroupConfig


def topic_config(config: GroupConfig) -> dict[str, str]:
    """The topic's own properties, as Kafka creates it; `compression.type=producer` is what it does anyway."""
    return {"cleanup.policy": "compact", "segment.bytes": str(config.offsets_topic_segment_bytes)}
