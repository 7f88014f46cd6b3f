"""What tests of moved groups share: a source with gaps, a plain copier that keeps a map, and a group that reads."""

from __future__ import annotations

import random
from collections.abc import Iterator

import confluent_kafka

from millrace import Producer
from millrace.client import Cluster, SimpleConsumer
from millrace.client.fetched import IsolationLevel
from millrace.client.producer import Delivery
from millrace_pipelines.mirror.offset_map import MappedRuns, Run
from millrace_pipelines.mirror.offset_map_topic import OFFSET_MAP_TOPIC, map_records
from millrace_pipelines.mirror.sharing import group_of
from millrace_support.waiting import until

COMMITTED = IsolationLevel.READ_COMMITTED
PATIENCE_S = 60.0


class Source:
    """Fills partitions of a topic by transactions, every third of which is aborted; values are numbers that rise."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, seed: int) -> None:
        self.written: dict[int, list[int]] = {one: [] for one in range(partitions)}
        self._topic = topic
        self._random = random.Random(seed)  # noqa: S311
        self._count = 0
        self._producer = Producer(broker_list=bootstrap, producer_type="async", transactional_id=f"{topic}-source")
        self._producer.init_transactions()

    def fill(self, transactions: int) -> None:
        """Writes so many transactions of one to eight records."""
        for _ in range(transactions):
            self._producer.begin_transaction()
            sent = [
                (self._random.choice(sorted(self.written)), self._next()) for _ in range(self._random.randint(1, 8))
            ]
            for partition, number in sent:
                self._producer.send(self._topic, b"%d" % number, partition=partition)
            if self._random.random() < 1 / 3:
                self._producer.flush()
                self._producer.abort_transaction()
                continue
            self._producer.commit_transaction()
            for partition, number in sent:
                self.written[partition].append(number)

    def close(self) -> None:
        """Closes the producer."""
        self._producer.close()

    def _next(self) -> int:
        self._count += 1
        return self._count


class Copier:
    """Copies a topic record by record, once its transactions are complete, in transactions with map and progress."""

    def __init__(self, mirror: str, source: Cluster, bootstrap: str, topic: str, target_topic: str) -> None:
        self._mirror, self._topic, self._target_topic = mirror, topic, target_topic
        self._consumer = SimpleConsumer(source)
        self._next: dict[int, int] = {}
        self._producer = Producer(broker_list=bootstrap, producer_type="async", transactional_id=f"{mirror}-{topic}")
        self._producer.init_transactions()

    def copy(self, partitions: int, *, at_most: int = 1_000_000) -> None:
        """Copies what is there, or so many records of each partition."""
        for partition in range(partitions):
            with self._producer.transaction():
                self._copy(partition, at_most)

    def close(self) -> None:
        """Closes the producer."""
        self._producer.close()

    def _copy(self, partition: int, at_most: int) -> None:
        first = self._next.get(partition, 0)
        all_of_it = self._consumer.latest(self._topic, partition)
        end = until(lambda: self._consumer.latest(self._topic, partition, COMMITTED), all_of_it.__le__)
        sent: list[tuple[int, Delivery]] = []
        for record in self._consumer.messages(self._topic, partition, first, until_offset=end, isolation=COMMITTED):
            if len(sent) == at_most:
                end = record.offset
                break
            sent.append((record.offset, self._producer.send(self._target_topic, record.value, partition=partition)))
        self._producer.flush()
        runs = [Run(offset, delivery.result().offset, 1) for offset, delivery in sent]
        mapped = MappedRuns(runs[-1].source_end if runs else 0, runs)
        for index, key, value in map_records(self._mirror, self._topic, partition, mapped):
            self._producer.send(OFFSET_MAP_TOPIC, value, key=key, partition=index)
        self._producer.send_offsets_to_transaction({(self._target_topic, partition): end}, group_of(self._mirror))
        self._next[partition] = end


def read_as_group(
    bootstrap: str, group: str, topic: str, count: int, *, protocol: str = "classic"
) -> Iterator[tuple[int, int]]:
    """Yields (partition, number) of so many records, read as the group's only member, which commits them and leaves."""
    settings = {
        "bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest",
        "isolation.level": "read_committed", "enable.auto.commit": False, "enable.auto.offset.store": False,
    }  # fmt: skip
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    try:
        left = count
        while left:
            found = consumer.consume(1, PATIENCE_S)
            assert found, f"{left} records did not come: {consumer.position(consumer.assignment())}"
            for message in found:
                assert message.error() is None, message.error()
                yield message.partition() or 0, int(message.value() or b"")
                consumer.store_offsets(message)
            left -= len(found)
        if count:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
