"""Appends that wait until the in-sync replicas have them, and partitions that are read from end to end.

Both are what a coordinator does with its log: `when_replicated` before it acts upon a record, `read_to_end` when it
takes a partition over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from millrace.errors import ErrorCode
from millrace.wire.encoder import contents
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.storage import TopicPartition

Then = Callable[[ErrorCode], None]


def when_replicated(
    replicas: ReplicaManager, topic_partition: TopicPartition, last_offset: int, wait_ms: int, then: Then
) -> None:
    """Call `then` once: NONE when the high watermark covers the offset, which with one replica is at once.

    NOT_COORDINATOR where the partition is led no longer, COORDINATOR_NOT_AVAILABLE after `wait_ms`.
    """
    waiting = _Replicated(replicas, topic_partition, last_offset, then)
    if not waiting.try_complete():
        replicas.purgatory.hold(waiting, [topic_partition], wait_ms)


class _Replicated:
    """An append that waits for the in-sync replicas; it ends once."""

    def __init__(self, replicas: ReplicaManager, topic_partition: TopicPartition, offset: int, then: Then) -> None:
        self._replicas = replicas
        self._topic_partition = topic_partition
        self._offset = offset
        self._then = then

    def try_complete(self, _: TopicPartition | None = None) -> bool:
        """Complete once the high watermark covers it, or the partition is gone."""
        partition = self._replicas.partitions.get(self._topic_partition)
        if partition is None:
            self._then(ErrorCode.NOT_COORDINATOR)
            return True
        if partition.high_watermark > self._offset:
            self._then(ErrorCode.NONE)
            return True
        return False

    def expire(self) -> None:
        """The replicas take too long; the records may still come to stay."""
        self._then(ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def read_to_end(
    replicas: ReplicaManager,
    topic_partition: TopicPartition,
    buffer_bytes: int,
    take_in: Callable[[bytes], int],
    is_closed: Callable[[], bool],
) -> None:
    """Give whole batches to `take_in`, up to the high watermark of now; it says the offset after them.

    Reads belong to the event loop; what is read is taken in by a worker thread.
    """
    partition = replicas.partition(topic_partition)
    offset, end = partition.log.log_start_offset, partition.high_watermark
    while offset < end and not is_closed():
        batches = partition.read(offset, buffer_bytes, at_least_one=True).records
        if not len(batches):
            return
        offset = await asyncio.to_thread(take_in, bytes(contents(batches)))
