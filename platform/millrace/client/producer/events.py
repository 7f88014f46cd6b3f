"""The pipeline of `producer.type=async` with an event handler or a callback handler: a queue, a thread, batches.

    send ──before_enqueue──► queue ──after_dequeuing_existing_data──► batch ──before_sending_data──► EventHandler.handle
         ◄─after_enqueue───┘   queue.size, queue.time, batch.size     ▲ last_batch_before_close

The default handler encodes the records and delivers them. Where no handler is configured at all, records do not pass
through here: they go to their batches at once.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from millrace.client.producer.accumulator import CALLBACKS_DONT_WAIT
from millrace.client.producer.batch import DeliveryReport, ProducerRecord
from millrace.client.producer.settings import ProducerSettings
from millrace.clock import Clock
from millrace.errors import DeliveryTimeoutError, MillraceError, ProducerClosedError, QueueFullError

logger = logging.getLogger(__name__)

Records = Sequence[ProducerRecord]
OnFailure = Callable[[Records, Exception], None]


class EventHandler(Protocol):
    """An application's own handler of the batches of an async producer, in place of delivery to brokers."""

    def handle(self, events: Records) -> None:
        """Handles the next batch of records; always called by the same thread.

        An exception raised here is logged and given to `CallbackHandler.on_failure`.
        """


class CallbackHandler:
    """Hooks into the async producer's queue, each of which does nothing here: derive and override what you need."""

    def before_enqueue(self, event: ProducerRecord) -> ProducerRecord | None:
        """Returns the record to queue instead of this one, or None to drop it; called by the thread that sends."""
        return event

    def after_enqueue(self, event: ProducerRecord, added: bool) -> None:
        """Tells the application whether the queue had room for a record (`added`); called by the thread that sends."""

    def after_dequeuing_existing_data(self, event: ProducerRecord | None) -> Records:
        """Returns the records to put into a batch for a queued one; called with None once the batch is complete."""
        return () if event is None else (event,)

    def before_sending_data(self, events: Records) -> Records:
        """Returns the records that the event handler gets instead of `events`, the next batch."""
        return events

    def last_batch_before_close(self) -> Records:
        """Returns records that the event handler is to get as its last batch, while the producer closes."""
        return ()

    def on_failure(self, events: Records, error: Exception) -> None:
        """Takes records that no broker accepted, or for which the event handler raised `error`."""

    def close(self) -> None:
        """Ends the hooks' work: the producer has closed, and calls no hook after this."""


class EventQueue:
    """A queue of at most `queue.size` records; its thread passes them in batches to an event handler until `close`."""

    def __init__(
        self,
        settings: ProducerSettings,
        callbacks: CallbackHandler,
        handler: EventHandler,
        deliverer: threading.Thread,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._callbacks = callbacks
        self._handler = handler
        self._clock = clock
        self._events: deque[ProducerRecord] = deque()
        self._handling = 0
        self._hurried = 0
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="millrace-producer-events", daemon=True)
        self._makers_of_room = (self._thread, deliverer)
        self._thread.start()

    def put(self, event: ProducerRecord) -> None:
        """Queues a record, or drops it if `before_enqueue` says so.

        Raises QueueFullError where no room comes in time.
        """
        wanted = self._callbacks.before_enqueue(event)
        if wanted is None:
            return
        try:
            self._put(wanted)
        except MillraceError:
            self._callbacks.after_enqueue(wanted, False)
            raise
        self._callbacks.after_enqueue(wanted, True)

    def flush(self, timeout_s: float | None) -> None:
        """Waits until all queued records have been handled; raises DeliveryTimeoutError after `timeout_s`."""
        with self._changed:
            self._hurried += 1
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: not self._events and not self._handling, timeout_s)
            self._hurried -= 1
        if not done:
            raise DeliveryTimeoutError(f"{len(self._events) + self._handling} records are not handled yet")

    def close(self, timeout_s: float | None) -> None:
        """Has the event handler take the queued records and `last_batch_before_close`, then ends the thread.

        Raises DeliveryTimeoutError, which says how many are not handled, once `timeout_s` has passed.
        """
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise DeliveryTimeoutError(f"{len(self._events) + self._handling} records are not handled yet")

    def _put(self, event: ProducerRecord) -> None:
        is_callback = threading.current_thread() in self._makers_of_room
        timeout_ms = 0 if is_callback else self._settings.queue_enqueue_timeout_ms
        with self._changed:
            has_room = self._changed.wait_for(
                lambda: len(self._events) < self._settings.queue_size or self._is_closed,
                None if timeout_ms < 0 else timeout_ms / 1000,
            )
            if self._is_closed:
                raise ProducerClosedError("the producer is closed")
            if not has_room:
                why = CALLBACKS_DONT_WAIT if is_callback else f"no room came within {timeout_ms} ms"
                raise QueueFullError(f"{len(self._events)} records wait; {why}")
            self._events.append(event)
            self._changed.notify_all()

    def _run(self) -> None:
        while self._gather():
            pass
        self._guarded(lambda: self._hand_over(list(self._callbacks.last_batch_before_close())))
        self._guarded(self._callbacks.close)

    def _gather(self) -> bool:
        """Waits for a batch, full or `queue.time` old, and has it handled; returns False after the last one."""
        batch: list[ProducerRecord] = []
        deadline_s: float | None = None
        while len(batch) < self._settings.batch_size:
            event = self._next(deadline_s)
            if event is None:
                break
            if deadline_s is None:
                deadline_s = self._clock.monotonic_s() + self._settings.queue_time / 1000
            batch += self._guarded(partial(self._callbacks.after_dequeuing_existing_data, event)) or ()
        batch += self._guarded(partial(self._callbacks.after_dequeuing_existing_data, None)) or ()
        self._hand_over(batch)
        with self._changed:
            self._handling = 0
            self._changed.notify_all()
            return bool(self._events) or not self._is_closed

    def _next(self, deadline_s: float | None) -> ProducerRecord | None:
        with self._changed:
            left_s = None if deadline_s is None else max(deadline_s - self._clock.monotonic_s(), 0)
            is_gathering = deadline_s is not None
            self._changed.wait_for(lambda: self._events or self._is_closed or (is_gathering and self._hurried), left_s)
            if not self._events:
                return None
            self._handling += 1
            self._changed.notify_all()
            return self._events.popleft()

    def _hand_over(self, batch: list[ProducerRecord]) -> None:
        if not batch:
            return
        try:
            batch = list(self._callbacks.before_sending_data(batch))
            if batch:
                self._handler.handle(batch)
        except Exception as error:
            logger.exception("%d records are not handled", len(batch))
            self._guarded(partial(self._callbacks.on_failure, batch, error))

    def _guarded(self, call: Callable[[], Records | None]) -> Records | None:
        """Returns what a hook of the application returns; logs an error that the hook raises, and returns None."""
        try:
            return call()
        except Exception:
            logger.exception("a callback of the producer failed")
            return None


class DeliveringHandler:
    """The default event handler, which sends records to brokers; `on_failure` gets the ones not accepted."""

    def __init__(self, deliver: Callable[[ProducerRecord, Callable[[DeliveryReport], None]], object]) -> None:
        self._deliver = deliver
        self.on_failure: OnFailure = CallbackHandler().on_failure

    def handle(self, events: Records) -> None:
        """Encodes each record and gives it to the producer's accumulator, to be sent."""
        for event in events:
            try:
                self._deliver(event, partial(self._reported, event))
            except Exception as error:  # noqa: BLE001 -- an encoder's own too
                logger.warning("a record for %s is not delivered: %s", event.topic, error)
                self.on_failure((event,), error)

    def _reported(self, event: ProducerRecord, report: DeliveryReport) -> None:
        if report.error is not None:
            self.on_failure((event,), report.error)
