"""One transactional id: a request comes in, the state changes as `state.TRANSITIONS` says, effects go out.

While a record is on its way to the log, every request is answered CONCURRENT_TRANSACTIONS. A request with another
producer id is answered INVALID_PRODUCER_ID_MAPPING, one with another epoch PRODUCER_FENCED.

An `end` that is repeated after it was completed gets the first response again. Clients of KIP-890 bump their epoch with
each end, so a repetition is known by the epoch before; they may also abort what they have not begun.

Fencing a producer bumps its epoch for the abort; the next instance asks again, and gets the epoch after that. If the
fenced producer asks for its next epoch before another instance comes, it gets that of the abort and goes on (KIP-360).
A client of KIP-890 gets it with the response to its own abort, too.
The behaviour is that of Kafka's TransactionCoordinator and TransactionMetadata in 4.1.

The effects that come back; a transaction does nothing else:

    Respond       complete the request that holds the ticket
    StoreMetadata append the metadata, or a tombstone; `stored` is called once the in-sync replicas have it
    WriteMarkers  end the transaction in its partitions; `marked` is called once all of them have the marker
    CompleteLater call `marked` again after a while, as the last record could not be stored
    Forget        drop the transactional id

`StoreMetadata` comes last among the effects of one event.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from millrace.errors import ErrorCode
from millrace.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.state import (
    COMPLETE,
    DECIDED,
    EPOCH_BUMP_VERSION,
    IDLE,
    LAST_EPOCH,
    NOBODY,
    TRANSITIONS,
    Event,
    Producer,
    TransactionMetadata,
    TransactionState,
)


class Result(NamedTuple):
    """The result of a request: an error, or the producer id and epoch with which the client is to go on."""

    error: ErrorCode
    producer: Producer = NOBODY


class Ticket(Protocol):
    """The future of a request's response. A transaction only hands it back, in `Respond`."""

    def done(self) -> bool:
        """Returns whether the request was answered, or its client is gone."""
        ...

    def set_result(self, result: Result, /) -> None:
        """Answers the request."""
        ...


class Respond(NamedTuple):
    """An effect: answer the request whose future is `ticket`."""

    ticket: Ticket
    result: Result


class StoreMetadata(NamedTuple):
    """An effect: append the state, None for a tombstone, then call the transaction's `stored` with this effect."""

    metadata: TransactionMetadata | None
    outcome: object


class WriteMarkers(NamedTuple):
    """An effect: write the decision as a marker to all partitions of the transaction, and then call `marked`."""

    producer: Producer
    partitions: frozenset[TopicPartition]
    is_commit: bool


class CompleteLater(NamedTuple):
    """An effect: call `marked` again later, as the record of the complete transaction could not be stored."""


class Forget(NamedTuple):
    """An effect: drop the transactional id."""


Effect = Respond | StoreMetadata | WriteMarkers | CompleteLater | Forget
Effects = list[Effect]


class InitProducer(NamedTuple):
    """The request InitProducerId. `expected` has the client's producer id and epoch, None if it has none (KIP-360)."""

    timeout_ms: int
    expected: Producer | None = None


class End(NamedTuple):
    """The request EndTxn. From `client_version` 2 on, it bumps the producer's epoch (KIP-890)."""

    producer: Producer
    is_commit: bool
    client_version: int


class Initialized(NamedTuple):
    """Says that the state to store has a new epoch or producer id."""

    ticket: Ticket


class Added(NamedTuple):
    """Says that the state to store has further partitions."""

    ticket: Ticket


class Decided(NamedTuple):
    """Says that the state to store is the commit or abort that the producer has asked for."""

    ticket: Ticket


class Fenced(NamedTuple):
    """Says that the state to store is an abort that fences the producer; after a timeout, `ticket` is None."""

    ticket: Ticket | None


class Completed(NamedTuple):
    """Says that the state to store is the complete transaction, as all markers were written."""


class Expired(NamedTuple):
    """Says that a tombstone is to be stored, as the transactional id is unused."""


class Transaction:
    """One transactional id, whose methods return what its shard has to do (`Effects`). `now_ms` is wall clock time."""

    def __init__(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        self.transactional_id = transactional_id
        self.metadata = metadata
        self._pending: StoreMetadata | None = None
        self._has_failed_fence = False

    @property
    def state(self) -> TransactionState:
        """The state of the transaction."""
        return self.metadata.state

    @property
    def is_storing(self) -> bool:
        """Whether a record of its state is appended but not yet replicated."""
        return self._pending is not None

    # Producers.

    def needs_producer_id(self, request: InitProducer | End) -> bool:
        """Returns whether the producer id has no epoch left, so that the request needs a new id."""
        if isinstance(request, End):
            return request.client_version >= EPOCH_BUMP_VERSION and self.metadata.is_exhausted
        if not self.metadata.is_exhausted or self.state not in IDLE:
            return False
        return request.expected is None or request.expected.epoch == self.metadata.producer_epoch

    def init_producer(self, ticket: Ticket, request: InitProducer, fresh_id: int, now_ms: int) -> Effects:
        """Stores the next epoch for the client, which fences others, with `fresh_id` if `needs_producer_id`."""
        if self.is_storing:
            return _refused(ticket, ErrorCode.CONCURRENT_TRANSACTIONS)
        if request.expected is not None and not self._may_be(request.expected):
            return _refused(ticket, ErrorCode.PRODUCER_FENCED)
        after = TRANSITIONS[self.state, Event.INIT]
        if isinstance(after, ErrorCode):
            return _refused(ticket, after)
        if after is TransactionState.PREPARE_ABORT:
            return self._fence(ticket, now_ms)
        expected_epoch = None if request.expected is None else request.expected.epoch
        if self.needs_producer_id(request):
            last_epoch = NO_PRODUCER_EPOCH if expected_epoch is None else self.metadata.producer_epoch
            epochs: tuple[int, int] | None = (0, last_epoch)
            producer_id = fresh_id
        else:
            epochs = self._bumped(expected_epoch)
            producer_id = self.metadata.producer_id
        if epochs is None:
            return _refused(ticket, ErrorCode.PRODUCER_FENCED)
        kept = TransactionMetadata(
            state=after,
            producer_id=producer_id,
            previous_producer_id=self.metadata.producer_id,
            producer_epoch=epochs[0],
            last_producer_epoch=epochs[1],
            timeout_ms=request.timeout_ms,
            last_update_timestamp_ms=now_ms,
        )
        return self._store(kept, Initialized(ticket))

    def _may_be(self, expected: Producer) -> bool:
        """Returns whether a client that says it was `expected` can be this id's producer.

        It can where the id is new, or the client has its producer id, or the one before: then it repeats a request
        whose response, with the new producer id, it never got.
        """
        return (
            self.metadata.producer_epoch == NO_PRODUCER_EPOCH
            or expected.producer_id == self.metadata.producer_id
            or (expected.producer_id == self.metadata.previous_producer_id and expected.epoch >= LAST_EPOCH)
        )

    def _bumped(self, expected_epoch: int | None) -> tuple[int, int] | None:
        """Returns (next epoch, epoch before it, -1 if the client had none); None where another client took over."""
        epoch = self.metadata.producer_epoch
        if expected_epoch is None:
            return epoch + 1, NO_PRODUCER_EPOCH
        if epoch in (NO_PRODUCER_EPOCH, expected_epoch):
            return epoch + 1, epoch
        if expected_epoch == self.metadata.last_producer_epoch:  # it never got the response
            return epoch, expected_epoch
        return None

    # Partitions.

    def add_partitions(
        self,
        ticket: Ticket,
        producer: Producer,
        partitions: Collection[TopicPartition],
        client_version: int,
        now_ms: int,
    ) -> Effects:
        """Adds partitions that the producer may write to; the first ones begin the transaction."""
        if error := self._check_owner(producer):
            return _refused(ticket, error)
        after = ErrorCode.CONCURRENT_TRANSACTIONS if self.is_storing else TRANSITIONS[self.state, Event.ADD]
        if isinstance(after, ErrorCode):
            return _refused(ticket, after)
        goes_on = self.state is after
        added = self.metadata.partitions.union(partitions)
        if goes_on and added == self.metadata.partitions:
            return [Respond(ticket, Result(ErrorCode.NONE, producer))]
        kept = self.metadata._replace(
            state=after,
            partitions=added,
            start_timestamp_ms=self.metadata.start_timestamp_ms if goes_on else now_ms,
            last_update_timestamp_ms=now_ms,
            client_version=client_version,
        )
        return self._store(kept, Added(ticket))

    def verify(self, producer: Producer, partitions: Collection[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Returns for each partition NONE if the producer may write to it now, or the error (KIP-890)."""
        error = self._check_owner(producer)
        if not error and self.state in DECIDED:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        missing = error or ErrorCode.TRANSACTION_ABORTABLE
        return {one: error if one in self.metadata.partitions else missing for one in partitions}

    def _check_owner(self, producer: Producer) -> ErrorCode:
        if producer.producer_id != self.metadata.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if producer.epoch == self.metadata.producer_epoch else ErrorCode.PRODUCER_FENCED

    # The end.

    def end(self, ticket: Ticket, request: End, fresh_id: int, now_ms: int) -> Effects:
        """Commits or aborts, and answers once that is stored; `fresh_id` is the next id if `needs_producer_id`."""
        is_repeated = request.client_version >= EPOCH_BUMP_VERSION and self._is_repeated(request.producer)
        error = self._check_end(request, is_repeated=is_repeated)
        if error:
            return _refused(ticket, error)
        after = TRANSITIONS[self.state, self._end_event(request, is_repeated=is_repeated)]
        if isinstance(after, ErrorCode):
            return _refused(ticket, after)
        if after is self.state:
            return [Respond(ticket, Result(ErrorCode.NONE, self.metadata.producer))]
        return self._store(self._decision(after, request, fresh_id, now_ms), Decided(ticket))

    def _end_event(self, request: End, *, is_repeated: bool) -> Event:
        if self.state in COMPLETE and (is_repeated or not self.metadata.bumps_epochs):
            return Event.COMMIT_AGAIN if request.is_commit else Event.ABORT_AGAIN
        if request.is_commit:
            return Event.COMMIT
        return Event.ABORT_ANY if request.client_version >= EPOCH_BUMP_VERSION else Event.ABORT

    def _check_end(self, request: End, *, is_repeated: bool) -> ErrorCode:
        is_next = request.producer == self.metadata.producer
        by_id = request.producer.producer_id == self.metadata.producer_id
        if not by_id and not is_repeated:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if self.metadata.bumps_epochs and self.state in DECIDED:
            is_valid = is_repeated
        else:
            is_valid = is_next or (is_repeated and self.state in COMPLETE)
        if not is_valid:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.CONCURRENT_TRANSACTIONS if self.is_storing else ErrorCode.NONE

    def _is_repeated(self, producer: Producer) -> bool:
        """Returns whether a client of KIP-890 repeats its EndTxn, with the epoch or id from before that."""
        kept = self.metadata
        if not kept.bumps_epochs:
            return False
        was_bumped = kept.producer == Producer(producer.producer_id, producer.epoch + 1)
        was_replaced = kept.producer_epoch == 0 and producer == Producer(kept.previous_producer_id, LAST_EPOCH)
        return was_bumped or was_replaced

    def _decision(self, after: TransactionState, request: End, fresh_id: int, now_ms: int) -> TransactionMetadata:
        kept = self.metadata
        is_open = kept.state is TransactionState.ONGOING
        decided = kept._replace(
            state=after,
            partitions=kept.partitions if is_open else frozenset(),
            start_timestamp_ms=kept.start_timestamp_ms if is_open else now_ms,
            last_update_timestamp_ms=now_ms,
            client_version=request.client_version,
        )
        if request.client_version < EPOCH_BUMP_VERSION:
            return decided
        return decided._replace(
            producer_epoch=kept.producer_epoch + 1,
            last_producer_epoch=kept.producer_epoch,
            previous_producer_id=kept.producer_id,
            next_producer_id=fresh_id if kept.is_exhausted else NO_PRODUCER_ID,
        )

    def is_timed_out(self, now_ms: int) -> bool:
        """Returns whether the transaction has been open for longer than its producer's timeout."""
        is_open = (self.state, Event.TIME_OUT) in TRANSITIONS and not self.is_storing
        return is_open and self.metadata.start_timestamp_ms + self.metadata.timeout_ms < now_ms

    def time_out(self, now_ms: int) -> Effects:
        """Aborts the transaction if it is timed out, and fences its producer, which may still be writing."""
        return self._fence(None, now_ms) if self.is_timed_out(now_ms) else []

    def _fence(self, ticket: Ticket | None, now_ms: int) -> Effects:
        """Stores an abort with the next epoch; after a failed attempt, with the same epoch, which no producer has."""
        kept = self.metadata
        fenced = kept._replace(
            state=TransactionState.PREPARE_ABORT,
            producer_epoch=kept.producer_epoch + (0 if self._has_failed_fence else 1),
            last_producer_epoch=kept.last_producer_epoch if self._has_failed_fence else kept.producer_epoch,
            last_update_timestamp_ms=now_ms,
            client_version=EPOCH_BUMP_VERSION,
        )
        return self._store(fenced, Fenced(ticket))

    def loaded(self) -> Effects:
        """Returns what is left to do after all records were replayed: to write the markers of a decided transaction."""
        return self._carry_out() if self.state in DECIDED else []

    def _carry_out(self) -> Effects:
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        return [WriteMarkers(self.metadata.producer, self.metadata.partitions, is_commit)]

    def marked(self, now_ms: int) -> Effects:
        """Stores that the transaction is complete, as all partitions have the marker."""
        kept, after = self.metadata, TRANSITIONS.get((self.state, Event.MARKED))
        if not isinstance(after, TransactionState) or self.is_storing:
            return []
        has_next = kept.next_producer_id != NO_PRODUCER_ID
        complete = kept._replace(
            state=after,
            partitions=frozenset(),
            last_update_timestamp_ms=now_ms,
            producer_id=kept.next_producer_id if has_next else kept.producer_id,
            producer_epoch=0 if has_next else kept.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
        )
        return self._store(complete, Completed())

    # Expiry.

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Returns whether no transaction is open and the id has been unused for `transactional.id.expiration.ms`."""
        is_idle = (self.state, Event.EXPIRE) in TRANSITIONS and not self.is_storing
        return is_idle and self.metadata.last_update_timestamp_ms <= now_ms - expiration_ms

    def expire(self) -> Effects:
        """Stores a tombstone, after which the transactional id is forgotten."""
        self._pending = StoreMetadata(None, Expired())
        return [self._pending]

    # Records.

    def _store(self, kept: TransactionMetadata, outcome: object) -> Effects:
        self._pending = StoreMetadata(kept, outcome)
        return [self._pending]

    def stored(self, store: StoreMetadata, error: ErrorCode, now_ms: int) -> Effects:  # noqa: ARG002  # as for every event
        """Returns what to do once the record of `store` is replicated, or has failed with `error`."""
        self._pending = None
        if error:
            return self._not_stored(store, error)
        if store.metadata is None:
            return [Forget()]
        self.metadata = store.metadata
        match store.outcome:
            case Initialized(ticket) | Added(ticket):
                return [Respond(ticket, Result(ErrorCode.NONE, self.metadata.producer))]
            case Decided(ticket):
                return [Respond(ticket, Result(ErrorCode.NONE, self._next_producer())), *self._carry_out()]
            case Fenced(ticket):
                self._has_failed_fence = False
                return [*_refused(ticket, ErrorCode.CONCURRENT_TRANSACTIONS), *self._carry_out()]
            case _:
                return []

    def _not_stored(self, store: StoreMetadata, error: ErrorCode) -> Effects:
        match store.outcome:
            case Completed():
                return [CompleteLater()]
            case Initialized(ticket) | Added(ticket) | Decided(ticket):
                return _refused(ticket, error)
            case Fenced(ticket):
                assert store.metadata is not None
                self._has_failed_fence = True
                self.metadata = self.metadata._replace(
                    producer_epoch=store.metadata.producer_epoch,
                    last_producer_epoch=store.metadata.last_producer_epoch,
                )
                return _refused(ticket, error)
            case _:
                return []

    def _next_producer(self) -> Producer:
        """Returns the producer id and epoch that the client has for its next transaction."""
        next_id = self.metadata.next_producer_id
        return self.metadata.producer if next_id == NO_PRODUCER_ID else Producer(next_id, 0)


def new_transaction(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """Returns the transaction of a new transactional id; it has no epoch before its first record is stored."""
    metadata = TransactionMetadata(
        producer_id=producer_id,
        producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=timeout_ms,
        start_timestamp_ms=NO_TIMESTAMP,
        last_update_timestamp_ms=now_ms,
    )
    return Transaction(transactional_id, metadata)


def _refused(ticket: Ticket | None, error: ErrorCode) -> Effects:
    return [] if ticket is None else [Respond(ticket, Result(error, NOBODY))]
