"""Clients that go on while the brokers below them are stopped and started: a producer, transactions and a group.

Any error that a producer reports ends its thread, and `finish` raises it. A member of a group goes on after errors that
are not fatal: a broker that has just started may not know of a topic yet, and a coordinator may still load its groups.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

WAIT_S = 120
PAUSE_S = 0.01
QUIET = {"log_level": 2}
PATIENT = {"transaction.timeout.ms": 600_000}  # a coordinator that moves aborts no transaction, however long it takes
GROUP = TRANSACTIONAL_ID = "rolling"


class Users(NamedTuple):
    """The settings of librdkafka by which each client logs in, where it has to.

    Attributes:
        writer: Who writes, by `TRANSACTIONAL_ID`, too.
        reader: Who reads, in `GROUP`.
    """

    writer: Mapping[str, str] = {}
    reader: Mapping[str, str] = {}


class Sent(NamedTuple):
    """A record, whose number occurs once; its offset is not always told to a producer that had to send it again."""

    partition: int
    number: int


class RollingLoad:
    """Writes to a topic with acks=all, reads it as a group, and writes transactions to another.

    Args:
        bootstrap: The addresses of all brokers.
        plain: The topic of records without transactions.
        transactional: The topic of transactions; every third is aborted.
        partitions: How many partitions both topics have.
        users: How the clients log in.
    """

    def __init__(
        self, bootstrap: str, plain: str, transactional: str, partitions: int, users: Users | None = None
    ) -> None:
        self.acknowledged: list[Sent] = []
        self.committed: list[int] = []
        self.consumed: set[Sent] = set()
        user = users or Users()
        self._writing = {"bootstrap.servers": bootstrap, **user.writer, **QUIET}
        self._reading = {"bootstrap.servers": bootstrap, **user.reader, **QUIET}
        self._plain = plain
        self._transactional = transactional
        self._partitions = partitions
        self._ends = threading.Event()
        self._written = threading.Event()
        self._gives_up = threading.Event()
        self._pool = ThreadPoolExecutor(3)
        self._writers: list[Future[None]] = []
        self._reader: Future[None]

    def __enter__(self) -> Self:
        """Starts the clients, and returns once each has done something."""
        self._writers = [self._pool.submit(self._produce), self._pool.submit(self._commit)]
        self._reader = self._pool.submit(self._consume)
        deadline = time.monotonic() + WAIT_S
        while not (self.acknowledged and self.committed and self.consumed):
            assert time.monotonic() < deadline, (len(self.acknowledged), self.committed, len(self.consumed))
            self.check()
            time.sleep(PAUSE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends the clients, while the brokers still run."""
        self._ends.set()
        self._gives_up.set()
        self._pool.shutdown()

    def check(self) -> None:
        """Raises what has ended a client."""
        for each in (*self._writers, self._reader):
            if each.done():
                each.result()

    def await_progress(self) -> None:
        """Waits until each client has done more than it has by now."""
        start = self._done()
        deadline = time.monotonic() + WAIT_S
        while still := {name: count for name, count in self._done().items() if count == start[name]}:
            assert time.monotonic() < deadline, f"clients do not go on: {still}"
            self.check()
            time.sleep(PAUSE_S)

    def finish(self) -> None:
        """Ends the clients, once the group has read everything that was acknowledged; raises their errors."""
        self._ends.set()
        try:
            for each in self._writers:
                each.result()
        finally:
            self._written.set()
        self._reader.result()

    def _done(self) -> Mapping[str, int]:
        """Returns how much each client has done."""
        clients: Mapping[str, Sized] = {
            "the producer": self.acknowledged,
            "the transactions": self.committed,
            "the group": self.consumed,
        }
        return {name: len(done) for name, done in clients.items()}

    def _produce(self) -> None:
        producer = Producer({**self._writing, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.acknowledged.append(_sent(message))
            else:
                failed.append(error)

        number = 0
        while not self._ends.is_set() and not failed:
            partition = number % self._partitions
            producer.produce(self._plain, b"%d" % number, partition=partition, on_delivery=delivered)
            producer.poll(PAUSE_S)
            number += 1
        assert producer.flush(WAIT_S) == 0
        if failed:
            raise KafkaException(failed[0])

    def _commit(self) -> None:
        producer = Producer({**self._writing, "transactional.id": TRANSACTIONAL_ID, **PATIENT})
        producer.init_transactions(WAIT_S)
        number = 0
        while not self._ends.is_set():
            producer.begin_transaction()
            for partition in range(self._partitions):
                producer.produce(self._transactional, b"%d" % number, partition=partition)
            if number % 3 == 1:
                assert producer.flush(WAIT_S) == 0  # librdkafka may fail to abort what it is about to begin
                producer.abort_transaction(WAIT_S)
            else:
                producer.commit_transaction(WAIT_S)
                self.committed.append(number)
            number += 1

    def _consume(self) -> None:
        settings = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({**self._reading, **settings})
        consumer.subscribe([self._plain])
        deadline = None
        while not self._gives_up.is_set() and not self._has_read_everything():
            if self._written.is_set():
                deadline = deadline or time.monotonic() + WAIT_S
                assert time.monotonic() < deadline, "the group does not read everything"
            messages = consumer.consume(500, 0.1)
            for message in messages:
                error = message.error()
                if error is None:
                    self.consumed.add(_sent(message))
                elif error.fatal():
                    raise KafkaException(error)
            if messages:
                _commit_offsets(consumer)
        consumer.close()

    def _has_read_everything(self) -> bool:
        return self._written.is_set() and self.consumed.issuperset(self.acknowledged)


def read_topic(bootstrap: str, topic: str, partitions: int, login: Mapping[str, str] | None = None) -> Iterator[Sent]:
    """Yields all committed records of a topic, read by who logs in by these settings."""
    isolated = {"isolation.level": "read_committed", "enable.partition.eof": True}
    settings = {"group.id": GROUP, "enable.auto.commit": False, **isolated, **(login or {})}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings, **QUIET})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    open_partitions, deadline = set(range(partitions)), time.monotonic() + WAIT_S
    while open_partitions:
        assert time.monotonic() < deadline, f"{topic}: no end of partitions {open_partitions}"
        for message in consumer.consume(500, 0.1):
            error = message.error()
            if error is None:
                yield _sent(message)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - public under this name
                open_partitions.discard(message.partition())
            else:
                raise KafkaException(error)
    consumer.close()


def _commit_offsets(consumer: Consumer) -> None:
    """Commits what was read; after an error that is not fatal the next commit does."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].fatal():
            raise


def _sent(message: Message) -> Sent:
    partition, value = message.partition(), message.value()
    assert partition is not None
    assert value is not None
    return Sent(partition, int(value))
