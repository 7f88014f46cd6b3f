"""The batches of one partition in their order, and the sequence numbers under which brokers take each of them once.

    open ──full, or old enough──► waiting ──take──► in flight ──acknowledged──► gone
                                     ▲                  │ to be sent again
                                     └──────────────────┘ once nothing is in flight any more

A batch that is to be sent again stops the partition until the batches behind it are answered too; then all go again in
their order, under the numbers that they had. Where a batch is given up, a number is missing: what follows it starts
from 0 under a new epoch, except for batches that may be in the log already, which are given up with it.

It decides, and knows neither time nor sockets.
"""

from __future__ import annotations

from collections import deque

from millrace.client.producer.batch import MAX_SEQUENCE, NOBODY, Batch, Identity
from millrace.records.batch import NO_SEQUENCE


class PartitionQueue:
    """The batches of one partition; everything here changes under the accumulator's lock."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.open: Batch | None = None
        self.waiting: deque[Batch] = deque()
        self.in_flight: deque[Batch] = deque()
        self.retry_at_s = 0.0
        self._returned: list[Batch] = []
        self._taken = 0
        self._identity = NOBODY
        self._next_sequence = 0
        self._misses_sequence = False

    @property
    def is_idle(self) -> bool:
        """Whether the partition has no batches."""
        return not self.batches()

    @property
    def is_stopped(self) -> bool:
        """Whether batches are to be sent again, so that no other may go out."""
        return bool(self._returned) or (self._misses_sequence and bool(self.in_flight))

    @property
    def needs_epoch(self) -> bool:
        """Whether a number is missing, and nothing under way still uses the epoch."""
        return self._misses_sequence and not self.in_flight

    def batches(self) -> list[Batch]:
        """Returns all batches that are not done."""
        still_open = () if self.open is None else (self.open,)
        return [*self.in_flight, *self._returned, *self.waiting, *still_open]

    def close_open(self) -> None:
        """Closes the open batch, which is full or old enough."""
        if self.open is not None:
            self.waiting.append(self.open)
            self.open = None

    def take(self, identity: Identity) -> Batch:
        """Returns the next batch, numbered unless the identity is NOBODY; there must be one, and no stop."""
        batch = self.waiting.popleft()
        self._taken += 1
        batch.order = batch.order or (self._taken,)
        if identity.producer_id != NOBODY.producer_id and batch.sequence == NO_SEQUENCE:
            if identity != self._identity and not self.in_flight:
                self._identity, self._next_sequence = identity, 0
            batch.identity, batch.sequence = self._identity, self._next_sequence
            self._next_sequence = (self._next_sequence + batch.count) & MAX_SEQUENCE
        self.in_flight.append(batch)
        return batch

    def is_first(self, batch: Batch) -> bool:
        """Returns whether every batch before it is in the log or given up."""
        return not self._returned and bool(self.in_flight) and self.in_flight[0] is batch

    def acknowledged(self, batch: Batch) -> None:
        """Removes a batch that is in the log."""
        self.in_flight.remove(batch)
        self._settle()

    def returned(self, batch: Batch) -> None:
        """Queues a batch that is to be sent again."""
        self.in_flight.remove(batch)
        self._returned.append(batch)
        self._settle()

    def split(self, batch: Batch, parts: tuple[Batch, ...]) -> None:
        """Queues these in place of the batch, under its numbers."""
        self.in_flight.remove(batch)
        self._returned += parts
        self._settle()

    def given_up(self, batch: Batch) -> None:
        """Removes a batch that will not be sent any more, wherever it is here."""
        for place in (self.in_flight, self.waiting, self._returned):
            if batch in place:
                place.remove(batch)
        if self.open is batch:
            self.open = None
        if batch.sequence != NO_SEQUENCE:
            self._misses_sequence = True
        self._settle()

    def renumber(self) -> list[Batch]:
        """Drops the numbers, once `needs_epoch`; returns batches that may be in the log, and so can't get others."""
        lost = [batch for batch in self.waiting if batch.may_be_appended]
        self.waiting = deque(batch for batch in self.waiting if not batch.may_be_appended)
        for batch in self.waiting:
            batch.identity, batch.sequence = NOBODY, NO_SEQUENCE
        self._identity, self._misses_sequence = NOBODY, False
        return lost

    def miss_sequence(self) -> None:
        """Notes that the broker does not know the numbers that came before."""
        self._misses_sequence = True

    def _settle(self) -> None:
        if self.in_flight or not self._returned:
            return
        self.waiting.extendleft(sorted(self._returned, key=lambda batch: batch.order, reverse=True))
        self._returned = []
