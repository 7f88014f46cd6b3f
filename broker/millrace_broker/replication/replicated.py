"""What a coordinator does with its log: it waits until a record is replicated, and reads a partition to its end.

It calls `when_replicated` before it acts upon a record, and `read_to_end` when it takes over a partition.

A record is known by its offset and the leader epoch in which it was appended: a leader that becomes a follower may cut
it off, and when it leads again, another record may lie at the offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from millrace.errors import ErrorCode
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.wire.encoder import contents
from millrace_broker.replication.replica import Isolation
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.storage import TopicPartition

Then = Callable[[ErrorCode], None]


def when_replicated(
    replicas: ReplicaManager, topic_partition: TopicPartition, last_offset: int, wait_ms: int, then: Then
) -> None:
    """Calls `then` once, with NONE when the high watermark is past the record that was just appended at the offset.

    With one replica that is at once, unless the record has to be synced first; inside another record's `then`, it is
    after that one: records take effect in their order. The code is NOT_COORDINATOR where the partition is led no
    longer, its disk has failed, or the record was cut off meanwhile; COORDINATOR_NOT_AVAILABLE after `wait_ms`.
    """
    waiting = _Replicated(replicas, topic_partition, last_offset, then)
    replicas.purgatory.complete_or_hold(waiting, topic_partition, wait_ms)


class _Replicated:
    """An append that waits for the in-sync replicas."""

    def __init__(self, replicas: ReplicaManager, topic_partition: TopicPartition, offset: int, then: Then) -> None:
        self._replicas = replicas
        self._topic_partition = topic_partition
        self._offset = offset
        self._then = then
        self._outcome = ErrorCode.NONE
        partition = replicas.partitions.get(topic_partition)
        self._leader_epoch = NO_LEADER_EPOCH if partition is None else partition.leader_epoch

    def is_ready(self, _: TopicPartition) -> bool:
        """Returns whether the high watermark is past the record, or never will be."""
        partition = self._replicas.partitions.get(self._topic_partition)
        if partition is None or not partition.has_kept(self._offset, self._leader_epoch):
            self._outcome = ErrorCode.NOT_COORDINATOR
            return True
        if partition.high_watermark > self._offset:
            return True
        if partition.log.is_offline:
            self._outcome = ErrorCode.NOT_COORDINATOR
            return True
        return False

    def complete(self) -> None:
        """Reports whether the replicas have the record."""
        self._then(self._outcome)

    def expire(self) -> None:
        """Reports that the replicas took too long; the records may still be replicated later."""
        self._then(ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def read_to_end(
    replicas: ReplicaManager,
    topic_partition: TopicPartition,
    buffer_bytes: int,
    take_in: Callable[[bytes], int],
    is_closed: Callable[[], bool],
) -> None:
    """Gives whole batches, up to the current log end, to `take_in`, which returns the offset after them.

    All that the leader has at its election will be committed, though its high watermark may still lag behind. The log
    is read on the event loop; `take_in` is called on a worker thread.
    """
    partition = replicas.partition(topic_partition)
    offset, end = partition.log.log_start_offset, partition.log.log_end_offset
    while offset < end and not is_closed():
        batches = partition.read(offset, buffer_bytes, at_least_one=True, isolation=Isolation.LOG_END).records
        if not len(batches):
            return
        offset = await asyncio.to_thread(take_in, bytes(contents(batches)))
