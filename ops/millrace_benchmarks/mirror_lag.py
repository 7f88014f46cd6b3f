"""The lag of a mirror under a steady load: from sending a record until a reader at the target has it.

One process sends and reads, by librdkafka, so that both times are of one clock. A record carries the time of its
sending, and the reader sees committed records only.
"""

from __future__ import annotations

import struct
import time
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple

from millrace.errors import ClientError, SetupError
from millrace.extras import install_command

if TYPE_CHECKING:
    from confluent_kafka import Consumer

SENT = struct.Struct(">q")
FIRST_OFFSET = 0
POLL_TIMEOUT_S = 0.5
PATIENCE_S = 60.0
SENDER = {"acks": "all", "linger.ms": 5, "log_level": 3}
READER = {
    "group.id": "lag",
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 100,
    "log_level": 3,
}


class SteadyLoad(NamedTuple):
    """How many records of which size come in a second, for how long, after a time that does not count."""

    records_per_s: int = 1000
    size_bytes: int = 1000
    warm_up_s: float = 10.0
    seconds: float = 30.0


STEADY = SteadyLoad()


class Mirrored(NamedTuple):
    """A topic and where it is mirrored: the addresses of both clusters, and what it is called in each."""

    source: str
    topic: str
    target: str
    name_there: str
    partitions: int


def lags(places: Mirrored, load: SteadyLoad) -> list[float]:
    """Returns the seconds of each record of a topic until it is read of the mirrored one.

    Raises ClientError where the last one does not come within a minute.
    """
    try:
        from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: PLC0415  # an extra
    except ImportError:
        raise SetupError(f"this benchmark needs confluent-kafka: {install_command('demo')}") from None
    reader = _Reader(Consumer({"bootstrap.servers": places.target, **READER}), load)
    reader.consumer.assign([TopicPartition(places.name_there, one, FIRST_OFFSET) for one in range(places.partitions)])
    producer = Producer({"bootstrap.servers": places.source, **SENDER})
    reader.start()
    filling = bytes(load.size_bytes - SENT.size)
    begin = time.perf_counter()
    for number in range(reader.wanted):
        time.sleep(max(begin + number / load.records_per_s - time.perf_counter(), 0))
        value = SENT.pack(time.perf_counter_ns()) + filling
        producer.produce(places.topic, value, partition=number % places.partitions)
        producer.poll(0)
    producer.flush(PATIENCE_S)
    return reader.seconds()


class _Reader(Thread):
    """Reads the mirrored topic, and notes how long each record was under way."""

    def __init__(self, consumer: Consumer, load: SteadyLoad) -> None:
        super().__init__(name="reader", daemon=True)
        self.consumer = consumer
        self.wanted = int(load.records_per_s * (load.warm_up_s + load.seconds))
        self._uncounted = int(load.records_per_s * load.warm_up_s)
        self._found: list[tuple[int, int]] = []  # sent, and read, in nanoseconds
        self._has_all = Event()
        self._is_given_up = Event()

    def run(self) -> None:
        """Reads until all has come, or `seconds` has given up."""
        while len(self._found) < self.wanted and not self._is_given_up.is_set():
            # One by one: `consume` would hold records back until it has as many as it may return.
            message = self.consumer.poll(POLL_TIMEOUT_S)
            now_ns = time.perf_counter_ns()
            if message is not None and message.error() is None:
                self._found.append((SENT.unpack_from(message.value() or b"")[0], now_ns))
        self.consumer.close()
        self._has_all.set()

    def seconds(self) -> list[float]:
        """Returns the seconds of each record that counts, once all have come."""
        has_all = self._has_all.wait(PATIENCE_S)
        self._is_given_up.set()
        self.join()
        if not has_all:
            raise ClientError(f"{len(self._found)} of {self.wanted} records have come")
        return [(read_ns - sent_ns) / 1e9 for sent_ns, read_ns in sorted(self._found)[self._uncounted :]]
