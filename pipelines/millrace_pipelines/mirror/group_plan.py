"""What of a group's translated offsets is committed, decided from what both clusters have. It is pure.

An offset that the mirror commits at the target has the mirror's mark as its metadata. A group has gone on at the target
as soon as one of its offsets there is not what the mirror has committed; from then on it is left alone, since what it
has read there says more than what it has read at the source.

    at the target    nothing, or only marks      committed, where it lies above the mark
                     something else              the group is left alone
    back again       what the group has          committed at the source, where it lies above what is there;
                                                 then marked at the target, so that it can move over once more

A group with offsets in ZooKeeper has its mark at the coordinator, and the number in ZooKeeper. The coordinator is
written first: the number in ZooKeeper may still be the one that was there before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import NamedTuple

from millrace.client.groups import GroupOffset
from millrace.client.metadata import Partition

NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Mark:
    """What the mirror writes beside an offset of a group.

    Attributes:
        mirror: The source's name.
        source: The offset that the group had at the source.
        target: The offset that it became, which is the committed one.
        before: The offset in ZooKeeper when this was written; None where there was none.
    """

    mirror: str
    source: int
    target: int
    before: int | None = None

    def __str__(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


class Stored(NamedTuple):
    """A group's offset of one partition in a cluster: at the coordinator, and in ZooKeeper; each may be missing."""

    coordinator: GroupOffset | None = None
    zookeeper: int | None = None

    @property
    def furthest(self) -> int:
        """The offset at which a member begins; -1 where there is none."""
        coordinator = NO_OFFSET if self.coordinator is None else self.coordinator.offset
        return max(coordinator, NO_OFFSET if self.zookeeper is None else self.zookeeper)


class Wanted(NamedTuple):
    """Where a group stands at the source, and what offset of the target that is."""

    source: int
    target: int


class Commits(NamedTuple):
    """What is to be committed, at the coordinator first, then in ZooKeeper."""

    coordinator: Mapping[Partition, GroupOffset]
    zookeeper: Mapping[Partition, int]


def mark_of(stored: Stored, mirror: str) -> Mark | None:
    """Returns the mirror's mark, if the offset at the coordinator is one that this mirror has committed."""
    if stored.coordinator is None:
        return None
    try:
        match json.loads(stored.coordinator.metadata):
            case {"mirror": str(name), "source": int(source), "target": int(target), "before": int() | None as before}:
                mark = Mark(name, source, target, before)
            case _:
                return None
    except (ValueError, RecursionError):
        return None
    return mark if (mark.mirror, mark.target) == (mirror, stored.coordinator.offset) else None


def has_gone_on(stored: Stored, mirror: str) -> bool:
    """Returns whether an offset at the target is not what the mirror has committed."""
    mark = mark_of(stored, mirror)
    if mark is None:
        return stored != Stored()
    return stored.zookeeper not in (None, mark.target, mark.before)


def plan_move(
    mirror: str, wanted: Mapping[Partition, Wanted], stored: Mapping[Partition, Stored], *, is_in_zookeeper: bool
) -> Commits | None:
    """Returns what to commit at the target; None for a group that has gone on there.

    Args:
        mirror: The source's name.
        wanted: By the target's partitions.
        stored: What the target has of the group in all mirrored topics.
        is_in_zookeeper: Whether offsets are to be in ZooKeeper, too.
    """
    if any(has_gone_on(one, mirror) for one in stored.values()):
        return None
    coordinator: dict[Partition, GroupOffset] = {}
    zookeeper: dict[Partition, int] = {}
    for one, (source, target) in wanted.items():
        has = stored.get(one, Stored())
        mark = mark_of(has, mirror)
        if mark is not None and target < mark.target:
            continue  # the group was set back at the source
        if mark is None or target > mark.target:
            coordinator[one] = GroupOffset(target, str(Mark(mirror, source, target, has.zookeeper)))
        if is_in_zookeeper and has.zookeeper != target:
            zookeeper[one] = target
    return Commits(coordinator, zookeeper)


def plan_move_back(
    wanted: Mapping[Partition, Wanted], stored: Mapping[Partition, Stored], *, is_in_zookeeper: bool
) -> Commits:
    """Returns what to commit at the source, for the offsets with which a group has gone on at the target.

    Args:
        wanted: By the source's partitions.
        stored: What the source has of the group.
        is_in_zookeeper: Whether offsets are to be in ZooKeeper, too.
    """
    ahead = {one: each.source for one, each in wanted.items() if each.source > stored.get(one, Stored()).furthest}
    return Commits(
        {one: GroupOffset(offset, "") for one, offset in ahead.items()}, dict(ahead) if is_in_zookeeper else {}
    )


def plan_marks(mirror: str, wanted: Mapping[Partition, Wanted], stored: Mapping[Partition, Stored]) -> Commits:
    """Returns what to commit at the target once a group was moved back: the marks of where it stands now.

    Args:
        mirror: The source's name.
        wanted: By the target's partitions; the source's offset is the one that was committed.
        stored: What the target has of the group.
    """
    marks = {
        one: GroupOffset(target, str(Mark(mirror, source, target, stored[one].zookeeper)))
        for one, (source, target) in wanted.items()
    }
    return Commits(marks, {one: wanted[one].target for one in marks if stored[one].zookeeper is not None})
