"""What is kept of a transactional id: its producer, and how far its transaction is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from millrace.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.state import TransactionState

MAX_EPOCH = 2**15 - 1
LAST_EPOCH = MAX_EPOCH - 1  # that a producer is given: the one above is left for fencing it
NO_VERSION = 0
EPOCH_BUMP_VERSION = 2  # of `transaction.version`: each end of a transaction bumps the epoch (KIP-890)


class Producer(NamedTuple):
    """A producer as a request names it."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


NOBODY = Producer()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """One transactional id.

    `last_producer_epoch` is the epoch before the last bump that this producer itself asked for; it is not kept.
    `next_producer_id` takes the place of the id when the transaction is complete, as its epochs are used up.
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
    client_version: int = NO_VERSION

    @property
    def producer(self) -> Producer:
        """Who may go on with the transaction."""
        return Producer(self.producer_id, self.producer_epoch)

    @property
    def bumps_epochs(self) -> bool:
        """Whether the client bumps its epoch with each transaction (KIP-890)."""
        return self.client_version >= EPOCH_BUMP_VERSION

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left to give."""
        return self.producer_epoch >= LAST_EPOCH
