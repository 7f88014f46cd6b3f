"""The partitions of a coordinator's topic that are led here: one shard each, which serves once its log is read.

    elected   a shard is made; its log is read in worker threads, piece by piece
    loaded    it has taken in all records and serves; a log without records is loaded at once
    resigned  another broker leads the partition now, it is gone, or it can't be read: the shard is closed and forgotten

Runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from millrace.clock import Clock
from millrace.errors import MillraceError
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.replicated import read_to_end
from millrace_broker.storage import TopicPartition

logger = logging.getLogger(__name__)


class CoordinatorShard(Protocol):
    """What a coordinator keeps of one led partition of its topic."""

    topic_partition: TopicPartition
    is_loaded: bool
    is_closed: bool

    def replay(self, batches: bytes) -> int:
        """Take in whole batches of the log; the offset after them. Runs in a worker thread."""

    def loaded(self) -> None:
        """Every record is replayed: serve."""

    def close(self) -> None:
        """Lead no longer."""


Shard = TypeVar("Shard", bound=CoordinatorShard)


class LedShards(Generic[Shard]):
    """The shards of one topic, by partition.

    Args:
        topic: its name; partitions of others are none of its business.
        replicas: the led partitions, whose logs are read.
        make: a shard that has seen no record.
        clock: measures how long a log takes to read.
        load_buffer_bytes: how much of a log is read at once.
        when_loaded: told of a shard that has been read, and of the seconds that it took.
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
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self._make = make
        self._clock = clock
        self._load_buffer_bytes = load_buffer_bytes
        self._when_loaded = when_loaded
        self._shards: dict[int, Shard] = {}
        self._loading: set[asyncio.Task[None]] = set()
        self._closed = False

    def of_partition(self, index: int) -> Shard | None:
        """The shard of a partition, loaded or not; None where the partition is not led here."""
        return self._shards.get(index)

    def find(self, topic_partition: TopicPartition) -> Shard | None:
        """The same, for a partition of any topic."""
        return self._shards.get(topic_partition.partition) if topic_partition.topic == self._topic else None

    def all(self) -> list[Shard]:
        """Every shard, loaded or not; for any thread."""
        return list(self._shards.values())

    def loaded(self) -> list[Shard]:
        """Every shard that serves; for any thread."""
        return [shard for shard in self.all() if shard.is_loaded]

    def elected(self, topic_partition: TopicPartition) -> None:
        """This broker leads a partition; nothing to do if it did so before, or if it is of another topic."""
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
        """This broker leads a partition no longer."""
        shard = self.find(topic_partition)
        if shard is not None:
            del self._shards[topic_partition.partition]
            shard.close()

    def close(self) -> None:
        """The broker stops."""
        self._closed = True
        for shard in self.all():
            self.resigned(shard.topic_partition)

    async def _load(self, shard: Shard) -> None:
        started_s = self._clock.monotonic_s()
        try:
            await read_to_end(
                self._replicas, shard.topic_partition, self._load_buffer_bytes, shard.replay, lambda: shard.is_closed
            )
        except MillraceError:
            logger.exception("%s can't be loaded", shard.topic_partition)
            if not shard.is_closed:
                self.resigned(shard.topic_partition)
            return
        if not shard.is_closed:
            shard.loaded()
            self._when_loaded(shard, self._clock.monotonic_s() - started_s)
