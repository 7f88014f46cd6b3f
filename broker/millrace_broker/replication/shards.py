"""Keeps a shard for each partition of a coordinator's topic that this broker leads.

    elected   a shard is made, and its log is read in worker threads, piece by piece
    loaded    the shard has taken in all records and serves; a log without records is loaded at once. One whose answers
              let others act outside its partition first waits until all that it has taken in is committed
    resigned  the partition is gone, is led by another broker, or can't be read: the shard is closed and forgotten

A coordinator calls `when_replicated` before it acts upon a record, and `read_to_end` when it takes over a partition. A
record is known by its offset and the leader epoch in which it was appended: a leader that becomes a follower may cut
it off, and when it leads again, another record may lie at the offset.

Runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from millrace.clock import Clock
from millrace.errors import CorruptRecordError, ErrorCode, MillraceError, RecordError
from millrace.records.batch import NO_LEADER_EPOCH, BatchHeader, check_crc, walk
from millrace.wire.encoder import contents
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.replica import Isolation
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.storage import DamagedRangeError, TopicPartition

logger = logging.getLogger(__name__)


ONE_BATCH = 1
HEALING_S, LOOK_AGAIN_S = 60.0, 0.5
REPLICATION_WAIT_MS = 5_000  # then it is logged

Then = Callable[[ErrorCode], None]


def when_replicated(
    replicas: ReplicaManager,
    topic_partition: TopicPartition,
    last_offset: int,
    wait_ms: int,
    then: Then,
    *,
    delayed: Callable[[], None] | None = None,
) -> None:
    """Calls `then` once, with NONE when the high watermark is past the record that is at `last_offset` now.

    With one replica that is at once, unless the record has to be synced first. While another record's `then` runs, it
    is put off until that returns: records take effect in their order. The code is NOT_COORDINATOR where the partition
    is led no longer, its disk has failed, or the record was cut off meanwhile; COORDINATOR_NOT_AVAILABLE after
    `wait_ms`, unless there is `delayed`: that is called each time `wait_ms` have passed, and the wait goes on.
    """
    _Replicated(replicas, topic_partition, last_offset, wait_ms, then, delayed).begin()


@dataclass(slots=True, eq=False)
class _Replicated:
    """A coordinator's append that waits in the purgatory for the in-sync replicas."""

    replicas: ReplicaManager
    topic_partition: TopicPartition
    offset: int
    wait_ms: int
    then: Then
    delayed: Callable[[], None] | None
    _outcome: ErrorCode = ErrorCode.NONE
    _leader_epoch: int = NO_LEADER_EPOCH

    def __post_init__(self) -> None:
        partition = self.replicas.partitions.get(self.topic_partition)
        if partition is not None:
            self._leader_epoch = partition.epoch_of(self.offset)

    def begin(self) -> None:
        """Waits, or waits on."""
        self.replicas.purgatory.complete_or_hold(self, self.topic_partition, self.wait_ms)

    def is_ready(self, _: TopicPartition) -> bool:
        """Returns whether the high watermark is past the record, or the record can't be replicated any more."""
        partition = self.replicas.partitions.get(self.topic_partition)
        if partition is None or not partition.has_kept(self.offset, self._leader_epoch):
            self._outcome = ErrorCode.NOT_COORDINATOR
            return True
        if partition.high_watermark > self.offset:
            return True
        if partition.log.is_offline:
            self._outcome = ErrorCode.NOT_COORDINATOR
            return True
        return False

    def complete(self) -> None:
        """Calls `then` with NONE if the in-sync replicas have the record, or else with the error."""
        self.then(self._outcome)

    def expire(self) -> None:
        """Calls `then` with a timeout error, or `delayed` and waits on; the record may still be replicated later."""
        if self.delayed is None:
            self.then(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self.delayed()
            self.begin()


async def read_to_end(
    replicas: ReplicaManager,
    topic_partition: TopicPartition,
    buffer_bytes: int,
    take_in: Callable[[bytes], int],
    is_closed: Callable[[], bool],
) -> int:
    """Reads a led partition's log and passes whole batches to `take_in`, which returns the offset after them.

    It reads up to the log end at the time of the call, and returns that: all that was answered is below it, though the
    high watermark may still lag behind. What is above the high watermark may be lost if another replica leads next.
    The log is read on the event loop; `take_in` is called on a worker thread. Damaged batches are waited for while they
    may heal from other replicas (`healer`). Then they are left out, and those behind them count.
    """
    partition = replicas.partition(topic_partition)
    log, offset, max_bytes = partition.log, partition.log.log_start_offset, buffer_bytes
    end = log.log_end_offset
    while offset < end and not is_closed():
        try:
            batches = partition.read(offset, max_bytes, at_least_one=True, isolation=Isolation.LOG_END).records
        except DamagedRangeError as error:
            if partition.in_sync is not None and await _is_healed(partition, offset, is_closed):
                continue
            logger.error("%s: what was written there is lost: %s", topic_partition, error)  # noqa: TRY400
            offset, max_bytes = error.end_offset, buffer_bytes
            continue
        if not len(batches):
            break
        data = bytes(contents(batches))
        if await asyncio.to_thread(_is_valid, data, end):
            offset = await asyncio.to_thread(take_in, data)
        elif max_bytes > ONE_BATCH:
            max_bytes = ONE_BATCH  # up to the one that is damaged
        elif not log.set_damage_aside(offset):
            raise CorruptRecordError(f"{topic_partition}: no damaged batch behind offset {offset}")
    return end


async def _is_healed(partition: Partition, offset: int, is_closed: Callable[[], bool]) -> bool:
    """Waits up to `HEALING_S` for a damaged offset to be readable again; returns whether it is."""
    for _ in range(round(HEALING_S / LOOK_AGAIN_S)):
        await asyncio.sleep(LOOK_AGAIN_S)
        if is_closed():
            return False
        with suppress(DamagedRangeError):
            partition.read(offset, ONE_BATCH, at_least_one=True, isolation=Isolation.LOG_END)
            return True
    return False


def _is_valid(batches: bytes, end_offset: int) -> bool:
    """Returns whether all CRCs hold, and offsets, which no CRC covers, rise and stay below the log's end."""
    next_offset = 0
    try:
        for position, header in walk(batches):
            check_crc(batches, position, header)
            if not next_offset <= header.base_offset < header.next_offset <= end_offset:
                return False
            next_offset = header.next_offset
    except RecordError:
        return False
    return True


class CoordinatorShard(Protocol):
    """The state that a coordinator keeps in memory of one partition of its topic that is led here."""

    topic_partition: TopicPartition
    is_loaded: bool
    is_closed: bool

    def replay(self, header: BatchHeader, batch: memoryview) -> None:
        """Adds the records of a batch of the log to the shard's state; called on a worker thread."""

    def loaded(self) -> None:
        """Begins to serve requests, as every record has been replayed."""

    def close(self) -> None:
        """Stops serving, as the partition is led no longer."""


def replay_all(shard: CoordinatorShard, batches: bytes) -> int:
    """Passes each of these valid batches to a shard's `replay`, and returns the offset after them."""
    next_offset = -1
    for position, header in walk(batches):
        shard.replay(header, memoryview(batches)[position : position + header.size_bytes])
        next_offset = header.next_offset
    return next_offset


Shard = TypeVar("Shard", bound=CoordinatorShard)


class LedShards(Generic[Shard]):
    """A coordinator's shards, one for each partition of its topic that this broker leads.

    Args:
        topic: its name; partitions of other topics are ignored.
        replicas: the led partitions, whose logs are read.
        make: returns a shard that has seen no record.
        clock: measures how long a log takes to read.
        load_buffer_bytes: how many bytes of a log are read at once.
        when_loaded: is called with a shard that has been read, and the seconds that it took.
        acts_elsewhere: others act outside the partition upon what a shard answers, so that it must not be lost: a shard
            serves once all that it has read is committed.
    """

    def __init__(
        self,
        topic: str,
        replicas: ReplicaManager,
        make: Callable[[TopicPartition], Shard],
        *,
        clock: Clock,
        load_buffer_bytes: int,
        when_loaded: Callable[[Shard, float], None],
        acts_elsewhere: bool = False,
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self._make = make
        self._clock = clock
        self._load_buffer_bytes = load_buffer_bytes
        self._when_loaded = when_loaded
        self._acts_elsewhere = acts_elsewhere
        self._shards: dict[int, Shard] = {}
        self._loading: set[asyncio.Task[None]] = set()
        self._closed = False

    def of_partition(self, index: int) -> Shard | None:
        """Returns the shard of a partition of the topic, loaded or not; None where the partition is not led here."""
        return self._shards.get(index)

    def find(self, topic_partition: TopicPartition) -> Shard | None:
        """Returns the shard of a partition; None for other topics and where it is not led here."""
        return self._shards.get(topic_partition.partition) if topic_partition.topic == self._topic else None

    def all(self) -> list[Shard]:
        """Returns every shard, loaded or not; any thread may call it."""
        return list(self._shards.values())

    def loaded(self) -> list[Shard]:
        """Returns the shards that are loaded and serve; any thread may call it."""
        return [shard for shard in self.all() if shard.is_loaded]

    def elected(self, topic_partition: TopicPartition) -> None:
        """Makes and loads the shard of a partition that is led now; ignores other topics and shards that are there."""
        index = topic_partition.partition
        if topic_partition.topic != self._topic or index in self._shards or self._closed:
            return
        shard = self._shards[index] = self._make(topic_partition)
        log = self._replicas.partition(topic_partition).log
        if log.log_start_offset == log.log_end_offset:
            shard.loaded()
            return
        task = asyncio.get_running_loop().create_task(self._load(shard))
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

    def resigned(self, topic_partition: TopicPartition) -> None:
        """Closes and drops the shard of a partition that is no longer led here."""
        shard = self.find(topic_partition)
        if shard is not None:
            del self._shards[topic_partition.partition]
            shard.close()

    def close(self) -> None:
        """Closes all shards, as the broker stops; none is made after that."""
        self._closed = True
        for shard in self.all():
            self.resigned(shard.topic_partition)

    async def _load(self, shard: Shard) -> None:
        started_s = self._clock.monotonic_s()
        try:
            take_in, is_closed = partial(replay_all, shard), lambda: shard.is_closed
            end = await read_to_end(self._replicas, shard.topic_partition, self._load_buffer_bytes, take_in, is_closed)
        except MillraceError:
            logger.exception("%s can't be loaded", shard.topic_partition)
            self._give_up(shard)
            return
        if self._acts_elsewhere and not shard.is_closed and await self._replicated(shard, end):
            self._give_up(shard)
        if not shard.is_closed:
            shard.loaded()
            self._when_loaded(shard, self._clock.monotonic_s() - started_s)

    def _give_up(self, shard: Shard) -> None:
        if not shard.is_closed:
            self.resigned(shard.topic_partition)

    async def _replicated(self, shard: Shard, end: int) -> ErrorCode:
        """Waits until all below an offset is committed; returns an error where it can't be any more."""
        outcome: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        when_replicated(
            self._replicas, shard.topic_partition, end - 1, REPLICATION_WAIT_MS, partial(_settle, outcome),
            delayed=lambda: logger.warning("%s waits for replicas to have what it has", shard.topic_partition),
        )  # fmt: skip
        return await outcome


def _settle(outcome: asyncio.Future[ErrorCode], error: ErrorCode) -> None:
    if not outcome.done():  # the broker stops
        outcome.set_result(error)
