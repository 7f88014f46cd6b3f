"""Keeps a shard for each partition of a coordinator's topic that this broker leads.

    elected   a shard is made, and its log is read in worker threads, piece by piece
    loaded    the shard has taken in all records and serves; a log without records is loaded at once
    resigned  the partition is gone, is led by another broker, or can't be read: the shard is closed and forgotten

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
    """The state that a coordinator keeps for one led partition of its topic."""

    topic_partition: TopicPartition
    is_loaded: bool
    is_closed: bool

    def replay(self, batches: bytes) -> int:
        """Takes in whole batches of the log and returns the offset after them; called on a worker thread."""

    def loaded(self) -> None:
        """Begins to serve, as every record has been replayed."""

    def close(self) -> None:
        """Stops serving, as the partition is led no longer."""


Shard = TypeVar("Shard", bound=CoordinatorShard)


class LedShards(Generic[Shard]):
    """The shards of one topic, by partition.

    Args:
        topic: its name; partitions of other topics are ignored.
        replicas: the led partitions, whose logs are read.
        make: returns a shard that has seen no record.
        clock: measures how long a log takes to read.
        load_buffer_bytes: how many bytes of a log are read at once.
        when_loaded: is called with a shard that has been read, and the seconds that it took.
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
        """Returns the shard of a partition, loaded or not; None where the partition is not led here."""
        return self._shards.get(index)

    def find(self, topic_partition: TopicPartition) -> Shard | None:
        """Returns the shard of a partition of any topic; None where it is not of this one, or not led here."""
        return self._shards.get(topic_partition.partition) if topic_partition.topic == self._topic else None

    def all(self) -> list[Shard]:
        """Returns every shard, loaded or not; for any thread."""
        return list(self._shards.values())

    def loaded(self) -> list[Shard]:
        """Returns every shard that serves; for any thread."""
        return [shard for shard in self.all() if shard.is_loaded]

    def elected(self, topic_partition: TopicPartition) -> None:
        """Makes and loads the shard of a partition that is led now, unless there is one or it is of another topic."""
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
        """Closes and forgets the shard of a partition that is led no longer."""
        shard = self.find(topic_partition)
        if shard is not None:
            del self._shards[topic_partition.partition]
            shard.close()

    def close(self) -> None:
        """Closes all shards and makes no more, as the broker stops."""
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
