"""Whether a partition may take a producer's records in a transaction (KIP-890).

A partition that has records of the transaction already takes more. For the first ones it depends on the client:

    before KIP-890        the coordinator is asked; INVALID_TXN_STATE where it does not have the partition
    with generic errors   the coordinator is asked; TRANSACTION_ABORTABLE where it does not have the partition
    that bumps epochs     the coordinator adds the partition to the transaction

So a batch that comes late, when its transaction has ended, can't begin another one that would never end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from millrace.errors import ErrorCode
from millrace_broker.replication.partition import Partition
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.metadata import EPOCH_BUMP_VERSION, Producer
from millrace_broker.txns.transaction_coordinator import TransactionCoordinator


class ClientSupport(IntEnum):
    """What a client understands, by the version of its request."""

    NONE = 0
    GENERIC_ERROR = 1
    EPOCH_BUMP = 2


def admit(
    coordinator: TransactionCoordinator,
    transactional_id: str,
    producer: Producer,
    partitions: Mapping[TopicPartition, Partition],
    support: ClientSupport,
) -> dict[TopicPartition, ErrorCode]:
    """Returns an error, or NONE, for each partition.

    A partition is added at once or not at all: where the replicas of the coordinator's partition take their time, or a
    decision is still to be carried out, the error is CONCURRENT_TRANSACTIONS, and the client asks again. Transactions
    of another broker's coordinator are refused with POLICY_VIOLATION.
    """
    unknown = [key for key, one in partitions.items() if not one.log.producers.has_open_transaction(*producer)]
    found = dict.fromkeys(partitions, ErrorCode.NONE)
    if support is ClientSupport.EPOCH_BUMP:
        found |= _added(coordinator, transactional_id, producer, unknown)
    elif coordinator.config.transaction_partition_verification_enable:
        found |= coordinator.verify(transactional_id, producer, unknown)
    if ErrorCode.NOT_COORDINATOR in found.values() and coordinator.is_elsewhere(transactional_id):
        return dict.fromkeys(partitions, ErrorCode.POLICY_VIOLATION)
    return {key: _told(error, support) for key, error in found.items()}


def _added(
    coordinator: TransactionCoordinator, transactional_id: str, producer: Producer, unknown: Sequence[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    if not unknown:
        return {}
    adding = coordinator.add_partitions(transactional_id, producer, unknown, EPOCH_BUMP_VERSION)
    return dict.fromkeys(unknown, adding.result().error if adding.done() else ErrorCode.CONCURRENT_TRANSACTIONS)


def _told(error: ErrorCode, support: ClientSupport) -> ErrorCode:
    """Returns the error by which the client knows what to do."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and support is ClientSupport.NONE:
        return ErrorCode.INVALID_TXN_STATE
    return error
