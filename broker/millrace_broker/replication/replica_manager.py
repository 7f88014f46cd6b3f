"""Holds the partitions that this broker leads, and the purgatory of the requests that wait for them.

All methods run on the event loop's thread, except `make_logs` and `delete_logs`. Those wait for the disk and run on a
worker thread: `make_logs` before `lead`, `delete_logs` after `drop`. `metadata_publisher` says which to lead.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from millrace.errors import InvalidConfigError, StorageError, UnknownTopicError
from millrace.records.batch import Buffer
from millrace.records.control import EndTransactionMarker
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.purgatory import Purgatory
from millrace_broker.storage import AppendOutcome, Log, LogAppendInfo, LogManager, NewLog, TopicPartition

logger = logging.getLogger(__name__)

NEVER_GIVEN = 1 << 62  # producer ids from here on must have been made up by a client


class ReplicaManager:
    """The led partitions; `offline` are those that the broker should lead and whose logs can't be opened."""

    def __init__(self, logs: LogManager, purgatory: Purgatory[TopicPartition]) -> None:
        self._logs = logs
        self._partitions: dict[TopicPartition, Partition] = {}
        self.partitions: Mapping[TopicPartition, Partition] = self._partitions
        """All led partitions; the mapping follows changes."""
        self.purgatory = purgatory
        self.offline: set[TopicPartition] = set()

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Returns the current high watermark of every led partition."""
        return {key: partition.high_watermark for key, partition in self._partitions.items()}

    def first_free_producer_id(self) -> int:
        """Returns the id above those of all producers in the logs; ids that no broker can have given are ignored."""
        known = (producer_id for one in self._partitions.values() for producer_id in one.log.producers.entries)
        return max((one for one in known if one < NEVER_GIVEN), default=-1) + 1

    def has_logs(self, wanted: Iterable[NewLog]) -> bool:
        """Returns whether all these logs are there, so that `make_logs` has nothing to do."""
        return all(self._logs.get(new.topic_partition) is not None for new in wanted)

    def make_logs(self, wanted: Iterable[NewLog]) -> None:
        """Makes the logs of new partitions; a log that can't be made is left to `lead`, which raises the error."""
        self._logs.create_all(wanted)

    def delete_logs(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Deletes the logs of partitions that are led no longer. StorageError after all were tried."""
        self._logs.delete(*topic_partitions)

    def lead(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        leader_epoch: int,
        config: Mapping[str, str],
        replica_count: int = 1,
    ) -> None:
        """Becomes leader with the log of the partition, which it makes where there is none.

        A partition that is led already takes the new epoch and configuration. A log of an older topic of this name is
        deleted. On a StorageError the partition is offline.
        """
        self.offline.add(topic_partition)
        self._lead(topic_partition, topic_id, leader_epoch, config)
        self._partitions[topic_partition].replica_count = replica_count
        self.offline.discard(topic_partition)

    def _lead(
        self, topic_partition: TopicPartition, topic_id: UUID, leader_epoch: int, config: Mapping[str, str]
    ) -> None:
        known = self._partitions.get(topic_partition)
        if known is not None and known.topic_id == topic_id:
            known.leader_epoch = max(known.leader_epoch, leader_epoch)
            if known.config != config:
                self._logs.create(topic_partition, topic_id, config)
                known.config = config
            return
        if known is not None:
            self.drop(topic_partition)
            self._logs.delete(topic_partition)
        elif self._logs.topic_id(topic_partition) not in (None, topic_id):
            logger.warning("%s was recreated while this broker was away; the old log is deleted", topic_partition)
            self._logs.delete(topic_partition)
        log = self._logs.create(topic_partition, topic_id, config)
        self._partitions[topic_partition] = Partition(log, topic_id, leader_epoch, config)

    def reconfigure(self, log_defaults: Mapping[str, str]) -> None:
        """Replaces the defaults of all logs, also of those that are open. InvalidConfigError.

        A log keeps its configuration where its topic has a value that doesn't fit, which another tool has written.
        """
        self._logs.set_defaults(log_defaults)
        for topic_partition, partition in self._partitions.items():
            try:
                self._logs.create(topic_partition, partition.topic_id, partition.config)
            except InvalidConfigError as error:
                logger.warning("%s keeps its configuration: %s", topic_partition, error)

    def logs_by_data_dir(self) -> dict[str, dict[TopicPartition, Log] | None]:
        """Returns the logs in each data directory; None for a directory that is offline."""
        return self._logs.by_data_dir()

    def finish_move(self, topic_partition: TopicPartition) -> Log:
        """Puts the copy of a partition's log in its place and returns it. Raises as `LogMoves.finish` does."""
        partition = self.partition(topic_partition)
        partition.log = self._logs.moves.finish(topic_partition)
        return partition.log

    def checkpoint_log_start_offsets(self) -> None:
        """Writes the current log start offsets to the disk; for a worker thread. StorageError."""
        self._logs.checkpoint()

    def drop(self, topic_partition: TopicPartition) -> None:
        """Stops leading a partition whose log is to be deleted, and completes the fetches that wait for it."""
        del self._partitions[topic_partition]
        try:
            self._logs.moves.drop(topic_partition)
        except StorageError:
            logger.exception("the copy of %s is left for the next start", topic_partition)
        self.purgatory.check(topic_partition)

    def partition(self, topic_partition: TopicPartition) -> Partition:
        """Returns the led partition; UnknownTopicError where there is none."""
        try:
            return self._partitions[topic_partition]
        except KeyError:
            raise UnknownTopicError(f"{topic_partition} is not led by this broker") from None

    def append_all(self, partition: Partition, appends: Sequence[Buffer]) -> Sequence[AppendOutcome]:
        """Appends what came together and completes the waiting fetches; returns as `Log.append_all` does."""
        outcomes = partition.append_all(appends)
        self.purgatory.check(partition.log.topic_partition)
        return outcomes

    def append(self, topic_partition: TopicPartition, batches: Buffer) -> tuple[Partition, LogAppendInfo]:
        """Appends and completes the waiting fetches. Raises as `Log.append` does, or UnknownTopicError."""
        partition = self.partition(topic_partition)
        info = partition.append(batches)
        self.purgatory.check(topic_partition)
        return partition, info

    def append_in_transaction(self, topic_partition: TopicPartition, batches: Buffer) -> LogAppendInfo:
        """Appends a coordinator's batch of a producer's transaction. Raises as `append` does."""
        info = self.partition(topic_partition).append_in_transaction(batches)
        self.purgatory.check(topic_partition)
        return info

    def append_marker(
        self, topic_partition: TopicPartition, marker: EndTransactionMarker, producer_id: int, producer_epoch: int
    ) -> LogAppendInfo:
        """Appends the end of a producer's transaction. Raises as `Log.append_control` does, or UnknownTopicError."""
        info = self.partition(topic_partition).append_marker(marker, producer_id, producer_epoch)
        self.purgatory.check(topic_partition)
        return info
