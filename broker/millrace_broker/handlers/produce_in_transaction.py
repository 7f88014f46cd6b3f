"""Produce with a transactional id: decides which of a request's partitions may take its records (KIP-890).

A batch without the transactional flag is taken as one of an idempotent producer. While it can't be decided, the answer
is NOT_ENOUGH_REPLICAS, after which every producer tries again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from millrace.errors import (
    ErrorCode,
    InvalidProducerEpochError,
    InvalidRequestError,
    InvalidTransactionStateError,
    MillraceError,
    NotEnoughReplicasError,
    PolicyViolationError,
    RecordError,
    TransactionAbortableError,
    UnknownProducerIdError,
)
from millrace.records.batch import HEADER_BYTES, Buffer, is_transactional, read_header
from millrace_broker.handlers.api import Services
from millrace_broker.replication.partition import Partition
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.admission import ClientSupport, admit
from millrace_broker.txns.metadata import Producer

FIRST_VERSION_WITH_GENERIC_ERRORS = 11
FIRST_VERSION_WITH_EPOCH_BUMP = 12
REFUSALS: dict[ErrorCode, type[MillraceError]] = {
    error.code: error
    for error in (
        InvalidProducerEpochError,
        InvalidRequestError,
        InvalidTransactionStateError,
        PolicyViolationError,
        TransactionAbortableError,
        UnknownProducerIdError,
    )
}


def refusals(
    services: Services, version: int, transactional_id: str, offered: Iterable[tuple[TopicPartition, Buffer | None]]
) -> dict[TopicPartition, MillraceError]:
    """Returns the partitions that may not take their records, each with its error."""
    by_producer: defaultdict[Producer, dict[TopicPartition, Partition]] = defaultdict(dict)
    for key, records in offered:
        partition = services.replicas.partitions.get(key)
        producer = _producer_of(records) if records else None
        if partition is not None and producer is not None:
            by_producer[producer][key] = partition
    return {
        key: _refusal(key, error)
        for producer, partitions in by_producer.items()
        for key, error in admit(services.txns, transactional_id, producer, partitions, _support(version)).items()
        if error
    }


def _producer_of(records: Buffer) -> Producer | None:
    """Returns the producer of the first batch, if that belongs to a transaction; the log refuses unreadable records."""
    if len(records) < HEADER_BYTES or not is_transactional(records):
        return None
    try:
        header = read_header(records)
    except RecordError:
        return None
    return Producer(header.producer_id, header.producer_epoch)


def _support(version: int) -> ClientSupport:
    if version >= FIRST_VERSION_WITH_EPOCH_BUMP:
        return ClientSupport.EPOCH_BUMP
    return ClientSupport.GENERIC_ERROR if version >= FIRST_VERSION_WITH_GENERIC_ERRORS else ClientSupport.NONE


def _refusal(key: TopicPartition, error: ErrorCode) -> MillraceError:
    refused = REFUSALS.get(error, NotEnoughReplicasError)
    return refused(f"{key.topic}-{key.partition} takes no records of the transaction: {error.name}")
