"""What must hold for a group whose records are replicated, whatever fails; each violation is an anomaly in plain words.

- In each generation or epoch of the group, the commits of one member are acknowledged for a partition.
- What a member commits is refused once another member has committed for the partition in a later one.
- An offset that was acknowledged is not lost and does not go back: whoever owns the partition next, and whoever reads
  it from the coordinator, gets no smaller one.

A member owns a partition for certain when its commit is acknowledged: a coordinator that has just been elected answers
from all that is in its log, as Apache Kafka's does, and may lose the end of it. Members are told apart by their ids. An
owner commits larger offsets than it was told, so the largest acknowledged one is the last one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Committed(NamedTuple):
    """A commit: the member, its epoch, and the offset of each partition."""

    epoch: int
    member: str
    offsets: Mapping[int, int]


class GroupJudge:
    """Hears of all that the members of one group are told."""

    def __init__(self, group_id: str, anomaly: Callable[[str], None]) -> None:
        self._group_id = group_id
        self._anomaly = anomaly
        self._owners: dict[int, dict[int, str]] = defaultdict(dict)
        self._acknowledged: dict[int, int] = {}

    def is_superseded(self, one: Committed) -> bool:
        """Returns whether another member has committed for one of the partitions in a later epoch already."""
        return any(
            epoch > one.epoch and owner != one.member
            for index in one.offsets
            for epoch, owner in self._owners[index].items()
        )

    def acknowledged_offset(self, index: int) -> int:
        """Returns the largest offset that was acknowledged up to now; -1 for none."""
        return self._acknowledged.get(index, -1)

    def committed(self, one: Committed, *, was_superseded: bool) -> None:
        """Notes that a commit was acknowledged; `was_superseded` says what `is_superseded` was when it was sent."""
        if was_superseded:
            self._anomaly(f"group {self._group_id}: {one.member} commits {one.offsets} in former epoch {one.epoch}")
        for index, offset in one.offsets.items():
            owner = self._owners[index].setdefault(one.epoch, one.member)
            if owner != one.member:
                self._anomaly(f"group {self._group_id}: {owner} and {one.member} own {index} in epoch {one.epoch}")
            self._acknowledged[index] = max(offset, self.acknowledged_offset(index))

    def told(self, index: int, offset: int, least: int) -> None:
        """Notes which offset the coordinator tells; `least` is what was acknowledged when it was asked."""
        if offset < least:
            self._anomaly(f"group {self._group_id}: partition {index} is told at offset {offset} after {least}")
