"""Holds records between the threads that send and the one that delivers: bounded, batched, in order.

One lock holds it all. A record costs one append to its batch's list; what happens once a batch costs more.

The batches of one partition keep their order, and have sequence numbers under which brokers take each of them once:

    open ──full, or old enough──► waiting ──take──► in flight ──acknowledged──► gone
                                     ▲                  │ to be sent again
                                     └──────────────────┘ once nothing is in flight any more

A batch that is to be sent again stops the partition until the batches behind it are answered too; then all go again in
their order, under the numbers that they had. Where a batch is given up, a number is missing: what follows it starts
from 0 under a new epoch, except for batches that may be in the log already, which are given up with it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from millrace.client.producer.batch import (
    MAX_SEQUENCE,
    NOBODY,
    RECORD_OVERHEAD_BYTES,
    Batch,
    Delivery,
    Identity,
    OnDelivery,
    headers_size_bytes,
)
from millrace.client.producer.ready_batch import ReadyBatch
from millrace.client.producer.settings import ProducerSettings
from millrace.clock import Clock
from millrace.errors import DeliveryTimeoutError, MillraceError, ProducerClosedError, QueueFullError
from millrace.records.batch import HEADER_BYTES, NO_SEQUENCE, BatchHeader
from millrace.records.record import Header


class PartitionQueue:
    """The batches of one partition: open, waiting, in flight or to be resent; the accumulator's lock guards them."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.name = topic, partition
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
        """Whether no new batch may be sent: batches are to be sent again first, or a new producer epoch must begin."""
        return bool(self._returned) or (self._misses_sequence and bool(self.in_flight))

    @property
    def needs_epoch(self) -> bool:
        """Whether a new producer epoch is needed: sequence numbers are missing, and no batch is in flight."""
        return self._misses_sequence and not self.in_flight

    def batches(self) -> list[Batch]:
        """Returns all batches that are neither acknowledged nor given up."""
        still_open = () if self.open is None else (self.open,)
        return [*self.in_flight, *self._returned, *self.waiting, *still_open]

    def close_open(self) -> None:
        """Closes the open batch (it is full or old enough), so that it can be sent."""
        if self.open is not None:
            self.waiting.append(self.open)
            self.open = None

    def take(self, identity: Identity) -> Batch:
        """Moves the next waiting batch into flight (there must be one); numbers it unless `identity` is NOBODY."""
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
        """Returns whether all batches before this one, which is in flight, are in the log or given up."""
        return not self._returned and bool(self.in_flight) and self.in_flight[0] is batch

    def acknowledged(self, batch: Batch) -> None:
        """Removes an acknowledged batch from those in flight."""
        self.in_flight.remove(batch)
        self._settle()

    def returned(self, batch: Batch) -> None:
        """Takes a batch out of those in flight, to be sent again before the waiting batches."""
        self.in_flight.remove(batch)
        self._returned.append(batch)
        self._settle()

    def split(self, batch: Batch, parts: tuple[Batch, ...]) -> None:
        """Replaces a batch in flight by the parts it was split into, to be sent again with its sequence numbers."""
        self.in_flight.remove(batch)
        self._returned += parts
        self._settle()

    def given_up(self, batch: Batch) -> None:
        """Removes a batch that is not sent any more; if it had sequence numbers, the broker lacks them from now on."""
        for place in (self.in_flight, self.waiting, self._returned):
            if batch in place:
                place.remove(batch)
        if self.open is batch:
            self.open = None
        if batch.sequence != NO_SEQUENCE:
            self._misses_sequence = True
        self._settle()

    def give_up_waiting(self, until_s: float) -> list[Batch]:
        """Removes and returns the waiting batches whose deadline is not after this monotonic time."""
        late = [batch for batch in self.waiting if batch.deadline_s <= until_s]
        for batch in late:
            self.given_up(batch)
        return late

    def hold_back(self, retry_at_s: float, reason: str) -> None:
        """Keeps the waiting batches until this monotonic time; the reason is what they are told if it gets too late."""
        self.retry_at_s = retry_at_s
        for batch in self.waiting:
            batch.last_error = reason

    def renumber(self) -> list[Batch]:
        """Drops the waiting batches' sequence numbers, for a new epoch; removes and returns those that must keep them.

        The returned batches may be in the log already: under other numbers a broker would append them twice.
        """
        lost = [batch for batch in self.waiting if batch.may_be_appended]
        self.waiting = deque(batch for batch in self.waiting if not batch.may_be_appended)
        for batch in self.waiting:
            batch.identity, batch.sequence = NOBODY, NO_SEQUENCE
        self._identity, self._misses_sequence = NOBODY, False
        return lost

    def miss_sequence(self) -> None:
        """Marks that the broker lacks sequence numbers before those in flight, so that a new epoch is needed."""
        self._misses_sequence = True

    def _settle(self) -> None:
        if self.in_flight or not self._returned:
            return
        self.waiting.extendleft(sorted(self._returned, key=lambda batch: batch.order, reverse=True))
        self._returned = []


CALLBACKS_DONT_WAIT = "a callback can't wait for room, which the producer's own threads make"


class Accumulator:
    """The buffer of the producer: the batches of every partition, filled by `append`.

    `wake` tells the sender that a batch can be sent; `on_full` tells the partitioner the topic of a full one.
    """

    def __init__(
        self, settings: ProducerSettings, wake: Callable[[], None], on_full: Callable[[str], object], clock: Clock
    ) -> None:
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.queues: dict[tuple[str, int], PartitionQueue] = {}
        self.active: dict[PartitionQueue, None] = {}
        self.refusal: MillraceError | None = None
        self.record_count = 0
        self.size_bytes = 0
        self.hurried = 0
        self.finishing: set[Batch] = set()  # out of their queues, while their callbacks are called
        self.deliverer: threading.Thread | None = None  # makes room, and so can't wait for it
        self._wake = wake
        self._on_full = on_full
        self._clock = clock
        self._now_ns = clock.now_ns
        self._now_s = clock.monotonic_s
        self._linger_s = 0.0 if settings.is_sync else settings.queue_time / 1000
        self._delivery_s = settings.delivery_timeout_ms / 1000
        self._batch_records = settings.batch_size
        self._batch_bytes = settings.batch_bytes
        self._max_records = settings.queue_size
        self._max_bytes = settings.buffer_memory
        self._enqueue_timeout_ms = settings.queue_enqueue_timeout_ms

    def append(  # noqa: PLR0917 -- called once a record: by position is cheapest
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        key: bytes | None,
        headers: tuple[Header, ...],
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> Delivery:
        """Adds a record to its partition's batch; raises ProducerClosedError, or QueueFullError for lack of room."""
        size_bytes = RECORD_OVERHEAD_BYTES
        if value is not None:
            size_bytes += len(value)
        if key is not None:
            size_bytes += len(key)
        if headers:
            size_bytes += headers_size_bytes(headers)
        if timestamp_ms is None:
            timestamp_ms = self._now_ns() // 1_000_000
        with self.lock:
            if self.refusal is not None or self.record_count >= self._max_records or self.size_bytes >= self._max_bytes:
                self._await_room()
            queue = self.queues.get((topic, partition))
            if queue is None:
                queue = self.queues[topic, partition] = PartitionQueue(topic, partition)
            batch = queue.open
            if (
                batch is None
                or batch.size_bytes + size_bytes > self._batch_bytes
                or len(batch.records) >= self._batch_records
            ):
                batch = self._new_batch(queue, timestamp_ms)
            records = batch.records
            index = len(records)
            records.append((index, timestamp_ms - batch.base_timestamp_ms, key, value, headers))
            batch.size_bytes += size_bytes
            self.size_bytes += size_bytes
            self.record_count += 1
            if on_delivery is not None:
                batch.callbacks.append((index, on_delivery))
        return Delivery(batch, index)

    def append_batch(
        self, topic: str, partition: int, header: BatchHeader, data: bytes, on_delivery: OnDelivery | None
    ) -> Delivery:
        """Adds a ready batch behind all that its partition has; raises as `append` does."""
        with self.lock:
            if self.refusal is not None or self.record_count >= self._max_records or self.size_bytes >= self._max_bytes:
                self._await_room()
            queue = self.queues.get((topic, partition))
            if queue is None:
                queue = self.queues[topic, partition] = PartitionQueue(topic, partition)
            now_s = self._now_s()
            batch = ReadyBatch(
                topic=topic,
                partition=partition,
                base_timestamp_ms=header.base_timestamp,
                ready_s=now_s,
                deadline_s=now_s + self._delivery_s,
                clock=self._clock,
                record_count=header.record_count,
                size_bytes=len(data),
                callbacks=[] if on_delivery is None else [(0, on_delivery)],
                header=header,
                _body=memoryview(data)[HEADER_BYTES:],
            )
            queue.close_open()
            queue.waiting.append(batch)
            self.size_bytes += batch.size_bytes
            self.record_count += batch.record_count
            self.active[queue] = None
            self._wake()
        return Delivery(batch, 0)

    def refuse(self, error: MillraceError) -> None:
        """Makes `append` raise this error from now on, also in threads that wait for room; a closed one stays so."""
        with self.lock:
            if not isinstance(self.refusal, ProducerClosedError):
                self.refusal = error
            self.changed.notify_all()

    def admit(self) -> None:
        """Lets `append` take records again after `refuse`; a closed one stays closed."""
        with self.lock:
            if not isinstance(self.refusal, ProducerClosedError):
                self.refusal = None

    def release(self, batch: Batch) -> None:
        """Frees the room of a batch that is done, and wakes threads that wait for it; called with the lock held."""
        batch.release()
        self.finishing.discard(batch)
        self.record_count -= batch.count
        self.size_bytes -= batch.size_bytes
        self.changed.notify_all()

    def flush(self, timeout_s: float | None) -> None:
        """Waits until all records are reported on; raises DeliveryTimeoutError, which says how many are not."""
        deadline = None if timeout_s is None else self._now_s() + timeout_s
        with self.lock:
            self.hurried += 1
            try:
                self._wake()
                is_callback = threading.current_thread() is self.deliverer
                finishing = () if is_callback else self.finishing
                for batch in [*finishing, *[batch for queue in self.active for batch in queue.batches()]]:
                    while not batch.is_released:
                        left_s = None if deadline is None else deadline - self._now_s()
                        if left_s is not None and left_s <= 0:
                            raise DeliveryTimeoutError(f"{self.record_count} records are not acknowledged yet")
                        self.changed.wait(left_s)
            finally:
                self.hurried -= 1

    def abandon(self) -> None:
        """Makes new locks in a forked child, since threads that only the parent has may hold the old ones for ever."""
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.refusal = ProducerClosedError("the producer was made before a fork, by the parent: make one after it")
        self.active.clear()
        self.finishing.clear()

    def _await_room(self) -> None:
        deadline = self._now_s() + self._enqueue_timeout_ms / 1000
        while self.refusal is None and (self.record_count >= self._max_records or self.size_bytes >= self._max_bytes):
            left_s = deadline - self._now_s() if self._enqueue_timeout_ms >= 0 else None
            is_callback = threading.current_thread() is self.deliverer
            if is_callback or (left_s is not None and left_s <= 0):
                raise QueueFullError(
                    f"{self.record_count} records of {self.size_bytes} bytes wait; "
                    + (CALLBACKS_DONT_WAIT if is_callback else f"no room came within {self._enqueue_timeout_ms} ms")
                )
            self.hurried += 1
            self._wake()
            self.changed.wait(left_s)
            self.hurried -= 1
        if self.refusal is not None:
            raise self.refusal

    def _new_batch(self, queue: PartitionQueue, timestamp_ms: int) -> Batch:
        if queue.open is not None:
            queue.close_open()
            self._on_full(queue.topic)
        now_s = self._now_s()
        batch = queue.open = Batch(
            topic=queue.topic,
            partition=queue.partition,
            base_timestamp_ms=timestamp_ms,
            ready_s=now_s + self._linger_s,
            deadline_s=now_s + self._delivery_s,
            clock=self._clock,
        )
        self.active[queue] = None
        self._wake()
        return batch
