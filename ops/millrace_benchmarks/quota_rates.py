"""How exactly a producer and a consumer are held to a quota: their rates from 20 s after they began.

A quota counts over 11 windows of a second each, so a client may begin with ten seconds' worth at once, and may do so
again when these have left the windows. The rate is that of whole turns of the windows. Requests are small beside the
quota: how far a client gets above it depends on the request that exceeds it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field

from confluent_kafka import Consumer, Producer, TopicPartition

from millrace.client.access import Quotas
from millrace.client.cluster import Cluster
from millrace.errors import ClientError
from millrace_benchmarks.harness import Samples
from millrace_benchmarks.librdkafka import PRODUCER, Client
from millrace_benchmarks.subjects import Subject

LIMITED = "limited"  # the client id that has quotas
VALUE_BYTES = 10_000
QUEUED = 100  # records that a producer holds
POLL_S = 0.1
SETTINGS = {
    "client.id": LIMITED, "batch.size": 50_000, "linger.ms": 5, "queue.buffering.max.messages": QUEUED,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class QuotaLoad:
    """A client's quota, the time before its rate is counted, the time that counts, and the burst it may begin with."""

    bytes_per_second: int = 4_000_000
    after_s: float = 20.0
    for_s: float = 22.0
    burst_s: float = 10.0

    @property
    def records(self) -> int:
        """More records than a client can have read when it ends."""
        return int(1.2 * self.bytes_per_second * (self.after_s + self.for_s + 2 * self.burst_s)) // VALUE_BYTES


QUOTA_LOAD = QuotaLoad()


@dataclass(slots=True)
class _Counted:
    """The bytes that a client has sent or read while its rate is counted."""

    load: QuotaLoad
    began_s: float = field(default_factory=time.monotonic)
    size_bytes: int = 0

    @property
    def is_over(self) -> bool:
        return self._elapsed_s >= self.load.after_s + self.load.for_s

    @property
    def deviation(self) -> float:
        """By how many percent the rate differs from the quota."""
        return abs(self.size_bytes / self.load.for_s / self.load.bytes_per_second - 1) * 100

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self.began_s

    def add(self, size_bytes: int) -> None:
        if self.load.after_s <= self._elapsed_s and not self.is_over:
            self.size_bytes += size_bytes


def deviations(subjects: Sequence[Subject], load: QuotaLoad) -> list[Samples]:
    """Returns for each broker by how many percent the rates of a producer and of a consumer differ from their quotas.

    All clients run at once, as they leave the machine idle.
    """
    for subject in subjects:
        _prepare(subject, load)
    with ThreadPoolExecutor(2 * len(subjects)) as threads:
        started = [(threads.submit(_produce, one, load), threads.submit(_consume, one, load)) for one in subjects]
        return [{"producer": produced.result(), "consumer": consumed.result()} for produced, consumed in started]


def _prepare(subject: Subject, load: QuotaLoad) -> None:
    limit = float(load.bytes_per_second)
    for topic in ("quota-produce", "quota-consume"):
        subject.create_topic(topic)
    with Client(PRODUCER, subject.client_settings | {"log_level": "3"}) as client:
        client.produce("quota-consume", bytes(VALUE_BYTES), VALUE_BYTES, load.records)
    with Cluster(subject.bootstrap) as cluster:
        Quotas(cluster).alter({"client-id": LIMITED}, {"producer_byte_rate": limit, "consumer_byte_rate": limit})


def _produce(subject: Subject, load: QuotaLoad) -> float:
    counted = _Counted(load)
    producer = Producer(subject.client_settings | SETTINGS)
    on_delivery = _delivery(counted)
    while not counted.is_over:
        if len(producer) < QUEUED:
            producer.produce("quota-produce", bytes(VALUE_BYTES), partition=0, on_delivery=on_delivery)
        producer.poll(0 if len(producer) < QUEUED else POLL_S)
    producer.purge()
    producer.flush()
    return counted.deviation


def _delivery(counted: _Counted) -> Callable[[object, object], None]:
    def on_delivery(error: object, _: object) -> None:
        if error is not None and not counted.is_over:
            raise ClientError(f"a record was not acknowledged: {error}")
        counted.add(VALUE_BYTES)

    return on_delivery


def _consume(subject: Subject, load: QuotaLoad) -> float:
    settings = {"client.id": LIMITED, "group.id": "bench", "fetch.message.max.bytes": 100_000}
    with closing(Consumer(subject.client_settings | settings)) as consumer:
        consumer.assign([TopicPartition("quota-consume", 0, 0)])
        counted = _Counted(load)
        while not counted.is_over:
            message = consumer.poll(POLL_S)
            if message is None:
                continue
            if message.error() is not None:
                raise ClientError(f"a consumer with a quota: {message.error()}")
            counted.add(VALUE_BYTES)
        return counted.deviation
