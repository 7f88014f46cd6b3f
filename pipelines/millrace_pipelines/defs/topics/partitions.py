"""A Dagster partition for each topic. Offsets are never Dagster partitions: the ledger in the table holds them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import dagster as dg

from millrace.internal_topics import INTERNAL_TOPICS

TOPICS = "topics"
topics_partitions = dg.DynamicPartitionsDefinition(name=TOPICS)


class PartitionChanges(NamedTuple):
    """What makes the known partitions equal to the broker's topics; both sorted."""

    added: list[str]
    removed: list[str]


def partition_changes(topics: Iterable[str], known: Iterable[str]) -> PartitionChanges:
    """Returns the topics to add and to remove; internal topics never become partitions."""
    wanted = set(topics) - INTERNAL_TOPICS
    return PartitionChanges(added=sorted(wanted - set(known)), removed=sorted(set(known) - wanted))
