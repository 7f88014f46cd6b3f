"""A client of a simulation that deletes records now and then, and looks that they are not read again.

Once a deletion is answered, all replicas that are in sync from the request on have deleted. Any other one may not have
been alive as far as the leader knew, and is not waited for, as in Apache Kafka: records come back where it leads next.

A follower writes down where its log begins only now and then, as Apache Kafka's does. So records that were deleted may
also come back once the process of a replica has started again since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from millrace.errors import ErrorCode, MillraceError
from millrace.wire.messages import DELETE_RECORDS, LIST_OFFSETS
from millrace_support.simulation.client_links import ClientLinks
from millrace_support.simulation.workloads.client_world import ClientWorld
from millrace_support.simulation.workloads.retention_judge import RetentionJudge

if TYPE_CHECKING:
    from millrace.wire.messages.delete_records import DeleteRecordsRequestFields
    from millrace.wire.messages.list_offsets import ListOffsetsRequestFields
    from millrace_broker.storage import Log, TopicPartition

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


class Replica(NamedTuple):
    """A replica in sync: its broker, the number of that one's process, and the leader epoch."""

    broker: int
    process: int
    leader_epoch: int


class Deletions:
    """What the replicas of a partition have deleted on request, each as long as its process lives."""

    def __init__(self, key: TopicPartition, anomaly: Callable[[str], None]) -> None:
        self._key = key
        self._anomaly = anomaly
        self._deleted: dict[tuple[int, int], int] = {}

    def answered(self, offset: int, in_sync: Mapping[Replica, Log | None]) -> None:
        """Notes that all below an offset is deleted, and looks at the logs of the replicas, apart from closed ones."""
        for (broker, process, _), log in in_sync.items():
            self._deleted[broker, process] = max(self._deleted.get((broker, process), 0), offset)
            start = offset if log is None else log.log_start_offset
            if start < offset:
                self._anomaly(f"{self._key}: all below {offset} was deleted, but broker {broker} begins at {start}")

    def begins(self, offset: int, leader: int, process: int) -> None:
        """Looks at where a leader says that the partition begins."""
        deleted = self._deleted.get((leader, process), 0)
        if offset < deleted:
            self._anomaly(f"{self._key}: it begins at {offset}, though all below {deleted} was deleted")

    def forget_all_but(self, replicas: Collection[int]) -> None:
        """Forgets the replicas that a reassignment has removed."""
        self._deleted = {one: offset for one, offset in self._deleted.items() if one[0] in replicas}


class RecordDeleter:
    """The client on a machine, which deletes records of one partition."""

    def __init__(self, world: ClientWorld, machine: int, judge: RetentionJudge) -> None:
        self._world = world
        self._judge = judge
        self._key = judge.history.key
        self._links = ClientLinks(world.network, machine, TIMEOUT_S, "deleter")
        self._deletions = Deletions(self._key, world.anomaly_of(self._key))

    async def live(self) -> None:
        """Deletes until the faults are over."""
        while not self._world.is_over():
            await asyncio.sleep(self._world.chance.uniform(*PAUSE_S))
            with suppress(MillraceError):
                await self._look()
                await self._delete()

    async def _look(self) -> None:
        leader = self._world.leader(self._key)
        earliest = await earliest_offset(self._world, self._links, self._key)
        self._deletions.forget_all_but(self._world.replicas[self._key])
        if leader is not None and earliest is not None:
            self._deletions.begins(earliest, leader[0], self._world.brokers[leader[0]].starts)

    def _in_sync(self) -> dict[Replica, Log | None]:
        """Returns the logs in sync, but for those of brokers started again that have not heard of their roles."""
        state, brokers = self._world.state_of(self._key), self._world.brokers
        if state is None:
            return {}
        return {
            Replica(one, brokers[one].starts, state.leader_epoch): brokers[one].open_log(self._key)
            for one in state.isr
            if not (brokers[one].is_running and brokers[one].replicas.replica(self._key) is None)
        }

    def _known_in_sync(self) -> Collection[Replica]:
        """Returns the replicas in sync whose processes run.

        A kill loses a log's start, as the checkpoint is written now and then. The leader learns that by the next fetch,
        and of a process that ends before, it does not.
        """
        return [one for one in self._in_sync() if self._world.brokers[one.broker].is_running]

    async def _delete(self) -> None:
        chance, leader, end = self._world.chance, self._world.leader(self._key), self._judge.history.end
        if leader is None:
            return
        in_sync = self._known_in_sync()
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
            self._judge.asks_to_delete(offset)
            kept = {one: log for one, log in self._in_sync().items() if one in in_sync}
            self._deletions.answered(offset, kept)
