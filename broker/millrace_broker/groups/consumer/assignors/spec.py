"""What an assignor is told of a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from millrace_broker.groups.consumer.member import Assignment, TopicIdPartition


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member: its instance id, the topics it reads that exist, and what the last target gave it."""

    instance_id: str | None
    topic_ids: frozenset[UUID]
    current: Assignment


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """All members, and how many partitions each topic has that any of them reads."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[UUID, int]

    def partitions(self) -> Iterator[TopicIdPartition]:
        """Every partition that somebody reads, in order."""
        for topic_id in sorted(self.partition_counts):
            for partition in range(self.partition_counts[topic_id]):
                yield TopicIdPartition(topic_id, partition)
