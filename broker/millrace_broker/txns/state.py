"""The states of a transaction, and the table of what follows in each of them; `transaction` carries it out.

    Empty ──► Ongoing ──► PrepareCommit ──► CompleteCommit ─┐
      ▲          ▲  └───► PrepareAbort ───► CompleteAbort ──┤
      └──────────┴──────────────────────────────────────────┘

The numbers are those of Kafka's records, the texts those of its tools. A client of KIP-890 may abort what it has not
begun, which leads from Empty or a Complete state to PrepareAbort. Dead is the state of an id that is being forgotten.
Kafka has PrepareEpochFence between Ongoing and PrepareAbort, but never stores it.

`TransactionMetadata` is what is stored of a transactional id.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import NamedTuple

from millrace.errors import ErrorCode
from millrace.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from millrace_broker.storage import TopicPartition


class TransactionState(IntEnum):
    """The state of a transaction, as `__transaction_state` has it."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    def __str__(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))


class Event(StrEnum):
    """An event that may change a transaction: a request, or time that has passed."""

    INIT = "init producer"
    ADD = "add partitions"
    COMMIT = "commit"
    COMMIT_AGAIN = "commit, repeated after it was completed"
    ABORT = "abort"
    ABORT_AGAIN = "abort, repeated after it was completed"
    ABORT_ANY = "abort by a client of KIP-890, also of what it has not begun"
    TIME_OUT = "open for longer than its producer allows"
    MARKED = "every partition has its marker"
    EXPIRE = "not used for long"


_EMPTY, _ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
_PREPARE_COMMIT, _PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
_COMPLETE_COMMIT, _COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
DECIDED = (_PREPARE_COMMIT, _PREPARE_ABORT)
COMPLETE = (_COMPLETE_COMMIT, _COMPLETE_ABORT)
IDLE = (_EMPTY, *COMPLETE)
OPEN = (_ONGOING, *DECIDED)
_INVALID, _BUSY = ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS

_IDLE: Mapping[Event, TransactionState | ErrorCode] = {
    Event.INIT: _EMPTY,
    Event.ADD: _ONGOING,
    Event.COMMIT: _INVALID,
    Event.ABORT: _INVALID,
    Event.ABORT_ANY: _PREPARE_ABORT,
    Event.EXPIRE: TransactionState.DEAD,
}

_ROWS: Mapping[TransactionState, Mapping[Event, TransactionState | ErrorCode]] = {
    _EMPTY: _IDLE,
    _ONGOING: {
        Event.INIT: _PREPARE_ABORT,
        Event.ADD: _ONGOING,
        Event.COMMIT: _PREPARE_COMMIT,
        Event.ABORT: _PREPARE_ABORT,
        Event.ABORT_ANY: _PREPARE_ABORT,
        Event.TIME_OUT: _PREPARE_ABORT,
    },
    _PREPARE_COMMIT: {
        Event.INIT: _BUSY,
        Event.ADD: _BUSY,
        Event.COMMIT: _BUSY,
        Event.ABORT: _INVALID,
        Event.ABORT_ANY: _INVALID,
        Event.MARKED: _COMPLETE_COMMIT,
    },
    _PREPARE_ABORT: {
        Event.INIT: _BUSY,
        Event.ADD: _BUSY,
        Event.COMMIT: _INVALID,
        Event.ABORT: _BUSY,
        Event.ABORT_ANY: _BUSY,
        Event.MARKED: _COMPLETE_ABORT,
    },
    _COMPLETE_COMMIT: {**_IDLE, Event.COMMIT_AGAIN: _COMPLETE_COMMIT, Event.ABORT_AGAIN: _INVALID},
    _COMPLETE_ABORT: {**_IDLE, Event.COMMIT_AGAIN: _INVALID, Event.ABORT_AGAIN: _COMPLETE_ABORT},
}

TRANSITIONS = {(state, event): after for state, row in _ROWS.items() for event, after in row.items()}
"""The state that is stored next, or the error by which a request is refused. What is not here does not happen.

To make another producer the owner of an ongoing transaction, that is aborted first, under an epoch that fences the old
one; the same follows from a time-out. An end that is repeated leaves the state as it is, and gets the response again.
"""

STATE_NAMES = {str(state): state for state in TransactionState}
MAX_EPOCH = 2**15 - 1
LAST_EPOCH = MAX_EPOCH - 1  # the last that a producer gets; the next one is left to fence it
NO_CLIENT_VERSION = 0
EPOCH_BUMP_VERSION = 2  # of `transaction.version`: each end of a transaction bumps the epoch (KIP-890)


class Producer(NamedTuple):
    """A producer id and an epoch, as requests name them."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


NOBODY = Producer()


class TransactionMetadata(NamedTuple):
    """The state of one transactional id. A tuple, since each event makes another one, in a third of a dataclass's time.

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
        """The producer id and epoch that requests must have to be accepted."""
        return Producer(self.producer_id, self.producer_epoch)

    @property
    def bumps_epochs(self) -> bool:
        """Whether the client bumps its epoch with each transaction (KIP-890)."""
        return self.client_version >= EPOCH_BUMP_VERSION

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left to give."""
        return self.producer_epoch >= LAST_EPOCH
