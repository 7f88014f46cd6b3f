"""What is stored of a transactional id: its producer, and the state of its transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from millrace.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.state import TransactionState

MAX_EPOCH = 2**15 - 1
LAST_EPOCH = MAX_EPOCH - 1  # the last that a producer gets; the next one is left to fence it
NO_CLIENT_VERSION = 0
EPOCH_BUMP_VERSION = 2  # of `transaction.version`: each end of a transaction bumps the epoch (KIP-890)


class Producer(NamedTuple):
    """A producer id and an epoch, as requests name them."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


NOBODY = Producer()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """One transactional id.

    `last_producer_epoch` is the epoch before the last bump that this producer itself asked for; it is not stored.
    `next_producer_id` replaces the id, whose epochs are used up, when the transaction is complete.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_timestamp_ms: int = NO_TIMESTAMP
    last_update_timestamp_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = NO_CLIENT_VERSION

    @property
    def producer(self) -> Producer:
        """The producer that may go on with the transaction."""
        return Producer(self.producer_id, self.producer_epoch)

    @property
    def bumps_epochs(self) -> bool:
        """Whether the client bumps its epoch with each transaction (KIP-890)."""
        return self.client_version >= EPOCH_BUMP_VERSION

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left to give."""
        return self.producer_epoch >= LAST_EPOCH
