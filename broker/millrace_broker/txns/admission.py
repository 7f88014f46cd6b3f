"""Whether a partition may take a producer's records in a transaction (KIP-890).

A partition that has records of the transaction already takes more. For the first ones it depends on the client:

    before KIP-890        the coordinator is asked; INVALID_TXN_STATE where it does not have the partition
    with generic errors   the coordinator is asked; TRANSACTION_ABORTABLE where it does not have the partition
    that bumps epochs     the coordinator adds the partition to the transaction

So a batch that comes late, when its transaction has ended, can't begin another one that would never end. The
coordinator may be another broker; then, and where its replicas take their time, the response comes later
(`txns.verification`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial

from millrace.errors import ErrorCode
from millrace_broker.replication.partition import Partition
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.effects import Result
from millrace_broker.txns.metadata import EPOCH_BUMP_VERSION
from millrace_broker.txns.partition_requests import PartitionRequests, Question
from millrace_broker.txns.transaction_coordinator import TransactionCoordinator
from millrace_broker.txns.verification import (
    NO_RETRIES,
    ClientSupport,
    Errors,
    Response,
    Retries,
    TransactionalWrite,
    Verification,
    named,
)


class Admission:
    """Admits transactional records to partitions that this broker leads.

    Args:
        coordinator: the transactions that this broker coordinates.
        requests: asks the brokers that coordinate the others.
    """

    def __init__(self, coordinator: TransactionCoordinator, requests: PartitionRequests) -> None:
        self._coordinator = coordinator
        self._requests = requests
        config = coordinator.config
        pause_ms = config.add_partitions_to_txn_retry_backoff_ms
        self._retries = Retries(config.add_partitions_to_txn_retry_backoff_max_ms // pause_ms, pause_ms / 1000)

    def admit(self, write: TransactionalWrite, partitions: Mapping[TopicPartition, Partition]) -> Errors | Verification:
        """Returns an error, or NONE, for each partition; or the verification of some, while the others are admitted."""
        unknown = {
            key: one for key, one in partitions.items() if not one.log.producers.has_open_transaction(*write.producer)
        }
        errors = dict.fromkeys(partitions, ErrorCode.NONE)
        adds = write.support is ClientSupport.EPOCH_BUMP
        if not unknown or not (adds or self._coordinator.config.transaction_partition_verification_enable):
            return errors
        ask = partial(self._ask, Question(write.transactional_id, write.producer, tuple(unknown), not adds))
        response, retries = ask(), self._retries if adds else NO_RETRIES
        if isinstance(response, asyncio.Future) or retries.are_due(response):
            return Verification(write, unknown, response, ask, retries)
        return errors | {key: named(error, write.support) for key, error in response.items()}

    def _ask(self, question: Question) -> Response:
        transactional_id, producer, partitions, is_verify_only = question
        broker_id = self._coordinator.other_coordinator(transactional_id) if transactional_id else None
        if broker_id is not None:
            return self._requests.ask(broker_id, question)
        if is_verify_only:
            return self._coordinator.verify(transactional_id, producer, partitions)
        adding = self._coordinator.add_partitions(transactional_id, producer, partitions, EPOCH_BUMP_VERSION)
        if adding.done():
            return dict.fromkeys(partitions, adding.result().error)
        return asyncio.ensure_future(_added(partitions, adding))


async def _added(partitions: Iterable[TopicPartition], adding: asyncio.Future[Result]) -> Errors:
    return dict.fromkeys(partitions, (await adding).error)
