"""What a coordinator does with its log: it waits until a record is replicated, and reads a partition to its end.

It calls `when_replicated` before it acts upon a record, and `read_to_end` when it takes over a partition.

A record is known by its offset and the leader epoch in which it was appended: a leader that becomes a follower may cut
it off, and when it leads again, another record may lie at the offset.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from millrace.errors import ErrorCode, RecordError
from millrace.records.batch import NO_LEADER_EPOCH, check_crc, walk
from millrace.wire.encoder import contents
from millrace_broker.replication.replica import Isolation
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.storage import DamagedRangeError, TopicPartition

logger = logging.getLogger(__name__)

ONE_BATCH = 1

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
    is read on the event loop; `take_in` is called on a worker thread. Damaged batches are set aside, and left out: what
    is behind them counts.
    """
    partition = replicas.partition(topic_partition)
    log, offset, max_bytes = partition.log, partition.log.log_start_offset, buffer_bytes
    end = log.log_end_offset
    while offset < end and not is_closed():
        try:
            batches = partition.read(offset, max_bytes, at_least_one=True, isolation=Isolation.LOG_END).records
        except DamagedRangeError as error:
            logger.error("%s: what was written there is lost: %s", topic_partition, error)  # noqa: TRY400
            offset, max_bytes = error.end_offset, buffer_bytes
            continue
        if not len(batches):
            return
        data = bytes(contents(batches))
        if await asyncio.to_thread(_is_valid, data, end):
            offset = await asyncio.to_thread(take_in, data)
        elif max_bytes > ONE_BATCH:
            max_bytes = ONE_BATCH  # up to the one that is damaged
        else:
            log.set_damage_aside(offset)


def _is_valid(batches: bytes, end_offset: int) -> bool:
    """Returns whether CRCs hold, and offsets rise up to the log's end: no CRC covers them."""
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
