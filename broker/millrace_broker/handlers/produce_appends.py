"""Keeps the records that several Produce requests bring to one partition, and appends them together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millrace.errors import (
    CorruptRecordError,
    InvalidRequiredAcksError,
    InvalidTopicError,
    MillraceError,
    RecordTooLargeError,
    StorageError,
    TransactionalIdError,
)
from millrace.internal_topics import INTERNAL_TOPICS
from millrace.records.batch import NO_OFFSET, Buffer, is_transactional
from millrace.security.acls import AclOperation, ResourceType
from millrace.wire.api import ApiKey
from millrace_broker.handlers.api import Guard, Services
from millrace_broker.handlers.partitions import not_led
from millrace_broker.handlers.produce_preparation import Outcome, Preparation, preparation
from millrace_broker.replication.delayed_produce import Appended
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.produced import (
    FIRST_VERSION_WITH_ZSTD,
    batches_of,
    check_base_offset,
    is_message_set,
    is_plain_batch,
)
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.security.client_session import ClientSession
from millrace_broker.storage import AppendOutcome, LogAppendInfo, TopicPartition, codec_of_topic

ALL_IN_SYNC = -1
ACKS = (ALL_IN_SYNC, 0, 1)
NO_PLACE = LogAppendInfo(-1, -1, -1, -1)  # where there is nothing to append
SETTLED = (LogAppendInfo, MillraceError)
NONE_REFUSED: frozenset[MillraceError] = frozenset()
NO_LOG_START = (CorruptRecordError, RecordTooLargeError, StorageError)
GUARD = Guard(ApiKey.PRODUCE, AclOperation.WRITE, ResourceType.TOPIC)


class Appends:
    """The batches that requests bring to one partition, in their order, and the outcome of each."""

    __slots__ = (
        "_are_batches", "_offered", "_partition", "_refused", "_takes_plain_batches", "commits_later", "key",
        "log_start_offset", "outcomes", "owes_sync",
    )  # fmt: skip

    def __init__(self, services: Services, version: int, key: TopicPartition, session: ClientSession) -> None:
        self.key = key
        self.outcomes: Iterator[AppendOutcome]
        self.log_start_offset = NO_OFFSET
        self._partition = partition = _writable(services, key, session)
        self.commits_later = self.owes_sync = self._takes_plain_batches = False
        if isinstance(partition, Partition):
            self.commits_later = partition.commits_later
            self._takes_plain_batches = (
                version >= FIRST_VERSION_WITH_ZSTD
                and partition.has_in_sync_replicas
                and codec_of_topic(partition.log.config) is None
            )
        self._offered: list[Any] = []  # batches, and outcomes of those that are not appended
        self._are_batches = True
        self._refused: frozenset[MillraceError] = NONE_REFUSED

    def offer_plain(self, acks: int, records: Buffer) -> bool:
        """Takes the records of one request if nothing needs to be done with them before they are appended."""
        is_plain = self._takes_plain_batches and acks in ACKS and is_plain_batch(records)
        if is_plain:
            self._offered.append(records)
        return is_plain

    def preparation(self, version: int, records: Buffer, now_ms: int) -> Preparation:
        """Returns the preparation of the records of one request."""
        if isinstance(self._partition, MillraceError):
            return None
        return preparation(self._partition, version, records, now_ms)

    def offer(
        self, version: int, acks: int, records: Buffer, prepared: Outcome, *, has_transactional_id: bool = False
    ) -> None:
        """Takes the records of one request, and what their preparation came to."""
        if isinstance(self._partition, MillraceError):
            self.settle(self._partition)
            return
        try:
            batches = self._read(self._partition, version, acks, records, prepared)
            if batches and not has_transactional_id and is_transactional(batches):
                raise TransactionalIdError(
                    "the batch belongs to a transaction, but the request has no transactional id"
                )
        except MillraceError as error:
            self.refuse(error)
            return
        try:
            if batches:
                self._check(self._partition, version, acks, batches)
        except MillraceError as error:
            self.settle(error)
        else:
            self._take(batches, prepared)

    def _take(self, batches: Buffer, prepared: Outcome) -> None:
        if isinstance(prepared, MillraceError):
            self.settle(prepared)
        elif not batches:
            self.settle(NO_PLACE)
        else:
            self._offered.append(prepared or batches)

    def refuse(self, error: MillraceError) -> None:
        """Takes the error of records that do not reach the log."""
        self._refused |= {error}
        self.settle(error)

    def settle(self, outcome: AppendOutcome) -> None:
        """Takes the outcome of records that are not appended."""
        self._offered.append(outcome)
        self._are_batches = False

    def append(self, replicas: ReplicaManager) -> None:
        """Appends the batches, and sets `outcomes`."""
        partition = self._partition
        if isinstance(partition, MillraceError):
            self.outcomes = iter(self._offered)
            return
        batches = self._offered if self._are_batches else [one for one in self._offered if not _is_settled(one)]
        placed = iter(replicas.append_all(partition, batches))
        self.outcomes = (
            placed if self._are_batches else iter([one if _is_settled(one) else next(placed) for one in self._offered])
        )
        log = partition.log
        self.log_start_offset = log.log_start_offset
        # What is committed owes no sync; to ask the log costs more, and nearly always all is committed.
        self.owes_sync = partition.high_watermark < log.log_end_offset and log.owes_sync()

    def waits(self, acks: int) -> bool:
        """Returns whether an append may have to wait before it is answered."""
        return acks != 0 and (self.owes_sync or (self.commits_later and acks == ALL_IN_SYNC))

    def to_wait_for(self, outcome: LogAppendInfo, acks: int) -> Appended:
        """Returns what the disk and the in-sync replicas need to have before an append is answered."""
        assert isinstance(self._partition, Partition), "it was appended to"
        return Appended(self._partition.leader_epoch, outcome.last_offset + 1, acks == ALL_IN_SYNC)

    def log_start_told_with(self, error: MillraceError) -> int:
        """Returns the log start offset for the response to an error; -1 where the records did not reach the log."""
        return NO_OFFSET if error in self._refused or isinstance(error, NO_LOG_START) else self.log_start_offset

    @staticmethod
    def _read(partition: Partition, version: int, acks: int, records: Buffer, prepared: Outcome) -> Buffer:
        if prepared is None or not is_message_set(version, records):
            batches = batches_of(version, records, partition.log.config)
        else:  # it is converted, or can't be
            batches = b"" if isinstance(prepared, MillraceError) else prepared.view
        if acks not in ACKS:
            raise InvalidRequiredAcksError(f"acks={acks}: expected -1, 0 or 1")
        return batches

    @staticmethod
    def _check(partition: Partition, version: int, acks: int, batches: Buffer) -> None:
        check_base_offset(version, batches)
        if acks == ALL_IN_SYNC:
            partition.check_in_sync_replicas()


def _is_settled(offered: object) -> bool:
    return isinstance(offered, SETTLED)


def _writable(services: Services, key: TopicPartition, session: ClientSession) -> Partition | MillraceError:
    if services.authorizer is not None and key.topic and not GUARD.permits(services, session, key.topic):
        return GUARD.denied()
    if key.topic in INTERNAL_TOPICS:
        return InvalidTopicError(f"{key.topic} is written by its coordinator alone")
    return services.replicas.partitions.get(key) or not_led(services, key)
