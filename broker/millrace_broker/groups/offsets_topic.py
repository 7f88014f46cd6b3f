"""The settings of the topic `__consumer_offsets`."""

from __future__ import annotations

from millrace_broker.properties.group_config import GroupConfig


def topic_config(config: GroupConfig) -> dict[str, str]:
    """Returns the topic's own properties, those of Kafka but for `compression.type=producer`, which is the default."""
    return {"cleanup.policy": "compact", "segment.bytes": str(config.offsets_topic_segment_bytes)}
