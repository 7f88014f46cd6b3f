"""The groups of one partition of `__consumer_offsets`, whose log is their memory.

    append   records → log → the in-sync replicas have them → the caller is told, and changes its state
    replay   log → records → state, at the start and after a move

While a shard is being loaded, only the loader touches it, which may be a worker thread. Afterwards it belongs to the
event loop. The log is all that a crash leaves: a group comes back as its last record says.

Records of a transaction count once its commit marker is there (KIP-98); until then their offsets are pending.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import partial

from millrace.clock import Clock
from millrace.config import MAX_INT
from millrace.errors import CorruptRecordError, ErrorCode, MillraceError
from millrace.internal_topics import OFFSETS_TOPIC
from millrace.records.batch import HEADER_BYTES, TRANSACTIONAL_FLAG, BatchHeader
from millrace.records.compression import Codec
from millrace.records.control import ControlType, decode_marker
from millrace.records.record import BatchProducer, NewRecord, decode_batch, encode_batch
from millrace_broker.groups import records
from millrace_broker.groups.group import CancelTimer, Effects, Group, Respond, SetTimer, StoreRecords, Succession
from millrace_broker.groups.offsets import Offsets, TransactionalOffsets
from millrace_broker.groups.records import CommittedOffset, OffsetKey, Record
from millrace_broker.metrics import GroupCounts
from millrace_broker.properties.coordinator_config import GroupConfig
from millrace_broker.replication.purgatory import CallLater, Cancellable
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.shards import Then, when_replicated
from millrace_broker.storage import AppendOrigin, TopicPartition

logger = logging.getLogger(__name__)

Replay = Callable[["Shard", bytes, bytes | None], None]

STORE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.MESSAGE_TOO_LARGE,
}
"""The errors of groups for errors of an append. What MESSAGE_TOO_LARGE becomes depends on what was appended."""


class Shard:
    """The groups and offsets in one led partition of `__consumer_offsets`: does what each `Group` decides."""

    def __init__(
        self,
        index: int,
        config: GroupConfig,
        replicas: ReplicaManager,
        *,
        clock: Clock,
        call_later: CallLater,
        replayers: Mapping[int, Replay],
        counts: GroupCounts,
    ) -> None:
        self.topic_partition = TopicPartition(OFFSETS_TOPIC, index)
        self.config = config
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self.transactional = TransactionalOffsets(self.offsets)
        self.is_loaded = False
        self.is_closed = False
        self._replicas = replicas
        self._clock = clock
        self._call_later = call_later
        self._replayers = replayers
        self._counts = counts
        self._timers: dict[tuple[str, Hashable], Cancellable] = {}
        self._unknown_versions: set[int] = set()
        self._deleted_topics: set[str] = set()  # while this was loaded

    def now_ms(self) -> int:
        """Returns the wall clock's time in milliseconds, which records get as timestamps."""
        return self._clock.now_ms()

    # Effects.

    def perform(self, group: Group, effects: Effects) -> None:
        """Carries out the effects (answers, timers, records) that a group has returned, and those that follow."""
        for effect in effects:
            match effect:
                case Respond(ticket, result):
                    if not ticket.done():  # a client that is gone has cancelled it
                        ticket.set_result(result)
                case SetTimer():
                    self._set_timer(group, effect)
                case CancelTimer(timer):
                    self._cancel_timer((group.group_id, timer))
                case StoreRecords():
                    self._store(group, effect)
                case Succession(successor, then):
                    self._succeed(group, successor, then)

    def _succeed(self, group: Group, successor: Group | None, then: Effects) -> None:
        if self.groups.get(group.group_id) is group:
            self.drop(group, ErrorCode.REBALANCE_IN_PROGRESS)
        if successor is not None:
            self.groups[successor.group_id] = successor
            self.perform(successor, then)

    def _store(self, group: Group, store: StoreRecords) -> None:
        def stored(error: ErrorCode) -> None:
            if store.is_rebalance and not error:
                self._counts.rebalances[group.type] += 1
            named = ErrorCode.UNKNOWN_SERVER_ERROR if error is ErrorCode.MESSAGE_TOO_LARGE else error
            self.perform(group, group.stored(store.outcome, named, self.now_ms()))

        delayed = store.delayed
        self.append(store.records, stored, delayed=delayed and (lambda: self.perform(group, delayed())))

    def _set_timer(self, group: Group, effect: SetTimer) -> None:
        timer, delay_ms, restarts = effect
        key = (group.group_id, timer)
        if key in self._timers and not restarts:
            return
        self._cancel_timer(key)
        self._timers[key] = self._call_later(delay_ms / 1000, lambda: self._expired(group, timer))

    def _cancel_timer(self, key: tuple[str, Hashable]) -> None:
        handle = self._timers.pop(key, None)
        if handle is not None:
            handle.cancel()

    def _expired(self, group: Group, timer: Hashable) -> None:
        self._timers.pop((group.group_id, timer), None)
        if self.groups.get(group.group_id) is group:
            self.perform(group, group.timer_expired(timer, self.now_ms()))

    # Writing.

    def append(
        self,
        to_append: Sequence[Record],
        then: Then,
        producer: BatchProducer | None = None,
        *,
        delayed: Callable[[], None] | None = None,
    ) -> None:
        """Appends records as one batch; if there is a `producer`, as part of its transaction.

        `then` is called with NONE once the in-sync replicas have the batch, at once where there is one replica, or
        with an error that group requests can be answered with; `delayed` is that of `when_replicated`.
        """
        now_ms = self.now_ms()
        batch = [NewRecord(record.value, record.key, now_ms) for record in to_append]
        codec = Codec(self.config.offsets_topic_compression_codec)
        try:
            self._replicas.partition(self.topic_partition).check_in_sync_replicas()
            if producer is None:
                encoded = encode_batch(batch, codec=codec)
            else:
                encoded = encode_batch(batch, codec=codec, producer=producer, flags=TRANSACTIONAL_FLAG)
            _, info = self._replicas.append(self.topic_partition, encoded, AppendOrigin.COORDINATOR)
        except MillraceError as error:
            logger.warning("%s takes no records of groups: %s", self.topic_partition, error)
            then(STORE_ERRORS.get(error.code, error.code))
            return
        wait_ms = self.config.offsets_commit_timeout_ms
        when_replicated(self._replicas, self.topic_partition, info.last_offset, wait_ms, then, delayed=delayed)

    def commit_in_transaction(
        self, producer: BatchProducer, commits: Sequence[tuple[OffsetKey, CommittedOffset]], then: Then
    ) -> None:
        """Appends offsets that become valid when the producer's transaction commits; `then` gets NONE or the error."""
        for key, _ in commits:
            self.offsets.begin(key)
        to_append = [records.offset_record(key, committed) for key, committed in commits]

        def replicated(error: ErrorCode) -> None:
            for (key, _), record in zip(commits, to_append, strict=True):
                if not error:
                    self._counts.offsets_committed += 1
                    self.transactional.add(producer.producer_id, key, record)
                self.offsets.end(key)
            then(ErrorCode.INVALID_COMMIT_OFFSET_SIZE if error is ErrorCode.MESSAGE_TOO_LARGE else error)

        self.append(to_append, replicated, producer)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Makes the offsets of a producer's transaction, which has its marker, valid, or drops them after an abort."""
        for record in self.transactional.end(producer_id, is_commit=is_commit):
            self._replay_record(record.key, record.value)

    def commit(self, commits: Sequence[tuple[OffsetKey, CommittedOffset]], then: Then) -> None:
        """Appends offsets, which are valid once the in-sync replicas have them; `then` gets NONE or the error."""
        for key, _ in commits:
            self.offsets.begin(key)

        def replicated(error: ErrorCode) -> None:
            for key, committed in commits:
                self.offsets.end(key)
                if not error:
                    self._counts.offsets_committed += 1
                    self.offsets.put(key, committed)
                    self.transactional.supersede(key)
            then(ErrorCode.INVALID_COMMIT_OFFSET_SIZE if error is ErrorCode.MESSAGE_TOO_LARGE else error)

        self.append([records.offset_record(key, committed) for key, committed in commits], replicated)

    def forget(self, keys: Sequence[OffsetKey], group: Group | None, then: Then) -> None:
        """Appends tombstones of offsets, and of the group unless it is None, and removes these from memory.

        They may need several batches: `then` gets the first error once all were tried.
        """
        tombstones = [records.offset_record(key, None) for key in keys]
        if group is not None:
            tombstones += group.tombstones()
        portions = [(keys[part], tombstones[part]) for part in records.portions(tombstones, self._batch_bytes)]
        outcomes: list[ErrorCode] = []

        def replicated(forgotten: Sequence[OffsetKey], error: ErrorCode) -> None:
            outcomes.append(error)
            if not error:
                self._take_out(forgotten)
            if len(outcomes) == len(portions):
                failure = next(filter(None, outcomes), ErrorCode.NONE)
                if group is not None and not failure:
                    self.drop(group)
                then(failure)

        for forgotten, to_append in portions:
            self.append(to_append, partial(replicated, forgotten))
        if not portions:
            then(ErrorCode.NONE)

    def topics_deleted(self, names: Collection[str]) -> None:
        """Removes the offsets of deleted topics; if the shard is being loaded, once that is done."""
        if not self.is_loaded:
            self._deleted_topics.update(names)
            return

        def forgotten(error: ErrorCode) -> None:
            if error:
                topics = ", ".join(names)
                logger.warning("%s: offsets of deleted topics stay: %s: %s", self.topic_partition, topics, error.name)

        keys = [*self.offsets.keys_of_topics(names), *self.transactional.keys_of_topics(names)]
        self.forget(list(dict.fromkeys(keys)), None, forgotten)

    def _take_out(self, keys: Sequence[OffsetKey]) -> None:
        self._counts.offsets_removed += len(keys)
        for key in keys:
            self.offsets.remove(key)
            self.transactional.supersede(key)

    @property
    def _batch_bytes(self) -> int:
        """The most bytes of records that one batch may have."""
        partition = self._replicas.partitions.get(self.topic_partition)
        return MAX_INT if partition is None else partition.log.config.max_message_bytes - HEADER_BYTES

    def drop(self, group: Group, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        """Removes a group from memory; its waiting requests are answered with the error."""
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
        self.perform(group, group.unloaded(error))

    # Reading.

    def replay(self, header: BatchHeader, batch: memoryview) -> None:
        """Adds a batch of the partition's log to memory: its records, or the marker that ends a transaction."""
        if header.is_control:
            marker = decode_marker(header, batch)
            if marker is not None:
                self.end_transaction(header.producer_id, is_commit=marker.control_type is ControlType.COMMIT)
            return
        for record in decode_batch(header, batch):
            if record.key is None:
                logger.warning("%s: record %d has no key", self.topic_partition, record.offset)
            elif header.is_transactional:
                key = records.read_offset_key(record.key)
                self.transactional.add(header.producer_id, key, Record(record.key, record.value))
            else:
                self._replay_record(record.key, record.value)
                if self.transactional and records.key_version(record.key) in records.OFFSET_KEY_VERSIONS:
                    self.transactional.supersede(records.read_offset_key(record.key))

    def _replay_record(self, key: bytes, value: bytes | None) -> None:
        try:
            version = records.key_version(key)
            replay = self._replayers.get(version)
            if replay is not None:
                replay(self, key, value)
            elif version not in self._unknown_versions:
                self._unknown_versions.add(version)
                logger.warning("%s: records of key version %d are skipped", self.topic_partition, version)
        except CorruptRecordError:
            logger.exception("%s: a record of key %r is skipped", self.topic_partition, key)

    def loaded(self) -> None:
        """Begins to serve, as all records are replayed, and starts the sessions of all groups."""
        self.is_loaded = True
        for group in tuple(self.groups.values()):
            self.perform(group, group.loaded(self.now_ms()))
        self.topics_deleted(self._deleted_topics)

    def close(self) -> None:
        """Stops serving, as this broker leads the partition no longer: answers waiting requests, stops timers."""
        self.is_closed = True
        for group in tuple(self.groups.values()) if self.is_loaded else ():
            self.drop(group, ErrorCode.NOT_COORDINATOR)
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()
