"""One Dagster partition per topic. Offsets are never Dagster partitions: the ledger in the table holds them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import dagster as dg

TOPICS = "topics"
topics_partitions = dg.DynamicPartitionsDefinition(name=TOPICS)


class PartitionChanges(NamedTuple):
    """What makes the known partitions equal to the broker's topics; both sorted."""

    added: list[str]
    removed: list[str]


def is_internal(topic: str) -> bool:
    """Whether a topic belongs to the brokers themselves, as `__consumer_offsets` does."""
    return topic.startswith("__")


def partition_changes(topics: Iterable[str], known: Iterable[str]) -> PartitionChanges:
    """Topics to add and to remove; internal topics never become partitions."""
    wanted = {topic for topic in topics if not is_internal(topic)}
    return PartitionChanges(added=sorted(wanted - set(known)), removed=sorted(set(known) - wanted))
