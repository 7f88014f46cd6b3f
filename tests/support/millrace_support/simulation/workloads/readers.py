"""A reader of a simulation: it reads one partition from its begin to its end, from leaders and from followers.

It checks on its way that what it gets are whole batches without a gap, the same that others got (`History`); only what
retention or compaction has taken may be missing. A follower may lag behind, and a former leader not know it: then it
reads nothing, and asks another broker the next time. In the end it must have read all that is in the partition, each
record once and in order; one that reads committed records only gets none of a transaction that was aborted, or is open.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from millrace.client.fetched import FetchedBatch, FetchedData, IsolationLevel, fetched_data
from millrace.errors import MillraceError, OffsetOutOfRangeError, RecordError
from millrace.records.batch import check_crc
from millrace.records.record import Record, read_records
from millrace.wire.messages import FETCH
from millrace_broker.storage import TopicPartition
from millrace_support.simulation.client_links import ClientLinks
from millrace_support.simulation.workloads.client_world import ClientWorld
from millrace_support.simulation.workloads.drawn import TRANSACTIONS
from millrace_support.simulation.workloads.record_deleters import earliest_offset

if TYPE_CHECKING:
    from millrace.wire.messages.fetch import FetchRequestFields

TIMEOUT_S = 4.0
VERSIONS = (4, 11, 12, 16)
FIRST_FROM_FOLLOWERS, FIRST_WITH_IDS = 11, 13
FROM_A_FOLLOWER = 0.4
BYTES = (1, 300, 5_000)
WAIT_MS = 500
PAUSE_S = (0.1, 2.0)
NO_EPOCH = -1


class Reader:
    """The reader on a machine; `position` is the offset that it reads next."""

    def __init__(self, world: ClientWorld, machine: int, key: TopicPartition, isolation: IsolationLevel) -> None:
        self.key = key
        self.position = 0
        self._isolation = isolation
        self._name = f"reader {machine} of {key}, {isolation.name.lower()}"
        self._world = world
        self._links = ClientLinks(world.network, machine, TIMEOUT_S, "reader")
        self._history = world.judge.histories[key]
        self._delivered: list[Record] = []
        self._deleted: set[int] = set()

    async def live(self) -> None:
        """Reads for ever, or until records that it has read may be lost."""
        while not self.is_misled:
            with suppress(MillraceError):
                await self._read()
            await asyncio.sleep(self._world.chance.uniform(*PAUSE_S))

    @property
    def is_misled(self) -> bool:
        """Whether what it has read may be lost, or what it waits for: the markers of transactions, of lost ones too."""
        promises = self._world.judge.promises
        waits = self._isolation is IsolationLevel.READ_COMMITTED and promises.is_void(TRANSACTIONS)
        return waits or promises.is_void(self.key)

    async def _read(self) -> None:
        chance, leader = self._world.chance, self._world.leader(self.key)
        if leader is None:
            return
        version, broker = chance.choice(VERSIONS), leader[0]
        if version >= FIRST_FROM_FOLLOWERS and chance.random() < FROM_A_FOLLOWER:
            broker = chance.choice(self._world.replicas[self.key])
        asked = self.position
        link = await self._links.to(broker)
        fetched = await link.request(FETCH, version, self._request(version), wait_s=WAIT_MS / 1000)
        (topic,) = fetched.responses
        (partition,) = topic.partitions
        if self.is_misled:
            return
        try:
            self._take(fetched_data(partition, self._name, asked), f"broker {broker}")
        except OffsetOutOfRangeError:
            await self._go_on_behind()

    async def _go_on_behind(self) -> None:
        """Goes on where the partition begins, if its next records are deleted; the broker may only lag behind."""
        earliest = await earliest_offset(self._world, self._links, self.key)
        if earliest is not None and earliest > self.position and not self.is_misled:
            retention = self._world.judge.retention.get(self.key)
            if retention is None or not retention.justifies(earliest):
                self._history.misses(self.position, earliest, self._name)
            self._deleted.update(range(self.position, earliest))
            self.position = earliest

    def _request(self, version: int) -> FetchRequestFields:
        """Returns a request that a follower answers, too, as it tells the reader's rack."""
        has_id, limit = version >= FIRST_WITH_IDS, self._world.chance.choice(BYTES)
        name = {"topic_id": self._world.topic_ids[self.key.topic]} if has_id else {"topic": self.key.topic}
        wanted = {
            "partition": self.key.partition,
            "current_leader_epoch": NO_EPOCH,
            "fetch_offset": self.position,
            "last_fetched_epoch": NO_EPOCH,
            "log_start_offset": NO_EPOCH,
            "partition_max_bytes": limit,
        }
        return {
            "replica_id": NO_EPOCH,
            "max_wait": WAIT_MS,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": int(self._isolation),
            "session_epoch": NO_EPOCH,
            "forgotten_topics_data": (),
            "topics": [{**name, "partitions": [wanted]}],  # type: ignore[typeddict-item]
            "rack_id": "anywhere" if version >= FIRST_FROM_FOLLOWERS else "",
        }

    def _take(self, fetched: FetchedData, where: str) -> None:
        try:
            for batch in fetched.batches():
                self._take_batch(batch, where)
        except RecordError as error:
            if self.key in self._world.judge.damaged:
                return  # a part of a segment that was sent before is not checked again: those who read it do that
            self._world.judge.anomaly(f"{self._name} gets damage from {where}: {error}")

    def _take_batch(self, batch: FetchedBatch, where: str) -> None:
        check_crc(batch.data, 0, batch.header)
        self._history.sees(batch.header.base_offset, bytes(batch.data), where)
        there = {one.offset for one in read_records(batch.data)}
        for offset in set(range(self.position, batch.header.next_offset)) - there:
            self._history.misses(offset, offset + 1, f"{where}, as {self._name} finds")
            self._deleted.add(offset)
        self._delivered += (one for one in batch.records() if one.offset >= self.position)
        self.position = batch.header.next_offset

    def check_all(self) -> None:
        """Looks whether all was read, when nothing is written any more."""
        if self.is_misled:
            return
        visible = self._history.visible(committed=self._isolation is IsolationLevel.READ_COMMITTED)
        wanted = [one for one in visible if one.offset not in self._deleted]
        if self._delivered != wanted:
            more = [one.offset for one in self._delivered if one not in wanted]
            less = [one.offset for one in wanted if one not in self._delivered]
            self._world.judge.anomaly(f"{self._name} has not read offsets {less}, and should not have read {more}")

    def __str__(self) -> str:
        return f"{self._name}, at offset {self.position} of {self._history.end}"
