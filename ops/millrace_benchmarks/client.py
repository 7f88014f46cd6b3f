"""`millrace bench client`: records a second through Millrace's own clients, beside other clients of Python programs.

    producer   one record a call, batches of up to 1 MB, 5 ms of linger, acks=all, flushed at the end
    consumer   every record as an object, from offset 0 of one partition
    committed  the same records as the producer's, in transactions of one record, and of a thousand

All drive the same broker in the same run, in turn, on the client's core; a client's start and end are part of its time.
confluent-kafka is librdkafka in C with a Python interface; aiokafka and kafka-python are Python, with their own
compiled parts where they have them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Protocol

from millrace.client.producer import Producer
from millrace.client.simple_consumer import SimpleConsumer
from millrace.errors import ClientError
from millrace_benchmarks.harness import Figure, alternate, per_second
from millrace_benchmarks.payloads import text
from millrace_benchmarks.subjects import Subject, millrace, pinned

LOADS = ((100, "100 B", 100_000), (1024, "1 KB", 40_000))
ROUNDS = 3
BATCH_BYTES = 1_000_000
LINGER_MS = 5
WAIT_MS = 10_000
DISTINCT_VALUES = 1000
TRANSACTIONS = ((1, "transactions of 1 record", 600), (1000, "transactions of 1,000 records", 100_000))
SLOWER_CLIENTS = ("aiokafka", "kafka-python")
CLIENTS = ("confluent-kafka", *SLOWER_CLIENTS)

Run = Callable[[str, str, list[bytes]], None]


def run(place: Path) -> list[Figure]:
    """Measures, and returns the figures in the order of the report."""
    with millrace(place) as broker:
        return [
            *(figure for load in LOADS for figure in _figures(broker, *load)),
            *(_committed(broker, *load) for load in TRANSACTIONS),
        ]


def _figures(broker: Subject, size_bytes: int, name: str, count: int) -> list[Figure]:
    source = text(size_bytes * DISTINCT_VALUES)
    distinct = [source[at : at + size_bytes] for at in range(0, len(source) - size_bytes + 1, size_bytes)]
    values = [distinct[number % len(distinct)] for number in range(count)]
    topic = f"client-{size_bytes}"
    broker.create_topic(topic)
    produced = _rates(broker.bootstrap, topic, values, PRODUCERS)
    consumed = _rates(broker.bootstrap, topic, values, CONSUMERS)
    return [*_beside(f"produce, {name}", produced), *_beside(f"consume, {name}", consumed)]


def _committed(broker: Subject, in_one: int, name: str, count: int) -> Figure:
    topic = f"committed-{in_one}"
    broker.create_topic(topic)
    value = text(LOADS[0][0])
    transactions = [[value] * in_one] * (count // in_one)
    with pinned():
        ours, theirs = alternate(
            ROUNDS,
            per_second(count, lambda: _commit_millrace(broker.bootstrap, topic, transactions)),
            per_second(count, lambda: _commit_confluent(broker.bootstrap, topic, transactions)),
        )
    return Figure(
        name=f"produce, 100 B, {name}", value=ours, unit="records/s", yardstick="confluent-kafka",
        yardstick_value=theirs, at_least=0.5,
    )  # fmt: skip


def _rates(bootstrap: str, topic: str, values: list[bytes], clients: dict[str, Run]) -> dict[str, float]:
    measures = (per_second(len(values), partial(client, bootstrap, topic, values)) for client in clients.values())
    with pinned():
        return dict(zip(clients, alternate(ROUNDS, *measures), strict=True))


def _beside(name: str, rates: dict[str, float]) -> list[Figure]:
    return [
        Figure(
            name=name,
            value=rates["millrace"],
            unit="records/s",
            yardstick=client,
            yardstick_value=rates[client],
            at_least=1.0 if client in SLOWER_CLIENTS else 0.5,
        )
        for client in CLIENTS
    ]


class Valued(Protocol):
    """A record of any client."""

    @property
    def value(self) -> bytes | None:
        """The value of the record."""
        ...


def _produce_millrace(bootstrap: str, topic: str, values: list[bytes]) -> None:
    with Producer(
        broker_list=bootstrap, producer_type="async", queue_time=LINGER_MS, batch_bytes=BATCH_BYTES
    ) as producer:
        send = producer.send
        for value in values:
            send(topic, value)


def _produce_confluent(bootstrap: str, topic: str, values: list[bytes]) -> None:
    import confluent_kafka  # noqa: PLC0415 -- only its own measurement loads it

    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": bootstrap,
        "linger.ms": LINGER_MS,
        "enable.idempotence": True,
        "queue.buffering.max.messages": 1_000_000,
    }
    producer = confluent_kafka.Producer(settings)
    produce, poll = producer.produce, producer.poll
    for value in values:
        produce(topic, value)
        poll(0)
    if producer.flush(60):
        raise ClientError("confluent-kafka did not deliver all")


def _commit_millrace(bootstrap: str, topic: str, transactions: list[list[bytes]]) -> None:
    with Producer(
        broker_list=bootstrap, producer_type="async", queue_time=LINGER_MS, batch_bytes=BATCH_BYTES,
        transactional_id=topic,
    ) as producer:  # fmt: skip
        producer.init_transactions()
        for values in transactions:
            with producer.transaction():
                for value in values:
                    producer.send(topic, value)


def _commit_confluent(bootstrap: str, topic: str, transactions: list[list[bytes]]) -> None:
    import confluent_kafka  # noqa: PLC0415

    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": bootstrap,
        "linger.ms": LINGER_MS,
        "transactional.id": topic,
    }
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions()
    for values in transactions:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
            producer.poll(0)
        producer.commit_transaction()


def _produce_kafka_python(bootstrap: str, topic: str, values: list[bytes]) -> None:
    import kafka  # noqa: PLC0415

    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, linger_ms=LINGER_MS, batch_size=BATCH_BYTES, acks="all")
    for value in values:
        producer.send(topic, value)
    producer.flush()
    producer.close()


def _produce_aiokafka(bootstrap: str, topic: str, values: list[bytes]) -> None:
    from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped, unused-ignore]  # noqa: PLC0415

    async def produce() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES, enable_idempotence=True
        )
        async with producer:
            for value in values:
                await producer.send(topic, value)
            await producer.flush()

    asyncio.run(produce())


def _consume_millrace(bootstrap: str, topic: str, values: list[bytes]) -> None:
    with SimpleConsumer(bootstrap) as consumer:
        _count(len(values), consumer.messages(topic, 0, 0, until_offset=len(values)))


def _consume_confluent(bootstrap: str, topic: str, values: list[bytes]) -> None:
    import confluent_kafka  # noqa: PLC0415

    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    left = len(values)
    while left > 0:
        messages = consumer.consume(10_000, WAIT_MS / 1000)
        if not messages:
            raise ClientError(f"confluent-kafka: {left} records did not come")
        left -= sum(len(message.value() or b"") > 0 for message in messages)
    consumer.close()


def _consume_kafka_python(bootstrap: str, topic: str, values: list[bytes]) -> None:
    import kafka  # noqa: PLC0415

    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=WAIT_MS)
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    _count(len(values), consumer)
    consumer.close()


def _consume_aiokafka(bootstrap: str, topic: str, values: list[bytes]) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition  # noqa: PLC0415

    async def consume() -> None:
        partition = TopicPartition(topic, 0)
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        async with consumer:
            consumer.assign([partition])
            consumer.seek(partition, 0)
            left = len(values)
            while left > 0:
                found = await consumer.getmany(timeout_ms=WAIT_MS, max_records=10_000)
                if not found:
                    raise ClientError(f"aiokafka: {left} records did not come")
                left -= sum(len(record.value) > 0 for records in found.values() for record in records)

    asyncio.run(consume())


def _count(wanted: int, records: Iterable[Valued]) -> None:
    got = 0
    for record in records:
        got += bool(record.value)
        if got == wanted:
            return
    raise ClientError(f"{got} of {wanted} records came")


PRODUCERS: dict[str, Run] = {
    "millrace": _produce_millrace,
    "confluent-kafka": _produce_confluent,
    "aiokafka": _produce_aiokafka,
    "kafka-python": _produce_kafka_python,
}
CONSUMERS: dict[str, Run] = {
    "millrace": _consume_millrace,
    "confluent-kafka": _consume_confluent,
    "aiokafka": _consume_aiokafka,
    "kafka-python": _consume_kafka_python,
}
