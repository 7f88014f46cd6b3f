"""What Produce does with the records of requests before they are appended, and how those of a partition go together.

Before it is their turn, records are checked, and what takes long on a worker thread. How long a check takes depends on
what a batch holds once it is decompressed: some kilobytes can hold gigabytes. A batch of up to `LONG_BYTES` is begun on
the event loop. If it is larger, or those of the request hold more than `AT_ONCE_BYTES` together, the whole request
waits for a thread, and all later ones of its connection wait behind it (`handlers.api.InOrder`). Plain batches are not
prepared: the log checks them while it appends, at some nanoseconds a record.

Message sets of v0 and v1 are converted first, at some microseconds a record. So one above `MESSAGES_AT_ONCE_BYTES`, or
with anything compressed in it, is not begun on the event loop.

With a transactional id it is decided which of a request's partitions may take its records (KIP-890). A batch without
the transactional flag is taken as one of an idempotent producer. Where the coordinator has to be asked first, the
request is handled once it has answered, and all later ones of the transactional id wait behind it. What the
coordinator can't decide now is answered NOT_ENOUGH_REPLICAS, after which every producer tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from millrace.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidProducerEpochError,
    InvalidRequestError,
    InvalidRequiredAcksError,
    InvalidTopicError,
    InvalidTransactionStateError,
    MillraceError,
    NotEnoughReplicasError,
    RecordError,
    RecordTooLargeError,
    StorageError,
    TransactionAbortableError,
    TransactionalIdError,
    UnknownProducerIdError,
)
from millrace.internal_topics import INTERNAL_TOPICS
from millrace.records.batch import HEADER_BYTES, NO_OFFSET, Buffer, is_transactional, read_header
from millrace.records.message_set import has_wrapper
from millrace.security.acls import AclOperation, ResourceType
from millrace.wire.api import ApiKey
from millrace_broker.handlers.api import Guard, Services
from millrace_broker.handlers.partitions import not_led
from millrace_broker.replication.delayed_requests import Appended
from millrace_broker.replication.mirrored_log import refusal as mirrored_refusal
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.produced import (
    FIRST_VERSION_WITH_ZSTD,
    batches_of,
    check_base_offset,
    is_checked_in_place,
    is_message_set,
    is_plain_batch,
)
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.security.client_session import ClientSession
from millrace_broker.storage import (
    AppendOutcome,
    LogAppendInfo,
    LogConfig,
    Prepared,
    Steps,
    TopicPartition,
    codec_of_topic,
    finished,
    finished_within,
    prepare,
)
from millrace_broker.txns.admission import ClientSupport, Errors, TransactionalWrite, Verification
from millrace_broker.txns.state import Producer

LONG_BYTES = 64 << 10
AT_ONCE_BYTES = 512 << 10  # a thread is no faster: to hand records over and back takes some 0.7 ms
MESSAGES_AT_ONCE_BYTES = 4 << 10
Preparation = Steps[Prepared] | None  # None: there is nothing to prepare
Outcome = Prepared | MillraceError | None


def preparation(partition: Partition, version: int, records: Buffer, now_ms: int) -> Preparation:
    """Returns the steps that check or convert records before an append; None if none are needed, or records are bad."""
    config = partition.log.config
    if is_message_set(version, records):
        return _converted(version, records, config, now_ms)
    if not records or is_checked_in_place(records, config):
        return None
    try:
        return prepare(batches_of(version, records, config), config, now_ms)
    except RecordError:
        return None


def _converted(version: int, records: Buffer, config: LogConfig, now_ms: int) -> Steps[Prepared]:
    if len(records) > MESSAGES_AT_ONCE_BYTES or has_wrapper(records):
        yield AT_ONCE_BYTES + 1  # the next step takes long
    batches = batches_of(version, records, config)
    if not batches:  # all of it was cut short
        return Prepared(memoryview(b""), [], 0)
    return (yield from prepare(batches, config, now_ms))


def prepared_at_once(preparations: Iterable[tuple[Preparation, int]]) -> list[Outcome] | None:
    """Runs each preparation, given with its records' size in bytes; returns the outcomes, None if that takes long."""
    outcomes: list[Outcome] = []
    left_bytes = AT_ONCE_BYTES
    for steps, size_bytes in preparations:
        outcome: Outcome = None
        if steps is not None:
            if size_bytes > LONG_BYTES:
                return None
            try:
                outcome, left_bytes = finished_within(steps, left_bytes)
            except MillraceError as error:
                outcome = error
            if outcome is None:
                return None
        outcomes.append(outcome)
    return outcomes


async def prepared_in_thread(executor: Executor, preparations: Sequence[Preparation]) -> list[Outcome]:
    """Runs the steps of each preparation on a thread of the executor, and returns their outcomes."""
    if all(steps is None for steps in preparations):
        return [None] * len(preparations)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(executor, lambda: prepared_here(preparations))


def prepared_here(preparations: Iterable[Preparation]) -> list[Outcome]:
    """Runs each preparation in the calling thread; returns the outcomes, None for those that had nothing to do."""
    return [_outcome(steps) for steps in preparations]


def _outcome(steps: Preparation) -> Outcome:
    try:
        return None if steps is None else finished(steps)
    except MillraceError as error:
        return error


FIRST_VERSION_WITH_GENERIC_ERRORS = 11
FIRST_VERSION_WITH_EPOCH_BUMP = 12

REFUSALS: dict[ErrorCode, type[MillraceError]] = {
    error.code: error
    for error in (
        InvalidProducerEpochError,
        InvalidRequestError,
        InvalidTransactionStateError,
        TransactionAbortableError,
        UnknownProducerIdError,
    )
}

Refusals = Mapping[TopicPartition, MillraceError]


def refusals_in_transaction(
    services: Services, version: int, transactional_id: str, offered: Iterable[tuple[TopicPartition, Buffer | None]]
) -> Refusals | Verification:
    """Returns the error of each partition to which the transaction may not write, or a Verification, which finds out.

    All records have to be of one producer: otherwise every partition is refused.
    """
    partitions: dict[TopicPartition, Partition] = {}
    producers: set[Producer] = set()
    for key, records in offered:
        partition = services.replicas.partitions.get(key)
        producer = _producer_of(records) if records else None
        if partition is not None and producer is not None:
            partitions[key] = partition
            producers.add(producer)
    if len(producers) > 1:
        return refusals_of(dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    if not producers:
        return {}
    support = ClientSupport.of(version, FIRST_VERSION_WITH_GENERIC_ERRORS, FIRST_VERSION_WITH_EPOCH_BUMP)
    write = TransactionalWrite(transactional_id, producers.pop(), support)
    admitted = services.admission.admit(write, partitions)
    return admitted if isinstance(admitted, Verification) else refusals_of(admitted)


def refusals_of(errors: Errors) -> Refusals:
    """Returns an exception for each partition that has an error code; those with NONE are left out."""
    return {key: _refusal(key, error) for key, error in errors.items() if error}


def _producer_of(records: Buffer) -> Producer | None:
    """Returns the producer of the first batch, if that is transactional; else None, also where it can't be read."""
    if len(records) < HEADER_BYTES or not is_transactional(records):
        return None
    try:
        header = read_header(records)
    except RecordError:
        return None
    return Producer(header.producer_id, header.producer_epoch)


def _refusal(key: TopicPartition, error: ErrorCode) -> MillraceError:
    refused = REFUSALS.get(error, NotEnoughReplicasError)
    return refused(f"{key.topic}-{key.partition} takes no records of the transaction: {error.name}")


ALL_IN_SYNC = -1
ACKS = (ALL_IN_SYNC, 0, 1)
NO_PLACE = LogAppendInfo(-1, -1, -1, -1)  # where there is nothing to append
SETTLED = (LogAppendInfo, MillraceError)
NONE_REFUSED: frozenset[MillraceError] = frozenset()
NO_LOG_START = (CorruptRecordError, RecordTooLargeError, StorageError)
GUARD = Guard(ApiKey.PRODUCE, AclOperation.WRITE, ResourceType.TOPIC)


class Appends:
    """The batches that requests bring to one partition, in their order, and the outcome of each request."""

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
        """Takes records that can be appended as they are; returns False, and takes none, if they need a check first."""
        is_plain = self._takes_plain_batches and acks in ACKS and is_plain_batch(records)
        if is_plain:
            self._offered.append(records)
        return is_plain

    def preparation(self, version: int, records: Buffer, now_ms: int) -> Preparation:
        """Returns the steps that check or convert one request's records; None where there is nothing to do."""
        if isinstance(self._partition, MillraceError):
            return None
        return preparation(self._partition, version, records, now_ms)

    def offer(
        self, version: int, acks: int, records: Buffer, prepared: Outcome, *, has_transactional_id: bool = False
    ) -> None:
        """Takes a request's records and `prepared`, the outcome of their checks; keeps the error if it refuses them."""
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
        """Keeps the error of records that do not reach the log, so that the response has no log start offset."""
        self._refused |= {error}
        self.settle(error)

    def settle(self, outcome: AppendOutcome) -> None:
        """Keeps the outcome of one request whose records are not appended, at its place among the other requests."""
        self._offered.append(outcome)
        self._are_batches = False

    def append(self, replicas: ReplicaManager) -> None:
        """Appends the batches to the log, and sets `outcomes`: one for the records of each request, in their order."""
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
        """Returns whether the response waits for a sync to disk or, with acks=all (-1), for other replicas."""
        return acks != 0 and (self.owes_sync or (self.commits_later and acks == ALL_IN_SYNC))

    def to_wait_for(self, outcome: LogAppendInfo, acks: int) -> Appended:
        """Returns the offset up to which the disk and, with acks=all, the in-sync replicas must have the log."""
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
    partition = services.replicas.partitions.get(key)
    if partition is None:
        return not_led(services, key)
    return mirrored_refusal(partition) if partition.log.config.mirror_source else partition
