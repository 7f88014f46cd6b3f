"""Members of a group in a simulation: clients that join, commit offsets, leave, die, and come back under another id.

    ClassicMember     JoinGroup, SyncGroup, Heartbeat, LeaveGroup; the leader of the group divides the partitions
    ConsumerMember    ConsumerGroupHeartbeat (KIP-848)

A member asks any broker for the coordinator of its group, and asks again once that has failed or says that it is none.
It commits only what it owns, and begins after the offset that the coordinator tells.

A former coordinator that has not heard of its successor tells what it knew, as Apache Kafka's does. So what a member is
told counts only where the coordinator was the partition's leader, as ZooKeeper has it, all the time.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

from millrace.errors import CoordinatorNotAvailableError, ErrorCode, MillraceError
from millrace.wire.messages import (
    CONSUMER_GROUP_HEARTBEAT,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from millrace_support.simulation.broker_server import ANSWERED_WITHIN_S
from millrace_support.simulation.client_links import ClientLinks
from millrace_support.simulation.group_judge import Committed
from millrace_support.simulation.network import Network

if TYPE_CHECKING:
    from millrace.wire.messages.find_coordinator import FindCoordinatorRequestFields
    from millrace_support.simulation.simulated_groups import SimulatedGroup

TIMEOUT_S = ANSWERED_WITHIN_S + 3
LIFE_S, AWAY_S, PAUSE_S = (2.0, 20.0), (0.2, 4.0), (0.5, 1.5)
SLEEPS, ASLEEP_S = 0.1, (2.0, 8.0)  # how often a member pauses for longer, and for how long
PROTOCOL_TYPE, ASSIGNOR = "simulated", "divided"
NO_EPOCH, JOINING_EPOCH, LEAVING_EPOCH = -1, 0, -1
ELSEWHERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
REJOIN = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,  # its only copy was lost: Apache Kafka's consumer ends, and another begins
)


def session_timeout_ms(network: Network) -> int:
    """Returns how long a member may be silent; it needs longer where the network is slow."""
    return round(3_000 + 9_000 * network.slowest_s)


class Member(ABC):
    """One member. `epoch` is the generation or the member epoch that it was told last, and `owned` its partitions."""

    def __init__(self, group: SimulatedGroup, number: int) -> None:
        self.member_id = ""
        self.epoch = NO_EPOCH
        self.owned: frozenset[int] = frozenset()
        self.accepted_at_s = self.committed_at_s = 0.0
        self._group = group
        self._chance = group.world.chance
        self._name = f"{group.group_id}-{number}"
        self._links = ClientLinks(group.world.network, number, TIMEOUT_S, self._name)
        self._session_timeout_ms = session_timeout_ms(group.world.network)
        self._coordinator: int | None = None
        self._positions: dict[int, int] = {}
        self._life: asyncio.Timeout | None = None
        self._stays = False

    # Its life.

    async def live(self) -> None:
        """Joins and leaves the group again and again."""
        while True:
            await asyncio.sleep(self._chance.uniform(*AWAY_S))
            self._begin()
            lifetime_s = None if self._stays else self._chance.uniform(*LIFE_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(lifetime_s) as self._life:
                    await self._serve()
            await self._end()

    def stay(self) -> None:
        """Lives for ever from now on, and asks again for the offsets of what it owns."""
        self._stays = True
        self._positions.clear()
        if self._life is not None and not self._life.expired():
            self._life.reschedule(None)

    async def _serve(self) -> None:
        while True:
            try:
                await self._consume()
                await self._turn()
            except MillraceError:  # the connection broke, or could not be made
                self._coordinator = None
            await asyncio.sleep(self._pause_s())

    def _pause_s(self) -> float:
        """Returns how long it pauses; when it has slept, it commits before it hears that others own its partitions."""
        sleeps = not self._stays and self._chance.random() < SLEEPS
        return self._chance.uniform(*(ASLEEP_S if sleeps else PAUSE_S)) * (1 + self._group.world.network.slowest_s)

    async def _end(self) -> None:
        self._life = None
        leaves = self.member_id and self._chance.random() < 0.5
        self._group.world.note(f"member {self._name} {'leaves' if leaves else 'dies'}")
        if leaves:
            with suppress(MillraceError):
                await self._leave()
        self._links.close()

    def _begin(self) -> None:
        self._coordinator = None
        self._lose_all()

    def _lose_all(self) -> None:
        self.epoch, self.owned = NO_EPOCH, frozenset()
        self._positions.clear()

    @abstractmethod
    async def _turn(self) -> None:
        """Joins, or tells that it is alive."""

    @abstractmethod
    async def _leave(self) -> None:
        """Tells that it goes."""

    # What members of all types do.

    async def ask(self, api: Any, version: int, fields: Any) -> Any:
        """Returns the coordinator's answer to a request."""
        if self._coordinator is None:
            self._coordinator = await self._find_coordinator()
        link = await self._links.to(self._coordinator)
        return await link.request(api, version, fields)

    async def _find_coordinator(self) -> int:
        group_id = self._group.group_id
        link = await self._links.to(self._chance.choice(self._group.world.broker_ids))
        keys: FindCoordinatorRequestFields = {"key_type": 0, "coordinator_keys": [group_id]}
        found = await link.request(FIND_COORDINATOR, 6, keys)
        (one,) = found.coordinators
        if one.error_code != ErrorCode.NONE:
            raise CoordinatorNotAvailableError(f"group {group_id}: {ErrorCode(one.error_code).name}")
        return int(one.node_id)

    def _accepted(self, epoch: int, owned: Iterable[int]) -> None:
        """Takes the epoch and the partitions that the coordinator has told."""
        before = (self.epoch, self.owned)
        self.epoch, self.owned = epoch, frozenset(owned)
        self.accepted_at_s = self._group.world.loop.time()
        self._positions = {index: one for index, one in self._positions.items() if index in self.owned}
        if before != (self.epoch, self.owned):
            self._group.world.note(f"member {self._name} owns {sorted(self.owned)} in epoch {epoch}")

    def _refused(self, error: int) -> None:
        self._group.world.note(f"member {self._name} is told {ErrorCode(error).name}")
        if error in ELSEWHERE:
            self._coordinator = None
        elif error in REJOIN:
            self._lose_all()

    # Offsets.

    async def _consume(self) -> None:
        """Commits the next offsets of its partitions, or asks where to begin."""
        if not self.owned:
            return
        if self._positions.keys() != self.owned:
            await self._read()
        else:
            self._positions = {index: offset + 1 for index, offset in self._positions.items()}
            await self._commit(dict(self._positions))

    async def _read(self) -> None:
        """Begins at the committed offsets, if they are told."""
        judge, leader = self._group.judge, self._group.leader()
        least = {index: judge.acknowledged_offset(index) for index in sorted(self.owned)}
        topics = [{"name": self._group.consumed.topic, "partition_indexes": list(least)}]
        one_group = {"group_id": self._group.group_id, "topics": topics, **self._reader()}
        (answered,) = (await self.ask(OFFSET_FETCH, 9, {"groups": [one_group], "require_stable": True})).groups
        if answered.error_code != ErrorCode.NONE:
            self._refused(answered.error_code)
            return
        is_certain = leader is not None and leader == self._group.leader() and leader[0] == self._coordinator
        (topic,) = answered.topics
        if is_certain and all(one.error_code == ErrorCode.NONE for one in topic.partitions):
            self._positions = {one.partition_index: one.committed_offset for one in topic.partitions}
            for index, offset in self._positions.items():
                judge.told(index, offset, least[index])

    def _reader(self) -> dict[str, Any]:
        """Returns what says in a request for offsets who asks."""
        return {}

    async def _commit(self, offsets: Mapping[int, int]) -> None:
        committed = Committed(self.epoch, self.member_id, offsets)
        is_superseded = self._group.judge.is_superseded(committed)
        partitions = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": ""}
            for index, offset in offsets.items()
        ]
        fields = {
            "group_id": self._group.group_id,
            "generation_id_or_member_epoch": self.epoch,
            "member_id": self.member_id,
            "topics": [{"name": self._group.consumed.topic, "partitions": partitions}],
        }
        (topic,) = (await self.ask(OFFSET_COMMIT, 9, fields)).topics
        (error,) = {one.error_code for one in topic.partitions}
        self._group.world.note(f"{self._name} commits {offsets}: {ErrorCode(error).name}")
        if error == ErrorCode.NONE:
            self.committed_at_s = self._group.world.loop.time()
            self._group.judge.committed(committed, was_superseded=is_superseded)
        elif error in ELSEWHERE:
            self._coordinator = None


class ClassicMember(Member):
    """A member that uses the classic protocol."""

    protocol = "classic"

    def _begin(self) -> None:
        super()._begin()
        self.member_id = ""

    async def _turn(self) -> None:
        if self.epoch == NO_EPOCH:
            await self._join()
            return
        fields = {"group_id": self._group.group_id, "generation_id": self.epoch, "member_id": self.member_id}
        error = (await self.ask(HEARTBEAT, 4, fields)).error_code
        if error == ErrorCode.NONE:
            self.accepted_at_s = self._group.world.loop.time()
        elif error == ErrorCode.REBALANCE_IN_PROGRESS:
            await self._join()
        else:
            self._refused(error)

    async def _join(self) -> None:
        fields = {
            "group_id": self._group.group_id,
            "session_timeout": self._session_timeout_ms,
            "rebalance_timeout": self._session_timeout_ms,
            "member_id": self.member_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [{"name": ASSIGNOR, "metadata": b""}],
        }
        joined = await self.ask(JOIN_GROUP, 9, fields)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            await self._join()
        elif joined.error_code != ErrorCode.NONE:
            self._refused(joined.error_code)
        else:
            await self._sync(joined.generation_id, [one.member_id for one in joined.members])

    async def _sync(self, generation: int, members: list[str]) -> None:
        """Asks for its partitions; the leader, which is told the members, divides them."""
        divided: dict[str, list[int]] = {member: [] for member in members}
        for index in self._group.consumed.partitions if members else ():
            divided[self._chance.choice(members)].append(index)
        fields = {
            "group_id": self._group.group_id,
            "generation_id": generation,
            "member_id": self.member_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": ASSIGNOR,
            "assignments": [{"member_id": one, "assignment": bytes(indexes)} for one, indexes in divided.items()],
        }
        synced = await self.ask(SYNC_GROUP, 5, fields)
        if synced.error_code == ErrorCode.NONE:
            self._positions.clear()
            self._accepted(generation, synced.assignment)
        else:
            self._refused(synced.error_code)

    def _lose_all(self) -> None:
        super()._lose_all()
        self.member_id = ""

    async def _leave(self) -> None:
        fields = {"group_id": self._group.group_id, "members": [{"member_id": self.member_id}]}
        await self.ask(LEAVE_GROUP, 5, fields)


class ConsumerMember(Member):
    """A member that uses the consumer group protocol."""

    protocol = "consumer"

    def _begin(self) -> None:
        super()._begin()
        self.member_id = str(UUID(int=self._chance.getrandbits(128)))
        self._says_everything = True

    def _lose_all(self) -> None:
        super()._lose_all()
        self.epoch = JOINING_EPOCH

    async def _turn(self) -> None:
        said: dict[str, Any] = {"topic_partitions": None}
        if self._says_everything or self.epoch == JOINING_EPOCH:
            said = {
                "rebalance_timeout": self._session_timeout_ms,
                "subscribed_topic_names": [self._group.consumed.topic],
                "topic_partitions": self._owned_by_topic(),
            }
        self._says_everything = True  # unless this is answered without an error
        answer = await self._heartbeat(self.epoch, said)
        if answer.error_code != ErrorCode.NONE:
            self._refused(answer.error_code)
            return
        told = answer.assignment
        owned = self.owned if told is None else {index for one in told.topic_partitions for index in one.partitions}
        self._says_everything = owned != self.owned
        self._accepted(answer.member_epoch, owned)

    def _owned_by_topic(self) -> list[dict[str, Any]]:
        return [{"topic_id": self._group.consumed.topic_id, "partitions": sorted(self.owned)}] if self.owned else []

    async def _heartbeat(self, epoch: int, said: dict[str, Any]) -> Any:
        fields = {"group_id": self._group.group_id, "member_id": self.member_id, "member_epoch": epoch, **said}
        return await self.ask(CONSUMER_GROUP_HEARTBEAT, 1, fields)

    def _reader(self) -> dict[str, Any]:
        return {"member_id": self.member_id, "member_epoch": self.epoch}

    async def _leave(self) -> None:
        await self._heartbeat(LEAVING_EPOCH, {"topic_partitions": None})


Kind = type[ClassicMember] | type[ConsumerMember]
