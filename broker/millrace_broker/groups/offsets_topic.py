"""The topic `__consumer_offsets`: its settings, and which of its partitions has a group."""

from __future__ import annotations

import struct

from millrace_broker.group_config import GroupConfig

OFFSETS_TOPIC = "__consumer_offsets"
INT_BITS = 32


def partition_of(group_id: str, partitions: int) -> int:
    """Kafka's choice: the absolute value of Java's `String.hashCode`, modulo the number of partitions."""
    value = java_hash(group_id)
    return 0 if value == -(1 << INT_BITS - 1) else abs(value) % partitions


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, in 32 bits with sign."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(encoded) // 2}H", encoded):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << INT_BITS) if value >> INT_BITS - 1 else value


def topic_config(config: GroupConfig) -> dict[str, str]:
    """The topic's own properties, as Kafka creates it; `compression.type=producer` is what it does anyway."""
    return {"cleanup.policy": "compact", "segment.bytes": str(config.offsets_topic_segment_bytes)}
