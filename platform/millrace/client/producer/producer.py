"""`Producer`: sends records of any number of threads to their partitions' leaders, in batches."""

from __future__ import annotations

import atexit
import logging
import operator
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self, SupportsIndex, cast, overload

from millrace.client.groups import GroupMetadata, GroupOffset
from millrace.client.metadata import Partition
from millrace.client.producer.batch import HANDED_OVER, Delivery, OnDelivery, ProducerRecord
from millrace.client.producer.events import CallbackHandler, DeliveringHandler, EventHandler, EventQueue
from millrace.client.producer.plugins import BytesEncoder, Encoder, Partitioner, StickyPartitioner
from millrace.client.producer.ready_batch import checked_header
from millrace.client.producer.routes import BrokerWatch, Routes, check_partition
from millrace.client.producer.sender import Sender
from millrace.client.producer.settings import parse_settings, parse_zookeeper_security
from millrace.client.producer.transaction_errors import TransactionStateError
from millrace.client.producer.transactions import Transactions
from millrace.clock import Clock, SystemClock
from millrace.config import MAX_LONG
from millrace.errors import ClientError, InvalidConfigError, InvalidRecordError, MillraceError, ProducerClosedError
from millrace.records.batch import Buffer
from millrace.records.record import Header
from millrace.security.client_security import ClientSecurity

logger = logging.getLogger(__name__)

MAX_OPEN_PRODUCERS = 1_000  # each has a thread and sockets


class TooManyProducersError(ClientError):
    """This process has a thousand open producers, most likely because it does not close them."""


class Producer:
    """Sends records; a context manager that closes it. Any thread may use it.

        with Producer(broker_list="127.0.0.1:9092", producer_type="async") as producer:
            delivery = producer.send("events", b"hello", key=b"you")

    Properties are given as a mapping under their documented names, as keywords with `_` for `.`, or both. Raises
    InvalidConfigError for an unknown or invalid property; raises ZooKeeperError or BrokerUnreachableError; raises
    TooManyProducersError where this process has a thousand open ones.

    After a fork the child needs producers of its own: the parent's raise ProducerClosedError there.
    """

    def __init__(
        self,
        properties: Mapping[str, Any] | None = None,
        /,
        *,
        clock: Clock | None = None,
        security: ClientSecurity | None = None,
        **keywords: Any,
    ) -> None:
        self._clock = clock or SystemClock()
        settings, plugins = parse_settings(properties or {}, keywords)
        self._settings = settings = settings if security is None else replace(settings, security=security)
        self._zookeeper_security = parse_zookeeper_security(properties or {}, keywords)
        self._is_started = False
        self._is_sync = settings.is_sync
        self._encoder: Encoder = plugins.get("encoder") or BytesEncoder()
        self._key_encoder: Encoder = plugins.get("key.encoder") or BytesEncoder("key_encoder")
        self._encodes_value, self._encodes_key = "encoder" in plugins, "key.encoder" in plugins
        self._partitioner: Partitioner | None = plugins.get("partitioner")
        self._sticky = StickyPartitioner()
        handler: EventHandler | None = plugins.get("event.handler")
        callbacks: CallbackHandler | None = plugins.get("callback.handler")
        if settings.is_sync and (handler is not None or callbacks is not None):
            raise InvalidConfigError("event.handler and callback.handler need producer.type=async")
        if settings.transactional_id and (handler is not None or callbacks is not None):
            raise InvalidConfigError("event.handler and callback.handler are not for a producer with transactional.id")
        if len(_producers) >= MAX_OPEN_PRODUCERS:
            raise TooManyProducersError(f"{len(_producers)} producers of this process are open: close those not needed")
        self._closing = threading.Lock()
        self._is_closed = False
        self._watch = self._watched() if settings.zk_connect else None
        bootstrap = settings.broker_list if self._watch is None else self._watch.bootstrap
        self._routes = Routes(settings, bootstrap, self._clock)
        coordinators = self._routes.cluster_of(bootstrap) if settings.transactional_id else None
        self._sender = Sender(settings, self._routes, self._sticky.batch_is_full, self._clock, coordinators)
        self._transactions = self._sender.transactions
        self._counts = self._routes.partition_counts
        self._known: set[tuple[str, int]] = set()
        self._append = self._sender.accumulator.append
        self._events: EventQueue | None = None
        if handler is not None or callbacks is not None:
            self._events = self._event_queue(handler, callbacks or CallbackHandler())
        self._accept: Callable[..., Delivery] = self._deliver if self._events is None else self._hand_over
        self._is_started = True
        _producers.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @overload
    def send(
        self,
        what: str,
        /,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: tuple[Header, ...] = (),
        on_delivery: OnDelivery | None = None,
    ) -> Delivery: ...

    @overload
    def send(self, what: ProducerRecord, /, *, on_delivery: OnDelivery | None = None) -> Delivery: ...

    @overload
    def send(self, what: Iterable[ProducerRecord], /, *, on_delivery: OnDelivery | None = None) -> list[Delivery]: ...

    def send(
        self,
        what: str | ProducerRecord | Iterable[ProducerRecord],
        /,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: tuple[Header, ...] = (),
        on_delivery: OnDelivery | None = None,
    ) -> Delivery | list[Delivery]:
        """Sends a value to a topic, or a record, or many records.

        With `producer.type=sync` it returns once all are acknowledged, or raises the first error. `on_delivery` is
        called with each report by a thread of the producer, which it should not block.

        Raises QueueFullError if no room comes within `queue.enqueue.timeout.ms`, InvalidRecordError for a value or key
        that the encoder refuses, UnknownTopicError, ProducerClosedError.
        """
        if type(what) is str:
            delivery = self._accept(what, value, key, partition, timestamp_ms, headers, on_delivery)
        elif isinstance(what, ProducerRecord):
            delivery = self._accept(*cast(ProducerRecord, what), on_delivery)
        else:
            deliveries = [self._accept(*record, on_delivery) for record in cast(Iterable[ProducerRecord], what)]
            if self._is_sync:
                for each in deliveries:
                    each.result()
            return deliveries
        if self._is_sync:
            delivery.result()
        return delivery

    def send_batch(
        self, topic: str, partition: int, batch: Buffer, *, on_delivery: OnDelivery | None = None
    ) -> Delivery:
        """Sends a ready record batch (v2) as it is, in its order among what else is sent to the partition.

        Only what belongs to the producer and to the log is set in its header; records and codec stay. The report has
        the offset of its first record. A batch that the broker finds too large fails as a whole (RecordTooLargeError).

        Raises what `send` raises; before anything is sent RecordError for a damaged batch, a control batch, one that
        lacks some of its offsets, and one with the time of the append: `millrace.records.rebatch` mends these two.
        """
        if self._is_closed:
            self._refuse()
        if self._events is not None:
            raise InvalidConfigError("event.handler and callback.handler take records, not batches")
        data = bytes(batch)
        header = checked_header(topic, partition, data)
        partition = self._checked_partition(topic, partition)
        delivery = self._sender.accumulator.append_batch(topic, partition, header, data, on_delivery)
        if self._is_sync:
            delivery.result()
        return delivery

    def init_transactions(self) -> None:
        """Takes over `transactional.id`: fences its former producers, and ends what they left open; once, first of all.

        Raises TransactionTimeoutError after `max.block.ms`; it may be called again. Each of these calls raises
        TransactionStateError out of its turn, FatalTransactionError once the producer can't go on.
        """
        self._transactional().init()

    def begin_transaction(self) -> None:
        """Opens a transaction: what is sent from now on becomes visible by its commit, all together or not at all."""
        self._transactional().begin()

    def add_to_transaction(self, partitions: Iterable[Partition]) -> None:
        """Tells the coordinator at once to which partitions the transaction sends: one request, not one for each.

        What is not told is added with the first record for it. Raises TransactionFailedError where one is refused, or
        not taken within `max.block.ms`.
        """
        self._transactional().add_ahead(partitions)

    def send_offsets_to_transaction(
        self, offsets: Mapping[Partition, int | GroupOffset], group: GroupMetadata | str
    ) -> None:
        """Commits a group's offsets, each that of the next record to read, with the transaction (KIP-447).

        A group by its name alone is not asked whether a member still owns the partitions. Raises TransactionFailedError
        where the offsets are refused, or not taken within `max.block.ms`.
        """
        placed = {one: at if isinstance(at, GroupOffset) else GroupOffset(at, "") for one, at in offsets.items()}
        self._transactional().send_offsets(placed, GroupMetadata(group) if isinstance(group, str) else group)

    def commit_transaction(self) -> None:
        """Waits until the brokers have all records of the transaction, and commits it.

        Raises TransactionFailedError if a record or an offset was not taken: abort then. After TransactionTimeoutError
        it is not known whether the transaction is committed, until this is called again.
        """
        self._transactional().commit()

    def abort_transaction(self) -> None:
        """Drops the records of the transaction, also those that the brokers have.

        Raises TransactionTimeoutError after `max.block.ms`; it may be called again.
        """
        self._transactional().abort()

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begins a transaction and commits it at the end of the `with` block; after an error, aborts it and raises.

            with producer.transaction():
                producer.send("copies", record.value)
                producer.send_offsets_to_transaction({("events", 0): record.offset + 1}, "copier")

        After TransactionTimeoutError call `commit_transaction` or `abort_transaction` again, whichever it came from.
        """
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException:
            if self._transactional().may_be_aborted:
                self.abort_transaction()
            raise

    def flush(self, timeout_s: float | None = None) -> None:
        """Waits until all records sent before have their reports; raises DeliveryTimeoutError after the timeout."""
        deadline_s = None if timeout_s is None else self._clock.monotonic_s() + timeout_s
        if self._events is not None:
            self._events.flush(timeout_s)
        self._sender.accumulator.flush(None if deadline_s is None else max(deadline_s - self._clock.monotonic_s(), 0))

    def close(self, timeout_s: float | None = None) -> None:
        """Delivers what was sent, for up to `close.timeout.ms`, and ends; does nothing if it is closed.

        A transaction that is open is aborted.

        Raises DeliveryTimeoutError, which says how many records were not acknowledged; their reports have it, too.
        """
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
        self._accept = self._refuse
        _producers.discard(self)
        try:
            self._close_within(self._settings.close_timeout_ms / 1000 if timeout_s is None else timeout_s)
        finally:
            self._sender.stop()
            self._routes.close()
            if self._transactions is not None:
                self._transactions.disconnect()
            if self._watch is not None:
                self._watch.close()

    def partitions(self, topic: str) -> int:
        """Returns how many partitions a topic has; a missing topic is created if the cluster does that."""
        return self._routes.partition_count(topic)

    def _hand_over(  # noqa: PLR0917 -- called as `_deliver` is
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: tuple[Header, ...],
        on_delivery: OnDelivery | None,
    ) -> Delivery:
        if on_delivery is not None:
            raise InvalidConfigError("with an event handler or a callback handler, these hear of what happens")
        cast(EventQueue, self._events).put(ProducerRecord(topic, value, key, partition, timestamp_ms, headers))
        return HANDED_OVER

    def _deliver(  # noqa: PLR0917 -- once a record: by position is cheapest
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: tuple[Header, ...],
        on_delivery: OnDelivery | None,
    ) -> Delivery:
        original_key = key
        if self._encodes_value or (type(value) is not bytes and value is not None):
            value = None if value is None else self._encoder.encode(value)
        if key is not None and (self._encodes_key or type(key) is not bytes):
            key = self._key_encoder.encode(key)
        if headers:
            headers = checked_headers(headers)
        if timestamp_ms is not None:
            timestamp_ms = checked_timestamp(timestamp_ms)
        if partition is None:
            count = self._counts.get(topic) or self._routes.partition_count(topic)
            if self._partitioner is None:
                partition = self._sticky.choose(topic, key, count)
            else:
                partition = check_partition(topic, self._partitioner.partition(original_key, count), count)
        elif (topic, partition) not in self._known:
            partition = self._checked_partition(topic, partition)
        return self._append(topic, partition, value, key, headers, timestamp_ms, on_delivery)

    def _checked_partition(self, topic: str, partition: int) -> int:
        """Returns the partition as an int; raises InvalidConfigError for one that the topic does not have."""
        if (topic, partition) in self._known:
            return partition
        partition = check_partition(topic, partition, self._routes.partition_count(topic))
        self._known.add((topic, partition))
        return partition

    def _transactional(self) -> Transactions:
        """Returns the transactions of this producer; raises TransactionStateError, ProducerClosedError."""
        if self._transactions is None:
            raise TransactionStateError("the producer has no transactions: transactional.id is not set")
        if self._is_closed:
            self._refuse()
        return self._transactions

    def _refuse(self, *_: object) -> Delivery:
        raise self._sender.accumulator.refusal or ProducerClosedError("the producer is closed")

    def _close_within(self, timeout_s: float) -> None:
        deadline_s = self._clock.monotonic_s() + timeout_s
        if self._events is not None:
            self._events.close(timeout_s)
        self._sender.accumulator.refuse(ProducerClosedError("the producer is closed"))
        if self._transactions is not None:
            self._abort_within(self._transactions, max(deadline_s - self._clock.monotonic_s(), 0))
        self._sender.accumulator.flush(max(deadline_s - self._clock.monotonic_s(), 0))

    def _abort_within(self, transactions: Transactions, timeout_s: float) -> None:
        try:
            transactions.close(timeout_s)
        except MillraceError as error:
            logger.warning("an open transaction is left to be aborted by the coordinator: %s", error)

    def _event_queue(self, handler: EventHandler | None, callbacks: CallbackHandler) -> EventQueue:
        if handler is None:
            delivering = DeliveringHandler(lambda event, report: self._deliver(*event, report))
            delivering.on_failure = callbacks.on_failure
            handler = delivering
        return EventQueue(self._settings, callbacks, handler, self._sender.thread, self._clock)

    def _watched(self) -> BrokerWatch:
        settings = self._settings
        return BrokerWatch(
            settings.zk_connect,
            session_timeout_ms=settings.zk_sessiontimeout_ms,
            on_change=self._brokers_changed,
            clock=self._clock,
            protocol=settings.security.protocol,
            security=self._zookeeper_security,
        )

    def _brokers_changed(self, bootstrap: str) -> None:
        if self._is_started:  # the first news comes while the producer is being made from it
            self._routes.use_brokers(bootstrap)
            if self._transactions is not None:
                self._transactions.use_cluster(self._routes.cluster_of(bootstrap))
            self._sender.refresh()

    def _forked(self) -> None:
        """Closes the producer in a forked child, where its threads do not exist and its locks may stay held."""
        self._is_closed = True
        self._accept = self._refuse
        self._sender.abandon()
        self._routes.abandon()


def checked_headers(headers: Iterable[Header]) -> tuple[Header, ...]:
    """Returns the headers as a tuple; raises InvalidRecordError for one that is not (text, bytes or None)."""
    headers = tuple(headers)
    for header in headers:
        match header:
            case (str() as name, bytes() | None) if name.isascii() or _is_utf8(name):
                continue
        raise InvalidRecordError(f"{header!r} is no header: a name and bytes, or None")
    return headers


def checked_timestamp(timestamp_ms: SupportsIndex) -> int:
    """Returns a timestamp as an int; raises InvalidRecordError unless it is an integer from 0 to 2⁶³ - 1."""
    try:
        whole = operator.index(timestamp_ms)
    except TypeError:
        raise InvalidRecordError(f"timestamp_ms={timestamp_ms!r}: a whole number of milliseconds is needed") from None
    if not 0 <= whole <= MAX_LONG:
        raise InvalidRecordError(f"timestamp_ms={timestamp_ms}: a time lies between 0 and {MAX_LONG}")
    return whole


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_producers: set[Producer] = set()  # at most MAX_OPEN_PRODUCERS, also those that were dropped without `close`


def _flush_at_exit() -> None:
    """Closes all open producers at the interpreter's exit, which delivers their records."""
    for producer in list(_producers):
        try:
            producer.close()
        except MillraceError as error:
            logger.error("at the interpreter's end: %s", error)  # noqa: TRY400 -- the trace is this function's


def _refuse_in_child() -> None:
    for producer in list(_producers):
        producer._forked()  # noqa: SLF001
    _producers.clear()


atexit.register(_flush_at_exit)
os.register_at_fork(after_in_child=_refuse_in_child)
