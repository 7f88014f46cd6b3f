"""`range` cuts each topic's partitions, in order, into one run per member that reads it, the first longer by one.

The members have the same order for all topics, those with an instance id first. So topics of equal partition counts are
cut at the same places: a member gets the same partition numbers of each, and can join their records.
"""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

from millrace_broker.cluster.metadata_image import TopicIdPartition
from millrace_broker.groups.consumer.assignors.spec import GroupSpec, MemberSpec
from millrace_broker.groups.consumer.member import Assignment


def assign_range(group: GroupSpec) -> dict[str, Assignment]:
    """Returns the partitions of each member."""
    in_order = sorted(group.members, key=lambda member_id: _place(member_id, group.members[member_id]))
    given: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in in_order}
    for topic_id, partition_count in group.partition_counts.items():
        readers = [member_id for member_id in in_order if topic_id in group.members[member_id].topic_ids]
        for member_id, run in zip(readers, _runs(partition_count, len(readers)), strict=True):
            given[member_id] |= _partitions(topic_id, run)
    return {member_id: frozenset(partitions) for member_id, partitions in given.items()}


def _place(member_id: str, member: MemberSpec) -> tuple[bool, str]:
    return (member.instance_id is None, member.instance_id or member_id)


def _runs(partition_count: int, readers: int) -> list[range]:
    shortest, longer_ones = divmod(partition_count, readers) if readers else (0, 0)
    starts = [reader * shortest + min(reader, longer_ones) for reader in range(readers + 1)]
    return [range(start, end) for start, end in pairwise(starts)]


def _partitions(topic_id: UUID, run: range) -> set[TopicIdPartition]:
    return {TopicIdPartition(topic_id, partition) for partition in run}
