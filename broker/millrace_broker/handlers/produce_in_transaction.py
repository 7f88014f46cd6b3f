"""Produce with a transactional id: decides which of a request's partitions may take its records (KIP-890).

A batch without the transactional flag is taken as one of an idempotent producer. Where the coordinator has to be asked
first, the request is handled once it has answered, and all later ones of the transactional id wait behind it. What the
coordinator can't decide now is answered NOT_ENOUGH_REPLICAS, after which every producer tries again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millrace.errors import (
    ErrorCode,
    InvalidProducerEpochError,
    InvalidRequestError,
    InvalidTransactionStateError,
    MillraceError,
    NotEnoughReplicasError,
    RecordError,
    TransactionAbortableError,
    UnknownProducerIdError,
)
from millrace.records.batch import HEADER_BYTES, Buffer, is_transactional, read_header
from millrace_broker.handlers.api import Services
from millrace_broker.replication.partition import Partition
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.metadata import Producer
from millrace_broker.txns.verification import ClientSupport, Errors, TransactionalWrite, Verification

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


def refusals(
    services: Services, version: int, transactional_id: str, offered: Iterable[tuple[TopicPartition, Buffer | None]]
) -> Refusals | Verification:
    """Returns the partitions that may not take their records, each with its error; or what tells it later.

    A request has the records of one producer.
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
    write = TransactionalWrite(transactional_id, producers.pop(), _support(version))
    admitted = services.admission.admit(write, partitions)
    return admitted if isinstance(admitted, Verification) else refusals_of(admitted)


def refusals_of(errors: Errors) -> Refusals:
    """Returns the partitions that are not admitted, each with the error of its records."""
    return {key: _refusal(key, error) for key, error in errors.items() if error}


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
    return ClientSupport.of(
        version,
        generic_error_since=FIRST_VERSION_WITH_GENERIC_ERRORS,
        epoch_bump_since=FIRST_VERSION_WITH_EPOCH_BUMP,
    )


def _refusal(key: TopicPartition, error: ErrorCode) -> MillraceError:
    refused = REFUSALS.get(error, NotEnoughReplicasError)
    return refused(f"{key.topic}-{key.partition} takes no records of the transaction: {error.name}")
