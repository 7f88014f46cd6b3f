"""Server-side assignors (KIP-848): `uniform`, the first and so the default, and `range`.

`range` cuts each topic's partitions, in order, into one run per member that reads it, the first longer by one. The
members have the same order for all topics, those with an instance id first. So topics of equal partition counts are cut
at the same places: a member gets the same partition numbers of each, and can join their records.

`uniform` gives equal shares, and lets each member keep as much of its partitions as that allows.

Where all members read the same topics, shares differ by one at most, and the longer shares stay with the members that
had most.

Where they read different topics, every partition stays where it was, or goes to the least loaded of its readers. Then,
as long as a chain of moves leads from a member to one that has at least two more, a partition moves along each
link of the shortest chain. So loads end as equal as the subscriptions allow (an optimal semi-matching:
Harvey, Ladner, Lovász, Tamir, "Semi-matchings for bipartite graphs and load balancing", 2006).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

from millrace_broker.cluster.metadata_image import TopicIdPartition
from millrace_broker.groups.consumer.member import Assignment, in_order


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member as assignors see it: its instance id, its topics that exist, and its last target assignment."""

    instance_id: str | None
    topic_ids: frozenset[UUID]
    current: Assignment


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group as assignors see it: all members, and the partition count of each topic that one of them reads."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[UUID, int]

    def partitions(self) -> Iterator[TopicIdPartition]:
        """Yields every partition of the topics that members read, sorted."""
        for topic_id in sorted(self.partition_counts):
            for partition in range(self.partition_counts[topic_id]):
                yield TopicIdPartition(topic_id, partition)


def assign_range(group: GroupSpec) -> dict[str, Assignment]:
    """Returns each member's target assignment: of each topic, a range of neighbouring partitions."""
    instance_ids = {member_id: member.instance_id for member_id, member in group.members.items()}
    in_order = sorted(instance_ids, key=lambda one: (instance_ids[one] is None, instance_ids[one] or one))
    given: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in in_order}
    for topic_id, partition_count in group.partition_counts.items():
        readers = [member_id for member_id in in_order if topic_id in group.members[member_id].topic_ids]
        for member_id, run in zip(readers, _runs(partition_count, len(readers)), strict=True):
            given[member_id] |= {TopicIdPartition(topic_id, partition) for partition in run}
    return {member_id: frozenset(partitions) for member_id, partitions in given.items()}


def _runs(partition_count: int, readers: int) -> list[range]:
    shortest, longer_ones = divmod(partition_count, readers) if readers else (0, 0)
    starts = [reader * shortest + min(reader, longer_ones) for reader in range(readers + 1)]
    return [range(start, end) for start, end in pairwise(starts)]


def assign_uniform(group: GroupSpec) -> dict[str, Assignment]:
    """Returns each member's target assignment: equal numbers of partitions, and as few moved as possible."""
    if not group.members:
        return {}
    subscriptions = {member.topic_ids for member in group.members.values()}
    kept = _kept(group)
    shares = _equal_shares(group, kept) if len(subscriptions) == 1 else _Balance(group, kept).shares()
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _kept(group: GroupSpec) -> dict[str, list[TopicIdPartition]]:
    """Returns the partitions that each member had and still reads, sorted; of two owners the first keeps one."""
    seen: set[TopicIdPartition] = set()
    kept = {}
    for member_id in sorted(group.members):
        member = group.members[member_id]
        mine = (
            one
            for one in member.current - seen
            if one.topic_id in member.topic_ids and one.partition < group.partition_counts.get(one.topic_id, 0)
        )
        kept[member_id] = sorted(mine, key=in_order)
        seen.update(kept[member_id])
    return kept


def _equal_shares(group: GroupSpec, kept: dict[str, list[TopicIdPartition]]) -> dict[str, list[TopicIdPartition]]:
    shortest, longer_shares = divmod(sum(group.partition_counts.values()), len(kept))
    shares = {}
    for place, member_id in enumerate(sorted(kept, key=lambda one: (-len(kept[one]), one))):
        shares[member_id] = kept[member_id][: shortest + (place < longer_shares)]
    free = _free(group, shares.values())
    for place, share in enumerate(shares.values()):
        size = shortest + (place < longer_shares)
        share += [next(free) for _ in range(size - len(share))]
    return shares


def _free(group: GroupSpec, shares: Iterable[list[TopicIdPartition]]) -> Iterator[TopicIdPartition]:
    taken = {one for share in shares for one in share}
    return (one for one in group.partitions() if one not in taken)


class _Balance:
    """Balances the numbers of partitions between members that read different topics."""

    def __init__(self, group: GroupSpec, kept: dict[str, list[TopicIdPartition]]) -> None:
        self._group = group
        self._load = {member_id: len(share) for member_id, share in kept.items()}
        self._held: dict[UUID, dict[str, list[int]]] = {topic_id: {} for topic_id in group.partition_counts}
        for member_id, share in kept.items():
            for one in share:
                self._held[one.topic_id].setdefault(member_id, []).append(one.partition)
        self._readers: dict[UUID, list[str]] = defaultdict(list)
        for member_id in sorted(group.members):
            for topic_id in group.members[member_id].topic_ids:
                self._readers[topic_id].append(member_id)

    def shares(self) -> dict[str, list[TopicIdPartition]]:
        """Gives all partitions to members, evens out their numbers, and returns each member's partitions."""
        self._give_out()
        self._level()
        shares: dict[str, list[TopicIdPartition]] = {member_id: [] for member_id in self._load}
        for topic_id, holders in self._held.items():
            for member_id, partitions in holders.items():
                shares[member_id] += [TopicIdPartition(topic_id, partition) for partition in partitions]
        return shares

    def _give_out(self) -> None:
        # Topics with the fewest readers first: the others can still even out what these force.
        for topic_id in sorted(self._held, key=lambda one: (len(self._readers[one]), one)):
            taken = {partition for partitions in self._held[topic_id].values() for partition in partitions}
            for partition in range(self._group.partition_counts[topic_id]):
                if partition not in taken and self._readers[topic_id]:
                    self._give(topic_id, partition, min(self._readers[topic_id], key=self._load.__getitem__))

    def _level(self) -> None:
        poorest_first = sorted(self._load, key=lambda one: (self._load[one], one))
        while any(self._shift_towards(member_id) for member_id in poorest_first):
            poorest_first.sort(key=lambda one: (self._load[one], one))

    def _shift_towards(self, poor: str) -> bool:
        """Moves a partition to `poor`, perhaps via others, from a member with two more; returns false without one."""
        came_from: dict[str, tuple[str, UUID]] = {}
        queue = deque((poor,))
        while queue:
            taker = queue.popleft()
            if self._load[taker] >= self._load[poor] + 2:
                self._move_along(poor, taker, came_from)
                return True
            for topic_id in sorted(self._group.members[taker].topic_ids & self._held.keys()):
                for holder in self._held[topic_id]:
                    if holder != poor and holder not in came_from:
                        came_from[holder] = (taker, topic_id)
                        queue.append(holder)
        return False

    def _move_along(self, poor: str, giver: str, came_from: dict[str, tuple[str, UUID]]) -> None:
        while giver != poor:
            taker, topic_id = came_from[giver]
            partitions = self._held[topic_id][giver]
            self._give(topic_id, partitions.pop(), taker)
            self._load[giver] -= 1
            if not partitions:
                del self._held[topic_id][giver]
            giver = taker

    def _give(self, topic_id: UUID, partition: int, member_id: str) -> None:
        self._held[topic_id].setdefault(member_id, []).append(partition)
        self._load[member_id] += 1


Assignor = Callable[[GroupSpec], dict[str, Assignment]]
ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
