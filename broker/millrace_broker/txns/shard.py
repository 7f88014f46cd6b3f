"""The transactions of one partition of `__transaction_state`, whose log is their memory.

    append   record → log → the in-sync replicas have it → the transaction is told, and changes its state
    markers  are sent to all partitions of a decided transaction, after the decision is answered and before another
             request is read; one that can't be written now is sent again, to the leader at that time
    replay   log → records → transactions, at the start and after a move; decided ones are carried out then

While a shard is being loaded, only the loader touches it, which may be a worker thread. Afterwards it belongs to the
event loop. The partition's leader epoch is the coordinator's epoch in markers: it fences former coordinators.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

from millrace.clock import Clock
from millrace.errors import CorruptRecordError, ErrorCode, MillraceError
from millrace.records.batch import BatchHeader
from millrace.records.record import NewRecord, decode_batch, encode_batch
from millrace_broker.cluster.metadata_cache import DeletionLookup
from millrace_broker.metrics import TransactionCounts
from millrace_broker.replication.purgatory import CallLater, CallSoon, Cancellable
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.shards import when_replicated
from millrace_broker.storage import AppendOrigin, TopicPartition
from millrace_broker.txns.markers import REPLICATION_TIMEOUT_MS, Marker, MarkerSender
from millrace_broker.txns.records import read_key, read_value, transaction_record
from millrace_broker.txns.state import COMPLETE, TransactionState
from millrace_broker.txns.transaction import (
    CompleteLater,
    Effects,
    Fenced,
    Forget,
    Respond,
    StoreMetadata,
    Transaction,
    WriteMarkers,
)

logger = logging.getLogger(__name__)

RETRY_MS = 100
STORE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The errors of transactions for errors of an append."""

NEEDS_NO_MARKER = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""The errors of a partition that knows a newer producer, or coordinator, than the one that decided."""


class Shard:
    """The transactional ids in one led partition of `__transaction_state`: does what each `Transaction` decides.

    `deletions` says which partitions are deleted, so that they need no marker.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        replicas: ReplicaManager,
        markers: MarkerSender,
        deletions: DeletionLookup,
        *,
        clock: Clock,
        call_later: CallLater,
        call_soon: CallSoon,
        counts: TransactionCounts,
    ) -> None:
        self.topic_partition = topic_partition
        self.transactions: dict[str, Transaction] = {}
        self.is_loaded = False
        self.is_closed = False
        self._replicas = replicas
        self._markers = markers
        self._deletions = deletions
        self._clock = clock
        self._call_later = call_later
        self._call_soon = call_soon
        self._counts = counts
        self._timers: set[Cancellable] = set()

    def now_ms(self) -> int:
        """Returns the wall clock's time in milliseconds, which records get as timestamps."""
        return self._clock.now_ms()

    def find(self, transactional_id: str) -> Transaction | ErrorCode:
        """Returns the transaction with an id; INVALID_PRODUCER_ID_MAPPING for an unknown id."""
        return self.transactions.get(transactional_id, ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    # Effects.

    def perform(self, transaction: Transaction, effects: Effects) -> None:
        """Carries out the effects (answers, records, markers) that a transaction has returned, and what follows."""
        for effect in effects:
            match effect:
                case Respond(ticket, result):
                    if ticket is not None and not ticket.done():  # a client that is gone has cancelled it
                        ticket.set_result(result)
                case StoreMetadata():
                    self._store(transaction, effect)
                case WriteMarkers():
                    self._call_soon(partial(self._carry_out, transaction, effect))
                case CompleteLater():
                    self._later(lambda: self._marked(transaction))
                case Forget():
                    self.transactions.pop(transaction.transactional_id, None)

    def _store(self, transaction: Transaction, store: StoreMetadata) -> None:
        def stored(error: ErrorCode) -> None:
            if not error:
                self._count(transaction, store)
            self.perform(transaction, transaction.stored(store, error, self.now_ms()))

        record = transaction_record(transaction.transactional_id, store.metadata)
        batch = encode_batch([NewRecord(record.value, record.key, self.now_ms())])
        try:
            self._replicas.partition(self.topic_partition).check_in_sync_replicas()
            _, info = self._replicas.append(self.topic_partition, batch, AppendOrigin.COORDINATOR)
        except MillraceError as error:
            logger.warning("%s takes no records of transactions: %s", self.topic_partition, error)
            stored(STORE_ERRORS.get(error.code, error.code))
            return
        when_replicated(self._replicas, self.topic_partition, info.last_offset, REPLICATION_TIMEOUT_MS, stored)

    def _count(self, transaction: Transaction, store: StoreMetadata) -> None:
        """Adds a stored record to the counts; `transaction` has the state from before it."""
        counts, before, after = self._counts, transaction.metadata, store.metadata
        if after is None:
            return
        counts.begun += after.state is TransactionState.ONGOING and before.state is not TransactionState.ONGOING
        counts.fenced += isinstance(store.outcome, Fenced)
        if after.state in COMPLETE:
            counts.committed += after.state is TransactionState.COMPLETE_COMMIT
            counts.aborted += after.state is TransactionState.COMPLETE_ABORT
            counts.open_seconds += (self.now_ms() - before.start_timestamp_ms) / 1000

    def _epoch(self) -> int:
        partition = self._replicas.partitions.get(self.topic_partition)
        return -1 if partition is None else partition.leader_epoch

    # Markers.

    def _carry_out(self, transaction: Transaction, decided: WriteMarkers) -> None:
        """Sends a decided transaction's markers; it is complete once each partition has its marker or needs none."""
        producer, partitions, is_commit = decided
        if self.is_closed:
            return
        if not partitions:
            self._marked(transaction)
        marker, left = Marker(producer, is_commit, self._epoch()), set(partitions)
        for topic_partition in sorted(partitions):
            self._send_marker(transaction, marker, left, topic_partition)

    def _send_marker(
        self, transaction: Transaction, marker: Marker, left: set[TopicPartition], topic_partition: TopicPartition
    ) -> None:
        def written(error: ErrorCode) -> None:
            if error in NEEDS_NO_MARKER:
                logger.warning(
                    "transaction %s: %s takes no marker: %s", transaction.transactional_id, topic_partition, error.name
                )
            if error and error not in NEEDS_NO_MARKER:
                self._deletions.ask(topic_partition, looked_up)
            else:
                done()

        def looked_up(is_deleted: bool) -> None:
            if is_deleted:
                logger.info("transaction %s: %s is deleted", transaction.transactional_id, topic_partition)
                done()
            else:
                self._later(lambda: self._send_marker(transaction, marker, left, topic_partition))

        def done() -> None:
            left.discard(topic_partition)
            if not left:
                self._marked(transaction)

        self._markers.send(topic_partition, marker, written)

    def _marked(self, transaction: Transaction) -> None:
        if not self.is_closed:
            self.perform(transaction, transaction.marked(self.now_ms()))

    def _later(self, work: Callable[[], None]) -> None:
        def again() -> None:
            self._timers.discard(timer)
            work()

        if not self.is_closed:
            timer = self._call_later(RETRY_MS / 1000, again)
            self._timers.add(timer)

    # Housekeeping.

    def abort_timed_out(self) -> Iterator[Transaction]:
        """Aborts transactions open beyond their timeout; each step of the iterator aborts and yields one."""
        for transaction in self._each_that(lambda one: one.is_timed_out(self.now_ms())):
            logger.info("transaction %s has timed out and is aborted", transaction.transactional_id)
            self.perform(transaction, transaction.time_out(self.now_ms()))
            self._counts.timed_out += 1
            yield transaction

    def expire(self, expiration_ms: int) -> Iterator[Transaction]:
        """Removes ids unused for `expiration_ms`; each step of the iterator begins that for one and yields it."""
        for transaction in self._each_that(lambda one: one.is_expired(self.now_ms(), expiration_ms)):
            self.perform(transaction, transaction.expire())
            yield transaction

    def _each_that(self, holds: Callable[[Transaction], bool]) -> Iterator[Transaction]:
        """Yields the transactions for which `holds` is true both now and when each comes up."""
        for transaction in [one for one in self.transactions.values() if holds(one)]:
            if not self.is_closed and holds(transaction):
                yield transaction

    # Reading.

    def replay(self, header: BatchHeader, batch: memoryview) -> None:
        """Sets the states that a batch of the partition's log has; a record that can't be decoded is skipped."""
        for record in () if header.is_control else decode_batch(header, batch):
            self._replay_record(record.key, record.value)

    def _replay_record(self, key: bytes | None, value: bytes | None) -> None:
        try:
            transactional_id = None if key is None else read_key(key)
            if transactional_id is None:
                logger.warning("%s: a record of key %r is skipped", self.topic_partition, key)
            elif value is None:
                self.transactions.pop(transactional_id, None)
            else:
                self.transactions[transactional_id] = Transaction(transactional_id, read_value(value))
        except CorruptRecordError:
            logger.exception("%s: a record of key %r is skipped", self.topic_partition, key)

    def loaded(self) -> None:
        """Begins to serve, as all records are replayed, and sends the markers of transactions that are decided."""
        self.is_loaded = True
        for transaction in tuple(self.transactions.values()):
            self.perform(transaction, transaction.loaded())

    def close(self) -> None:
        """Stops serving, as this broker leads the partition no longer; the next leader sends markers still missing."""
        self.is_closed = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
