"""What a log knows of one producer, and what that says of the producer's next batch (KIP-98, KIP-360).

    last batch      [seq 40 … 49]                the last five are kept
    next batch      [seq 50 … 57]  accepted      follows on the last one
                    [seq 40 … 49]  duplicate     has the range of a kept batch, whose offsets are returned
                    [seq 52 … 60]  refused       something was lost on the way
                    older epoch    refused       another instance of the producer has taken over
                    newer epoch    accepted      from sequence 0 on

A producer that the log does not know may begin with any sequence, as retention may have deleted its batches. Sequences
go from 0 to 2³¹ - 1 and then start at 0 again. Everything here is a pure function of the entry and the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from millrace.config import MAX_INT
from millrace.errors import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
)
from millrace.records.batch import (
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
)
from millrace.records.control import ControlType, EndTransactionMarker

MAX_BATCHES = 5
NO_COORDINATOR_EPOCH = -1

_OF_PRODUCER = ~TIMESTAMP_TYPE_FLAG  # a log sets that flag where it gives the timestamps

Turn = tuple[int, int, int, int]  # producer id, epoch, attributes and sequence of the batch that may come next


class BatchMetadata(NamedTuple):
    """The place of a producer's batch in its log; `offset_delta` is its last offset, or sequence, minus its first."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence of the batch's first record."""
        return _moved(self.last_sequence, -self.offset_delta)

    @property
    def first_offset(self) -> int:
        """The offset of the batch's first record."""
        return self.last_offset - self.offset_delta


class CompletedTransaction(NamedTuple):
    """A transaction whose marker is in the log at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """A producer's state in one log; `batches` are the newest of its epoch, at most `MAX_BATCHES`, oldest first."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    batches: tuple[BatchMetadata, ...] = ()
    last_timestamp: int = NO_TIMESTAMP
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    transaction_first_offset: int = NO_OFFSET

    @property
    def last_sequence(self) -> int:
        """The last sequence of the last batch; -1 without one."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The last offset of the last batch; -1 without one."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def has_open_transaction(self) -> bool:
        """Whether the producer has written in a transaction that no marker has ended."""
        return self.transaction_first_offset != NO_OFFSET

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Returns whether the producer has been silent for `expiration_ms` with no transaction open."""
        return not self.has_open_transaction and now_ms - self.last_timestamp >= expiration_ms


def turn_of(header: BatchHeader) -> Turn:
    """Returns (producer id, epoch, attributes, sequence) of a batch, to compare with the expected one."""
    _, _, _, _, _, attributes, _, _, _, producer_id, epoch, sequence, _ = header
    return producer_id, epoch, attributes & _OF_PRODUCER, sequence


def next_turn(header: BatchHeader) -> Turn:
    """Returns (producer id, epoch, attributes, sequence) that the next batch must have to be valid."""
    _, _, _, _, _, attributes, last_offset_delta, _, _, producer_id, epoch, sequence, _ = header
    return producer_id, epoch, attributes & _OF_PRODUCER, (sequence + last_offset_delta + 1) & MAX_INT


def find_duplicate(entry: ProducerEntry, header: BatchHeader) -> BatchMetadata | None:
    """Returns the batch in `entry` with the same epoch and sequences, so that this is a repeat; None without one."""
    if header.producer_epoch != entry.epoch or not entry.batches:
        return None
    first, last = header.base_sequence, _last_sequence(header)
    if first == _moved(entry.batches[-1].last_sequence, 1):  # as a rule
        return None
    return next((each for each in entry.batches if (each.first_sequence, each.last_sequence) == (first, last)), None)


def check_batch(entry: ProducerEntry, header: BatchHeader) -> None:
    """Raises a ProducerError for an older epoch, a sequence that isn't the next, or a batch outside the transaction."""
    who = f"producer {entry.producer_id}"
    check_epoch(entry, header)
    if entry.epoch != NO_PRODUCER_EPOCH:
        last = entry.last_sequence if header.producer_epoch == entry.epoch else NO_SEQUENCE
        if header.base_sequence != _moved(last, 1):
            raise OutOfOrderSequenceError(
                f"{who}, epoch {header.producer_epoch}: sequence {header.base_sequence} after {last}"
            )
    if entry.has_open_transaction and not header.is_transactional:
        raise InvalidTransactionStateError(f"{who}: a batch outside its open transaction")


def check_epoch(entry: ProducerEntry, header: BatchHeader) -> None:
    """Raises InvalidProducerEpochError for a batch of an older epoch than the producer's last."""
    if header.producer_epoch < entry.epoch:
        raise InvalidProducerEpochError(
            f"producer {entry.producer_id}: epoch {header.producer_epoch} is older than {entry.epoch}"
        )


def with_batch(entry: ProducerEntry, header: BatchHeader, base_offset: int) -> ProducerEntry:
    """Returns the producer's entry as it is after a data batch was appended at `base_offset`."""
    return with_batches(entry, ((header, base_offset),))


def with_batches(entry: ProducerEntry, appended: Sequence[tuple[BatchHeader, int]]) -> ProducerEntry:
    """Returns the producer's entry as it is after consecutive data batches were appended, each at its base offset."""
    (_, first_offset), (last, _) = appended[0], appended[-1]
    kept = entry.batches if last.producer_epoch == entry.epoch else ()
    begins = last.is_transactional and not entry.has_open_transaction
    return ProducerEntry(
        producer_id=entry.producer_id,
        epoch=last.producer_epoch,
        batches=(*kept, *[_metadata(*one) for one in appended[-MAX_BATCHES:]])[-MAX_BATCHES:],
        last_timestamp=last.max_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        transaction_first_offset=first_offset if begins else entry.transaction_first_offset,
    )


def _metadata(header: BatchHeader, base_offset: int) -> BatchMetadata:
    delta = header.last_offset_delta
    return BatchMetadata(_last_sequence(header), base_offset + delta, delta, header.max_timestamp)


def check_marker(entry: ProducerEntry, producer_epoch: int, marker: EndTransactionMarker) -> None:
    """Raises a ProducerError for a marker whose producer epoch or coordinator epoch is older than the entry's."""
    who = f"producer {entry.producer_id}"
    if producer_epoch < entry.epoch:
        raise InvalidProducerEpochError(f"{who}: a marker of epoch {producer_epoch}, older than {entry.epoch}")
    if marker.coordinator_epoch < entry.coordinator_epoch:
        raise CoordinatorFencedError(
            f"{who}: a marker of coordinator epoch {marker.coordinator_epoch}, older than {entry.coordinator_epoch}"
        )


def with_marker(
    entry: ProducerEntry, header: BatchHeader, marker: EndTransactionMarker, offset: int
) -> tuple[ProducerEntry, CompletedTransaction | None]:
    """Returns the entry after a marker at `offset`, and the transaction that this ended, None if none was open."""
    completed = None
    if entry.has_open_transaction:
        is_aborted = marker.control_type is ControlType.ABORT
        completed = CompletedTransaction(entry.producer_id, entry.transaction_first_offset, offset, is_aborted)
    after = replace(
        entry,
        epoch=header.producer_epoch,
        batches=entry.batches if header.producer_epoch == entry.epoch else (),
        last_timestamp=header.max_timestamp,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_first_offset=NO_OFFSET,
    )
    return after, completed


def _last_sequence(header: BatchHeader) -> int:
    if header.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return _moved(header.base_sequence, header.last_offset_delta)


def _moved(sequence: int, by: int) -> int:
    """Returns the sequence `by` further on or back; after the largest comes 0."""
    return (sequence + by) & MAX_INT
