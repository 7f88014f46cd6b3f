"""The thread that delivers: takes batches that are ready, sends them to their leaders, acts on the answers.

    ready batches ──► one request per leader, a batch per partition in it ──► up to `max.in.flight` requests a leader
    answer        ──► the records' reports; or again after `retry.backoff.ms`; or given up
    lost link     ──► all that was on it again; with idempotence, brokers drop what they have already

Batches of one partition keep their order (`producer.accumulator`). Only connecting and asking for metadata block until
the broker answers.
"""

from __future__ import annotations

import logging
import math
import selectors
import socket
import threading
from collections.abc import Callable
from time import sleep

from millrace.addresses import Address
from millrace.client.cluster import Cluster
from millrace.client.connection import asking
from millrace.client.producer.accumulator import Accumulator, PartitionQueue
from millrace.client.producer.batch import NOBODY, Batch, Identity, report_of
from millrace.client.producer.link import ErrorAction, Link, Produced, action_for, error_of, is_for_good
from millrace.client.producer.routes import Routes
from millrace.client.producer.settings import ProducerSettings
from millrace.client.producer.transactions import Transactions, pause_s
from millrace.clock import Clock
from millrace.errors import (
    AnswerLostError,
    DeliveryTimeoutError,
    ErrorCode,
    MalformedRequestError,
    MillraceError,
    ProducerClosedError,
)
from millrace.wire.messages import INIT_PRODUCER_ID

logger = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 8 << 20
IDLE_S = 60.0
FIRST_LOOK_PAUSE_S = 0.1
LAST_LOOK_PAUSE_S = 5.0
MAX_EPOCH = 2**15 - 1

Posted = list[tuple[PartitionQueue, Batch]]


class Sender:
    """The thread that sends batches to leaders and handles the responses, from the constructor to `stop`."""

    def __init__(
        self, settings: ProducerSettings, routes: Routes, on_full: Callable[[str], object], clock: Clock,
        coordinators: Cluster | None = None,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._routes = routes
        self._clock = clock
        self._now_s = clock.monotonic_s
        self.accumulator = Accumulator(settings, self.wake, on_full, clock)
        self.transactions = (
            None if coordinators is None else Transactions(settings, coordinators, self.accumulator, clock)
        )
        self._links: dict[Address, Link[Posted]] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._is_woken = False
        self._is_stopping = False
        self._identity: Identity | None = (
            None if settings.enable_idempotence and settings.required_acks == -1 else NOBODY
        )
        self._stale: set[str] = set()
        self._refresh_at_s = 0.0
        self._look_at_s, self._look_pause_s = math.inf, 0.0
        self._has_news = False
        self.thread = threading.Thread(target=self._run, name="millrace-producer", daemon=True)
        self.accumulator.deliverer = self.thread
        self.thread.start()

    @property
    def _dropping(self) -> MillraceError | None:
        return None if self.transactions is None else self.transactions.dropping

    def wake(self) -> None:
        """Wakes the thread to look for batches to send; may be called from any thread."""
        if self._is_woken or threading.current_thread() is self.thread:
            return
        self._is_woken = True
        try:
            self._wake_writer.send(b"!")
        except OSError:
            return  # full, so that it wakes anyway; or closed, at its end

    def refresh(self) -> None:
        """Makes the thread ask for metadata now and a few times later, as brokers may learn of a change late."""
        with self.accumulator.lock:
            self._look_at_s, self._look_pause_s = 0.0, FIRST_LOOK_PAUSE_S
        self.wake()

    def stop(self) -> None:
        """Ends the thread; records that are not acknowledged yet get reports with ProducerClosedError."""
        self._is_stopping = True
        self._is_woken = False
        self.wake()
        if threading.current_thread() is not self.thread:
            self.thread.join()

    def abandon(self) -> None:
        """Closes the sockets in a forked child, which has no sender thread; the parent's stay open."""
        self.accumulator.abandon()
        if self.transactions is not None:
            self.transactions.abandon()
        for link in self._links.values():
            link.close()
        self._close()

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                try:
                    self._turn()
                except Exception:  # one fault must not leave the other records without a report
                    logger.exception("the producer goes on after an internal error")
                    sleep(self._settings.retry_backoff_ms / 1000)
        finally:
            self._end()

    def _turn(self) -> None:
        now_s = self._now_s()
        self._refresh_stale(now_s)
        ready, wake_at_s = self._ready(now_s)
        if self.transactions is not None:
            ready = self._in_transaction(self.transactions, ready)
        for address, queues in ready.items():
            self._send_to(address, queues)
        for link in list(self._links.values()):
            if link.waiting:
                wake_at_s = min(wake_at_s, link.waiting[0].deadline_s)
        looks_again = self._has_news  # what could not be sent is to be looked at with its new times
        self._has_news = False
        self._wait(0.0 if looks_again else max(wake_at_s - self._now_s(), 0.0))

    def _wait(self, timeout_s: float) -> None:
        for key, events in self._selector.select(timeout_s):
            if key.fileobj is self._wake_reader:
                self._wake_reader.recv(4096)
                self._is_woken = False  # after the read: a later wake writes again, an earlier one is seen next turn
                continue
            link: Link[Posted] = key.data
            try:
                for posted, answers in link.advance(events):
                    self._answered(posted, answers)
                self._watch(link)
            except (AnswerLostError, MalformedRequestError) as error:
                self._lose(link, error)
        now_s = self._now_s()
        for link in list(self._links.values()):
            if link.waiting and link.waiting[0].deadline_s <= now_s:
                waited_ms = self._settings.request_timeout_ms
                self._lose(link, AnswerLostError(f"the broker at {link.address} did not answer in {waited_ms} ms"))

    def _ready(self, now_s: float) -> tuple[dict[Address, list[PartitionQueue]], float]:
        """Returns the partitions with a batch to send, by leader, and the monotonic time (s) at which to look again."""
        ready: dict[Address, list[PartitionQueue]] = {}
        failed: list[tuple[Batch, MillraceError]] = []
        wake_at_s = now_s + IDLE_S
        accumulator = self.accumulator
        with accumulator.lock:
            for queue in list(accumulator.active):
                failed += self._prepare(queue, now_s)
                if queue.is_idle:
                    del accumulator.active[queue]
                    continue
                if queue.open is not None:
                    wake_at_s = min(wake_at_s, queue.open.ready_s)
                if queue.waiting and not queue.is_stopped:
                    wake_at_s = min(wake_at_s, queue.waiting[0].deadline_s)
                    leader = self._leader_of(queue)
                    if queue.retry_at_s > now_s:
                        wake_at_s = min(wake_at_s, queue.retry_at_s)
                    elif leader is not None:
                        ready.setdefault(leader, []).append(queue)
            accumulator.finishing.update(batch for batch, _ in failed)
        for batch, error in failed:
            self._finish(batch, error)
        wake_at_s = min(wake_at_s, self._look_at_s)
        return ready, wake_at_s if not self._stale else min(wake_at_s, max(self._refresh_at_s, now_s))

    def _prepare(self, queue: PartitionQueue, now_s: float) -> list[tuple[Batch, MillraceError]]:
        """Closes a partition's due batch and begins a needed epoch; returns batches to give up, each with its error."""
        if queue.open is not None and (self.accumulator.hurried or queue.open.ready_s <= now_s or self._dropping):
            queue.close_open()
        failed = self._given_up(queue, now_s)
        return failed + self._with_next_epoch(queue) if queue.needs_epoch else failed

    def _in_transaction(
        self, transactions: Transactions, ready: dict[Address, list[PartitionQueue]]
    ) -> dict[Address, list[PartitionQueue]]:
        """Adds the ready partitions to the transaction, and returns those that belong to it."""
        missing = transactions.missing([queue.name for queues in ready.values() for queue in queues])
        try:
            transactions.add(missing)
        except MillraceError as error:
            self._has_news = True
            retry_at_s = self._now_s() + transactions.pause_s()
            with self.accumulator.lock:
                for name in missing:
                    self.accumulator.queues[name].hold_back(retry_at_s, str(error))
            left = {address: [one for one in queues if one.name not in missing] for address, queues in ready.items()}
            return {address: queues for address, queues in left.items() if queues}
        return ready

    def _leader_of(self, queue: PartitionQueue) -> Address | None:
        leader = self._routes.leader(queue.topic, queue.partition)
        if leader is None:
            self._stale.add(queue.topic)
        return leader

    def _given_up(self, queue: PartitionQueue, now_s: float) -> list[tuple[Batch, MillraceError]]:
        dropping = self._dropping
        if dropping is not None:
            return [(batch, dropping) for batch in queue.give_up_waiting(math.inf)]
        waited_ms = self._settings.delivery_timeout_ms
        return [
            (batch, DeliveryTimeoutError(f"{batch.name}: not acknowledged within {waited_ms} ms: {batch.last_error}"))
            for batch in queue.give_up_waiting(now_s)
        ]

    def _with_next_epoch(self, queue: PartitionQueue) -> list[tuple[Batch, MillraceError]]:
        identity = self._identity
        if identity is not None and identity != NOBODY:
            is_last = identity.epoch >= MAX_EPOCH
            self._identity = None if is_last else Identity(identity.producer_id, identity.epoch + 1)
        return [
            (
                batch,
                AnswerLostError(f"{batch.name}: it is not known whether the batch was appended: {batch.last_error}"),
            )
            for batch in queue.renumber()
        ]

    def _send_to(self, address: Address, queues: list[PartitionQueue]) -> None:
        try:
            identity = self._current_identity()
            link = self._link_to(address)
            link.check_codec(self._settings.codec)
        except MillraceError as error:
            if not is_for_good(error):
                self._hold_back(queues, error)
                return
            for queue in queues:
                for batch in tuple(queue.waiting):
                    self._give_up(queue, batch, error)
            return
        if link.is_ending(self._now_s()):
            return  # what is on its way is answered first; that answer wakes this thread
        while queues and len(link.waiting) < self._settings.max_in_flight and not link.has_unwritten:
            posted = self._take(queues, identity)
            try:
                self._post(link, posted)
            except AnswerLostError as error:
                self._lose(link, error, posted)
                return
            queues = [queue for queue in queues if queue.waiting and not queue.is_stopped]

    def _take(self, queues: list[PartitionQueue], identity: Identity) -> Posted:
        posted: Posted = []
        size_bytes = 0
        with self.accumulator.lock:
            for queue in queues:
                if posted and size_bytes + queue.waiting[0].size_bytes > REQUEST_BYTES_MAX:
                    break
                batch = queue.take(identity)
                size_bytes += batch.size_bytes
                posted.append((queue, batch))
                self.accumulator.active[queue] = self.accumulator.active.pop(queue, None)  # the others come first now
        return posted

    def _post(self, link: Link[Posted], posted: Posted) -> None:
        settings = self._settings
        encoded: list[tuple[str, int, bytes]] = []
        for queue, batch in list(posted):
            batch.attempts += 1
            try:
                encoded.append((queue.topic, queue.partition, batch.encode(settings.codec)))
            except Exception as error:  # noqa: BLE001 -- whatever a record can't be encoded for, its sender is told
                posted.remove((queue, batch))
                self._give_up(queue, batch, MillraceError(f"{batch.name}: a record can't be encoded: {error}"))
        if not encoded:
            return
        link.post(
            encoded,
            acks=settings.required_acks,
            timeout_ms=settings.request_timeout_ms,
            deadline_s=self._now_s() + settings.request_timeout_ms / 1000,
            context=posted,
        )
        self._watch(link)
        if not settings.required_acks:
            self._answered(posted, [Produced(queue.topic, queue.partition, 0, -1, -1, None) for queue, _ in posted])

    def _answered(self, posted: Posted, answers: list[Produced]) -> None:
        by_partition = {(queue.topic, queue.partition): (queue, batch) for queue, batch in posted}
        for answer in answers:
            found = by_partition.pop((answer.topic, answer.partition), None)
            if found is not None:
                self._settle(*found, answer)
        for queue, batch in by_partition.values():
            self._again(queue, batch, AnswerLostError(f"{batch.name}: the broker's answer leaves it out"))

    def _settle(self, queue: PartitionQueue, batch: Batch, answer: Produced) -> None:
        action = action_for(answer.error_code)
        if action is ErrorAction.DONE:
            with self.accumulator.lock:
                queue.acknowledged(batch)
                self.accumulator.finishing.add(batch)
            self._finish(batch, None, answer.base_offset, answer.log_append_time_ms)
            return
        error = error_of(answer, batch.subject)
        if action is ErrorAction.OUT_OF_LINE and batch.identity != NOBODY:
            self._out_of_line(queue, batch, error, forget=answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH)
        elif action is ErrorAction.TOO_LARGE and batch.may_be_split:
            self._split(queue, batch)
        elif action in (ErrorAction.AGAIN, ErrorAction.UNSURE):
            batch.may_be_appended |= action is ErrorAction.UNSURE
            self._again(queue, batch, error)
        else:
            self._give_up(queue, batch, error)

    def _out_of_line(self, queue: PartitionQueue, batch: Batch, error: MillraceError, *, forget: bool) -> None:
        """Handles a refused sequence number: sends the batch again, under a new epoch if it is the partition's first.

        A first batch that may have been appended, or is part of a transaction, is given up instead. With `forget` the
        producer id is given up, too.
        """
        if queue.is_first(batch):
            if batch.may_be_appended or self.transactions is not None:
                self._give_up(queue, batch, error)
                return
            logger.warning("%s goes on under a new epoch: %s", batch.name, error)
            with self.accumulator.lock:
                queue.miss_sequence()
            if forget:
                self._identity = None
        self._again(queue, batch, error)

    def _split(self, queue: PartitionQueue, batch: Batch) -> None:
        logger.info("%s: %d records are too large for one batch: split", batch.name, batch.count)
        self._has_news = True
        parts = batch.split(self._settings.codec)
        with self.accumulator.lock:
            queue.split(batch, parts)

    def _again(self, queue: PartitionQueue, batch: Batch, error: MillraceError) -> None:
        if batch.attempts > self._settings.retries:
            self._give_up(queue, batch, error)
            return
        longest_s = self._settings.retry_backoff_ms / 1000
        batch.last_error = str(error)
        self._has_news = True
        with self.accumulator.lock:
            queue.returned(batch)
            queue.retry_at_s = self._now_s() + (
                longest_s if self.transactions is None else pause_s(batch.attempts, longest_s)
            )
            self._stale.add(queue.topic)

    def _give_up(self, queue: PartitionQueue, batch: Batch, error: MillraceError) -> None:
        self._has_news = True
        with self.accumulator.lock:
            queue.given_up(batch)
            self.accumulator.finishing.add(batch)
        self._finish(batch, error)

    def _finish(
        self, batch: Batch, error: MillraceError | None, base_offset: int = -1, log_append_time_ms: int = -1
    ) -> None:
        if error is not None and self.transactions is not None:
            self._has_news = True
            self.transactions.given_up(batch, error)
        batch.finish(error, base_offset, log_append_time_ms)
        if error is not None:  # of a transaction its end tells the first error, so that not each batch need do so
            level = logging.WARNING if self.transactions is None else logging.DEBUG
            logger.log(level, "%d records for %s are not delivered: %s", batch.count, batch.name, error)
        for index, on_delivery in batch.callbacks:
            try:
                on_delivery(report_of(batch, index))
            except Exception:  # it is the application's; the callbacks of the other records are called all the same
                logger.exception("a callback of a delivery failed")
        with self.accumulator.lock:
            self.accumulator.release(batch)

    def _hold_back(self, queues: list[PartitionQueue], error: MillraceError) -> None:
        logger.debug("%d partitions wait: %s", len(queues), error)
        self._has_news = True
        with self.accumulator.lock:
            for queue in queues:
                queue.hold_back(self._now_s() + self._settings.retry_backoff_ms / 1000, str(error))
                self._stale.add(queue.topic)

    def _lose(self, link: Link[Posted], error: MillraceError, posting: Posted | None = None) -> None:
        self._forget(link)
        on_the_way = [waiting.context for waiting in link.waiting]
        if posting is not None and not any(posting is one for one in on_the_way):
            on_the_way.append(posting)
        for posted in on_the_way:
            for queue, batch in posted:
                batch.may_be_appended = True
                self._again(queue, batch, error)

    def _link_to(self, address: Address) -> Link[Posted]:
        link = self._links.get(address)
        if link is not None and link.is_ending(self._now_s()) and link.is_idle:
            self._forget(link)
            link = None
        return link or self._new_link(address)

    def _new_link(self, address: Address) -> Link[Posted]:
        link: Link[Posted] = Link(
            address,
            client_id=self._settings.client_id,
            timeout_s=self._settings.request_timeout_ms / 1000,
            clock=self._clock,
            security=self._settings.security,
            transactional_id=self._settings.transactional_id or None,
        )
        self._links[address] = link
        self._selector.register(link.socket, selectors.EVENT_READ, link)
        return link

    def _forget(self, link: Link[Posted]) -> None:
        if self._links.get(link.address) is link:
            del self._links[link.address]
            self._selector.unregister(link.socket)
            link.close()

    def _watch(self, link: Link[Posted]) -> None:
        events = link.events
        if self._links.get(link.address) is link and self._selector.get_key(link.socket).events != events:
            self._selector.modify(link.socket, events, link)

    def _current_identity(self) -> Identity:
        if self.transactions is not None:
            return self.transactions.identity
        if self._identity is not None:
            return self._identity
        ask = INIT_PRODUCER_ID.ask({"transactional_id": None, "transaction_timeout": 0})
        with self._routes.lock:
            answer = self._routes.cluster.on_any(asking(ask, "producer id"))
        self._identity = Identity(int(answer.producer_id), int(answer.producer_epoch))
        return self._identity

    def _refresh_stale(self, now_s: float) -> None:
        with self.accumulator.lock:
            if self._routes.is_due(now_s) or self._looks_again(now_s):
                self._stale.update(topic for topic, _ in self.accumulator.queues)
            stale = tuple(self._stale)
        if not stale or now_s < self._refresh_at_s:
            return
        self._refresh_at_s = now_s + self._settings.retry_backoff_ms / 1000
        try:
            self._routes.refresh(stale)
        except MillraceError as error:
            logger.debug("no metadata: %s", error)
            return
        with self.accumulator.lock:
            self._stale.difference_update(stale)
        for link in list(self._links.values()):
            if link.address not in self._routes.brokers and not link.waiting:
                self._forget(link)  # a broker that left

    def _looks_again(self, now_s: float) -> bool:
        if now_s < self._look_at_s:
            return False
        is_last = self._look_pause_s > LAST_LOOK_PAUSE_S
        self._look_at_s = math.inf if is_last else now_s + self._look_pause_s
        self._look_pause_s *= 2
        return True

    def _end(self) -> None:
        error = ProducerClosedError("the producer was closed before the record was acknowledged")
        with self.accumulator.lock:
            self.accumulator.refusal = self.accumulator.refusal or ProducerClosedError("the producer is closed")
            left = [(queue, batch) for queue in self.accumulator.active for batch in queue.batches()]
        for queue, batch in left:
            self._give_up(queue, batch, error)
        for link in list(self._links.values()):
            self._forget(link)
        self._close()

    def _close(self) -> None:
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()
