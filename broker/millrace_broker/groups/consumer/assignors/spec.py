"""What an assignor is told about a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from millrace_broker.cluster.metadata_image import TopicIdPartition
from millrace_broker.groups.consumer.member import Assignment


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member: its instance id, those of its topics that exist, and its part of the last target assignment."""

    instance_id: str | None
    topic_ids: frozenset[UUID]
    current: Assignment


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """All members, and the partition count of every topic that one of them reads."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[UUID, int]

    def partitions(self) -> Iterator[TopicIdPartition]:
        """Yields every partition that has a reader, in order."""
        for topic_id in sorted(self.partition_counts):
            for partition in range(self.partition_counts[topic_id]):
                yield TopicIdPartition(topic_id, partition)
