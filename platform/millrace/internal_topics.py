"""The topics in which brokers keep their own state, by Apache Kafka's names (`Topic.INTERNAL_TOPICS` of 4.1)."""

from __future__ import annotations

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
SHARE_GROUP_TOPIC = "__share_group_state"  # KIP-932: reserved, though this broker serves no share groups

INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_GROUP_TOPIC})
