"""The groups of a simulation: members by both protocols, which settle once everything has healed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import NamedTuple
from unittest.mock import patch
from uuid import UUID

from millrace.zk.codec import PartitionState
from millrace_broker.handlers import classic_members
from millrace_support.simulation.group_judge import GroupJudge
from millrace_support.simulation.group_members import Kind, Member
from millrace_support.simulation.network import Network
from millrace_support.simulation.virtual_time import VirtualTimeLoop

HEARD_WITHIN_S = 10.0


class GroupWorld(NamedTuple):
    """What the groups of a simulation share; `may_have_lost` says whether their offsets and epochs may be lost."""

    loop: VirtualTimeLoop
    chance: Random
    network: Network
    broker_ids: Sequence[int]
    note: Callable[[str], None]
    anomaly: Callable[[str], None]
    may_have_lost: Callable[[], bool]


class Consumed(NamedTuple):
    """The topic to which all members subscribe, with its partitions."""

    topic: str
    topic_id: UUID
    partitions: Sequence[int]


class SimulatedGroup:
    """One group.

    Args:
        world: what the groups of a simulation share.
        kind: the protocol of its members, which names it.
        consumed: what it consumes.
        state: returns the state of the group's partition of `__consumer_offsets`, as ZooKeeper has it.
        machines: where they live.
    """

    def __init__(
        self,
        world: GroupWorld,
        kind: Kind,
        consumed: Consumed,
        state: Callable[[], PartitionState | None],
        machines: Iterable[int],
    ) -> None:
        self.world = world
        self.group_id = kind.protocol
        self.consumed = consumed
        self.judge = GroupJudge(self.group_id, self._anomaly)
        self._state = state
        self._members: list[Member] = [kind(self, machine) for machine in machines]
        self._tasks: list[asyncio.Task[None]] = []
        self._stays_from_s = 0.0

    def leader(self) -> tuple[int, int] | None:
        """Returns who leads the group's partition, and in which epoch, as ZooKeeper has it."""
        state = self._state()
        return None if state is None else (state.leader, state.leader_epoch)

    def _anomaly(self, text: str) -> None:
        if not self.world.may_have_lost():
            self.world.anomaly(text)

    def begin(self) -> None:
        """Lets the members live."""
        for member in self._members:
            task = self.world.loop.create_task(member.live())
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self.world.anomaly(f"a member of {self} fails: {task.exception()!r}")

    def end(self) -> None:
        """Ends the members without a word."""
        for task in self._tasks:
            task.cancel()

    def stay(self) -> None:
        """Lets no member end any more, and all of them ask again for their offsets."""
        self._stays_from_s = self.world.loop.time()
        for member in self._members:
            member.stay()

    @property
    def is_settled(self) -> bool:
        """Whether all members are in one generation or epoch, each partition has one owner, and each owner commits."""
        heard_from_s = max(self._stays_from_s, self.world.loop.time() - HEARD_WITHIN_S)
        owned = sorted(index for one in self._members for index in one.owned)
        return (
            owned == list(self.consumed.partitions)
            and len({one.epoch for one in self._members}) == 1
            and all(one.accepted_at_s >= heard_from_s for one in self._members)
            and all(one.committed_at_s >= heard_from_s for one in self._members if one.owned)
        )

    def __str__(self) -> str:
        members = ", ".join(f"{sorted(one.owned)} in epoch {one.epoch}" for one in self._members)
        return f"group {self.group_id}, whose members own {members}"


@contextmanager
def decided_member_ids(chance: Random) -> Iterator[None]:
    """Lets chance decide the ids that brokers give to members."""
    with patch.object(classic_members, "uuid4", lambda: UUID(int=chance.getrandbits(128))):
        yield
