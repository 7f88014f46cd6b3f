"""A client of a simulation that deletes records now and then, and looks that they are not read again.

A follower writes down where its log begins only now and then, as Apache Kafka's does. So records that were deleted may
come back once the process of a replica has started again since.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, MillraceError
from millrace.wire.messages import DELETE_RECORDS, LIST_OFFSETS
from millrace_support.simulation.client_links import ClientLinks
from millrace_support.simulation.workloads.client_world import ClientWorld
from millrace_support.simulation.workloads.retention_judge import RetentionJudge

if TYPE_CHECKING:
    from millrace.wire.messages.delete_records import DeleteRecordsRequestFields
    from millrace.wire.messages.list_offsets import ListOffsetsRequestFields
    from millrace_broker.storage import TopicPartition

TIMEOUT_S, WAIT_MS = 6.0, 5_000
PAUSE_S = (1.0, 6.0)
ABOVE_THE_END = 0.2
EARLIEST, NO_REPLICA = -2, -1


async def earliest_offset(world: ClientWorld, links: ClientLinks, key: TopicPartition) -> int | None:
    """Returns where a partition begins; None where the broker that is asked may not be its leader any more."""
    leader = world.leader(key)
    if leader is None:
        return None
    one = {"partition_index": key.partition, "timestamp": EARLIEST, "current_leader_epoch": -1}
    fields: ListOffsetsRequestFields = {
        "replica_id": NO_REPLICA,
        "isolation_level": 0,
        "topics": [{"name": key.topic, "partitions": [one]}],  # type: ignore[list-item]
    }
    answer = await (await links.to(leader[0])).request(LIST_OFFSETS, 7, fields)
    (told,) = answer.topics[0].partitions
    return told.offset if told.error_code == ErrorCode.NONE and leader == world.leader(key) else None


class RecordDeleter:
    """The client on a machine, which deletes records of one partition."""

    def __init__(self, world: ClientWorld, machine: int, judge: RetentionJudge) -> None:
        self._world = world
        self._judge = judge
        self._key = judge.history.key
        self._links = ClientLinks(world.network, machine, TIMEOUT_S, "deleter")
        self._deleted = self._starts = 0

    async def live(self) -> None:
        """Deletes until the faults are over."""
        while not self._world.is_over():
            await asyncio.sleep(self._world.chance.uniform(*PAUSE_S))
            with suppress(MillraceError):
                await self._look()
                await self._delete()

    async def _look(self) -> None:
        deleted = self._deleted
        if self._starts != self._count_starts():
            deleted = self._deleted = 0
        earliest = await earliest_offset(self._world, self._links, self._key)
        is_certain = self._starts == self._count_starts() and not self._world.judge.promises.is_void(self._key)
        if earliest is not None and earliest < deleted and is_certain:
            self._world.judge.anomaly(f"{self._key}: it begins at {earliest}, though all below {deleted} was deleted")

    def _count_starts(self) -> int:
        return sum(self._world.brokers[one].starts for one in self._world.replicas[self._key])

    async def _delete(self) -> None:
        chance, leader, end = self._world.chance, self._world.leader(self._key), self._judge.history.end
        if leader is None:
            return
        starts = self._count_starts()
        offset = chance.randint(self._judge.justified, max(end, self._judge.justified))
        if chance.random() < ABOVE_THE_END:
            offset = end + chance.randint(1, 100)  # which is refused, unless so much is written meanwhile
        self._judge.asks_to_delete(offset)
        one = {"partition_index": self._key.partition, "offset": offset}
        fields: DeleteRecordsRequestFields = {
            "timeout": WAIT_MS,
            "topics": [{"name": self._key.topic, "partitions": [one]}],  # type: ignore[list-item]
        }
        answer = await (await self._links.to(leader[0])).request(DELETE_RECORDS, 2, fields)
        error = ErrorCode(answer.topics[0].partitions[0].error_code)
        self._world.note(f"all below offset {offset} of {self._key} is deleted: {error.name}")
        if error is ErrorCode.NONE:
            self._deleted = max(self._deleted, offset) if starts == self._starts else offset
            self._starts = starts
            self._judge.asks_to_delete(offset)
