"""Holds the partitions that this broker leads or follows, and the purgatory of the requests that wait for them.

A partition is led, or followed, or neither. One that was stopped and not deleted is followed without a leader, so that
its leader epoch is still known.

All methods run on the event loop's thread. What waits for the disk is done by `logs` on a worker thread: logs are made
before `lead` and `follow`, which raise the error where one can't be made, and deleted after `forget`. `partition_roles`
says what to lead and to follow.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from uuid import UUID
from weakref import WeakValueDictionary

from millrace.errors import ErrorCode, InconsistentTopicIdError, InvalidConfigError, StorageError, UnknownTopicError
from millrace.leader_states import NO_LEADER
from millrace.records.batch import Buffer
from millrace.wire.controller_apis import NO_BROKER_EPOCH
from millrace.wire.fetch import PartitionKey
from millrace_broker.metrics import TopicTraffic
from millrace_broker.replication.damage_reports import DamageReports
from millrace_broker.replication.fetch_sessions import PartitionChanges
from millrace_broker.replication.followed_partition import FollowedPartition
from millrace_broker.replication.in_sync_replicas import UNKNOWN_OFFSET, Proposal
from millrace_broker.replication.isr_tables import Accepted, IsrTables
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.purgatory import Purgatory
from millrace_broker.replication.replica import Replica
from millrace_broker.replication.roles import Hosted, Leadership
from millrace_broker.storage import (
    AppendOrigin,
    AppendOutcome,
    Log,
    LogAppendInfo,
    LogCopy,
    LogManager,
    Prepared,
    TopicPartition,
)

logger = logging.getLogger(__name__)

ANY_WITH_FOLLOWERS = TopicPartition("", -1)  # in the purgatory, followers' fetches wait under it for any partition
NEVER_GIVEN = 1 << 62  # producer ids from here on must have been made up by a client


def first_free_producer_id(logs: Iterable[Log]) -> int:
    """Returns the id above those of all producers in some logs, without ids that no broker can have given."""
    known = (producer_id for log in logs for producer_id in log.producers.entries)
    return max((one for one in known if one < NEVER_GIVEN), default=-1) + 1


class ReplicaManager:
    """The partitions that this broker leads and follows, and their logs.

    `offline` are those whose logs can't be opened, or have failed. `logs` has all logs of the broker, also those of
    partitions neither led nor followed.
    """

    def __init__(self, logs: LogManager, purgatory: Purgatory[TopicPartition], isr: IsrTables) -> None:
        self.logs = logs
        self.isr = isr
        self._partitions: dict[TopicPartition, Partition] = {}
        self.partitions: Mapping[TopicPartition, Partition] = self._partitions
        """All led partitions; the mapping follows changes."""
        self._followed: dict[TopicPartition, FollowedPartition] = {}
        self.followed: Mapping[TopicPartition, FollowedPartition] = self._followed
        """All followed partitions; the mapping follows changes."""
        self.purgatory = purgatory
        self.changes = PartitionChanges()
        """What has happened to led partitions that have followers."""
        self.damage_reports = DamageReports()
        self.offline: set[TopicPartition] = set()
        self._traffic: WeakValueDictionary[str, TopicTraffic] = WeakValueDictionary()

    @property
    def offline_dir_count(self) -> int:
        """The number of data directories that are offline."""
        return sum(not each.is_online for each in self.logs.dirs.all)

    @property
    def has_refused_roles(self) -> bool:
        """Whether a partition is offline though all data directories are online, as its log could not be made.

        That happens on a full disk, and may succeed by now. An offline directory stays so until the broker restarts.
        """
        return bool(self.offline) and self.offline_dir_count == 0

    def traffic(self) -> dict[str, TopicTraffic]:
        """Returns the counts of bytes and records of each topic of which this broker leads or follows a partition."""
        return dict(self._traffic)

    def sent(self, topic_partition: TopicPartition, size_bytes: int, follower: int | None) -> Replica | None:
        """Counts bytes sent to a follower, None for a client; returns the partition if it is led or followed here."""
        replica = self.replica(topic_partition)
        if replica is not None and follower is not None:
            replica.traffic.replicated_bytes_out += size_bytes
        elif replica is not None:
            replica.traffic.bytes_out += size_bytes
        return replica

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Returns the current high watermark of every partition that is led or followed."""
        return {key: one.high_watermark for key, one in self._all()}

    def damaged(self) -> frozenset[TopicPartition]:
        """Returns the partitions whose logs have damage below the high watermark, as far as it is known.

        Looks at all logs; any thread may call it.
        """
        return frozenset(
            key
            for key, log in self.logs.logs().items()
            if (damage := log.damage) and min(one.start_offset for _, one in damage) < self._committed_end(key, log)
        )

    def _committed_end(self, topic_partition: TopicPartition, log: Log) -> int:
        one = self.replica(topic_partition)
        return log.log_end_offset if one is None else one.high_watermark

    def _all(self) -> Iterator[tuple[TopicPartition, Partition | FollowedPartition]]:
        yield from self._partitions.items()
        yield from self._followed.items()

    def replica(self, topic_partition: TopicPartition) -> Partition | FollowedPartition | None:
        """Returns the led or followed partition; None for one that this broker neither leads nor follows."""
        return self._partitions.get(topic_partition) or self._followed.get(topic_partition)

    def hosted(self, topic_partition: TopicPartition) -> Hosted:
        """Returns the leader epoch and topic id known of a partition; the log's id if neither led nor followed."""
        log = self.logs.get(topic_partition)
        is_offline = log is not None and not self.logs.dirs.of_log(log.directory).is_online
        one = self.replica(topic_partition)
        if one is None:
            return Hosted(topic_id=self.logs.topic_id(topic_partition), is_offline=is_offline)
        return Hosted(one.leader_epoch, one.topic_id, is_offline)

    def first_free_producer_id(self) -> int:
        """Returns the id above those of all producers in all logs of this broker."""
        return first_free_producer_id(self.logs.logs().values())

    def lead(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: Mapping[str, str],
        leadership: Leadership,
    ) -> None:
        """Becomes leader with the log of the partition, which it makes where there is none.

        A partition that is led already takes the configuration, and the leadership if its epoch is newer; requests that
        wait for the partition are looked at again. Raises InconsistentTopicIdError where there is the log of another
        topic of this name, which is left alone; on a StorageError the partition is offline.
        """
        self._check_topic_id(topic_partition, topic_id)
        # Held before the last partition that has it may be gone.
        traffic = self._traffic.setdefault(topic_partition.topic, TopicTraffic())
        self.offline.add(topic_partition)
        self._followed.pop(topic_partition, None)
        known = self._partitions.get(topic_partition)
        if known is not None:
            self._lead_on(known, config, leadership)
        else:
            self._begin_to_lead(topic_partition, topic_id, config, leadership)
        self._partitions[topic_partition].traffic = traffic
        self.offline.discard(topic_partition)
        self._grown(self._partitions[topic_partition])

    def _lead_on(self, partition: Partition, config: Mapping[str, str], leadership: Leadership) -> None:
        topic_partition = partition.log.topic_partition
        if partition.config != config:
            self.logs.create(topic_partition, partition.topic_id, config)
            partition.config = config
            self.isr.reconfigured(partition)
        if leadership.leader_epoch > partition.leader_epoch:
            self.isr.lead(partition, leadership, partition.high_watermark)

    def _begin_to_lead(
        self, topic_partition: TopicPartition, topic_id: UUID, config: Mapping[str, str], leadership: Leadership
    ) -> None:
        log = self.logs.create(topic_partition, topic_id, config)
        partition = Partition(log, topic_id, leadership.leader_epoch, config)
        checkpoints = self.logs.checkpoints
        known_offset = log.high_watermark if log.has_high_watermark else checkpoints.high_watermark(topic_partition)
        self.isr.lead(partition, leadership, known_offset)
        self._partitions[topic_partition] = partition

    def configure(self, topic_configs: Mapping[str, Mapping[str, str]]) -> None:
        """Sets the topic properties of all led and followed partitions of some topics.

        A log keeps its configuration where a value doesn't fit, which another tool has written.
        """
        for topic_partition, one in self._all():
            config = topic_configs.get(topic_partition.topic, one.config)
            if config != one.config:
                one.config = config
                self._apply_config(topic_partition, one)

    def reconfigure(self, log_defaults: Mapping[str, str]) -> None:
        """Sets the broker's defaults of log properties, also for logs that are open. Raises InvalidConfigError.

        A log keeps its configuration where its topic has a value that doesn't fit, which another tool has written.
        """
        self.logs.set_defaults(log_defaults)
        for topic_partition, one in self._all():
            self._apply_config(topic_partition, one)

    def _apply_config(self, topic_partition: TopicPartition, one: Partition | FollowedPartition) -> None:
        try:
            self.logs.create(topic_partition, one.topic_id, one.config)
        except (InvalidConfigError, StorageError) as error:
            logger.warning("%s keeps its configuration: %s", topic_partition, error)
        if isinstance(one, Partition) and self.isr.reconfigured(one):
            self._changed(one)

    async def finish_move(self, one: Partition | FollowedPartition, copy: LogCopy) -> None:
        """Puts the copy of a partition's log in its place; appends are refused meanwhile.

        The caller has seen that no worker holds the log. Raises StorageError, after which the log is where it was.
        """
        old = one.log
        one.hold()
        try:
            copy.is_in_last_step = True
            moved = await asyncio.to_thread(self.logs.moves.put_in_place, copy)
            self.logs.moves.end(old, moved)
            one.log = moved
            self._apply_config(old.topic_partition, one)
        finally:
            one.let_go()
        self.synced(old.topic_partition)
        await asyncio.to_thread(old.abandon)

    async def until_free(self, *topic_partitions: TopicPartition) -> None:
        """Waits until no worker holds the log of any of these partitions; of all partitions if none is given."""
        for one in map(self.replica, topic_partitions or [key for key, _ in self._all()]):
            if one is not None:
                await one.until_free()

    def _check_topic_id(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        known = self.logs.topic_id(topic_partition)
        if known not in (None, topic_id):
            raise InconsistentTopicIdError(f"the log of {topic_partition} belongs to the topic with id {known}")

    def resign(self, topic_partition: TopicPartition) -> None:
        """Stops leading a partition, ends the requests that wait for it, and keeps the high watermark in its log."""
        partition = self._partitions.pop(topic_partition)
        partition.log.high_watermark = partition.high_watermark
        self._grown(partition)

    # Following.

    def follow(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: Mapping[str, str],
        *,
        leader: int,
        leader_epoch: int,
    ) -> FollowedPartition:
        """Becomes follower with the log of the partition, made where there is none, and returns the followed partition.

        A partition that was led is led no longer. On a StorageError the partition is offline; raises
        InconsistentTopicIdError where the log belongs to another topic of this name, InvalidConfigError.
        """
        self._check_topic_id(topic_partition, topic_id)
        traffic = self._traffic.setdefault(topic_partition.topic, TopicTraffic())
        if topic_partition in self._partitions:
            self.resign(topic_partition)
        self._followed.pop(topic_partition, None)
        self.offline.add(topic_partition)
        log = self.logs.create(topic_partition, topic_id, config)
        if not log.has_high_watermark:
            log.high_watermark = self.logs.checkpoints.high_watermark(topic_partition)
        log.commit_synced(commits_synced=False)
        followed = FollowedPartition(log, topic_id, config, leader=leader, leader_epoch=leader_epoch)
        followed.traffic = traffic
        self._followed[topic_partition] = followed
        self.offline.discard(topic_partition)
        self.purgatory.check(topic_partition)
        return followed

    def stop(self, topic_partition: TopicPartition) -> None:
        """Stops leading or following a partition, if it does, but keeps its log and leader epoch."""
        one = self.replica(topic_partition)
        if one is not None:
            self.follow(topic_partition, one.topic_id, one.config, leader=NO_LEADER, leader_epoch=one.leader_epoch)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Stops leading or following a partition, and moving its log, as the log is to be deleted."""
        self.logs.moves.drop(topic_partition)
        if topic_partition in self._partitions:
            self.resign(topic_partition)
        self._followed.pop(topic_partition, None)
        self.offline.discard(topic_partition)
        self.purgatory.check(topic_partition)

    # What the in-sync replicas do.

    def fetched(
        self,
        partition: Partition,
        follower: int,
        offset: int,
        log_start_offset: int = UNKNOWN_OFFSET,
        broker_epoch: int = NO_BROKER_EPOCH,
    ) -> None:
        """Updates a follower by a fetch from `offset`, its log end; raises NotLeaderError if it has no replica."""
        if self.isr.fetched(partition, follower, offset, log_start_offset, broker_epoch):
            self._changed(partition)

    def isr_answered(self, topic_partition: TopicPartition, proposal: Proposal, outcome: Accepted | ErrorCode) -> None:
        """Applies the controller's answer to a proposed ISR; an answer that comes too late changes nothing."""
        partition = self._partitions.get(topic_partition)
        if partition is not None and self.isr.answered(partition, proposal, outcome):
            self._changed(partition)

    def take_live_brokers(self, brokers: Iterable[int]) -> None:
        """Sets the brokers that are alive and not shutting down: only they may join the in-sync replicas."""
        for partition in self.isr.take_live_brokers(brokers, self._partitions.values()):
            self._changed(partition)

    def check_in_sync_replicas(self) -> None:
        """Proposes ISRs without the followers that lag too long (`replica.lag.time.max.ms`)."""
        self.isr.check(self._partitions.values())

    def partition(self, topic_partition: TopicPartition) -> Partition:
        """Returns the led partition; raises UnknownTopicError where there is none."""
        try:
            return self._partitions[topic_partition]
        except KeyError:
            raise UnknownTopicError(f"{topic_partition} is not led by this broker") from None

    def append_all(self, partition: Partition, appends: Sequence[Buffer | Prepared]) -> Sequence[AppendOutcome]:
        """Appends batches of several requests, and completes waiting fetches; returns each one's offsets or error."""
        outcomes = partition.append_all(appends)
        if partition.in_sync is None:  # as nearly always on one broker: no table and no follower need be told
            self.purgatory.check(partition.log.topic_partition)
        else:
            self.isr.appended(partition)
            self._grown(partition)
        return outcomes

    def append(
        self, topic_partition: TopicPartition, batches: Buffer, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> tuple[Partition, LogAppendInfo]:
        """Appends batches and completes waiting fetches; returns the partition and the offsets.

        Raises UnknownTopicError if it is not led here, or RecordError, ProducerError or StorageError (`Log.append`).
        """
        partition = self.partition(topic_partition)
        info = partition.append(batches, origin)
        self.isr.appended(partition)
        self._grown(partition)
        return partition, info

    def mirrored(self, partition: Partition, size_bytes: int, records: int) -> None:
        """Counts batches that were appended as a mirror has sent them, and completes waiting fetches."""
        partition.mirrored(size_bytes, records)
        self.isr.appended(partition)
        self._grown(partition)

    def raise_log_start_offset(self, partition: Partition, offset: int) -> None:
        """Raises a partition's log start to `offset`, of which its followers learn with their next fetch.

        Raises OffsetOutOfRangeError above the high watermark.
        """
        partition.log.raise_log_start_offset(offset)
        self._changed(partition)

    def synced(self, topic_partition: TopicPartition) -> None:
        """Has the requests that wait for a partition look again, as its log was synced or its data directory failed."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            partition.moved()
            self.isr.appended(partition)
            self._changed(partition)
        followed = self._followed.get(topic_partition)
        if followed is not None:
            followed.when_synced()

    # What waits for partitions.

    def _changed(self, partition: Partition) -> None:
        """Completes requests that wait for a partition, but for followers' fetches, which learn of it later."""
        if partition.in_sync is not None:
            self.changes.note(PartitionKey(partition.topic_id, partition.log.topic_partition.partition))
        self.purgatory.check(partition.log.topic_partition)

    def _grown(self, partition: Partition) -> None:
        """Completes requests that wait for a partition, and its followers' fetches."""
        self._changed(partition)
        if partition.in_sync is not None:
            self.purgatory.check(ANY_WITH_FOLLOWERS)
