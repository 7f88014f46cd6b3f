"""What tests of mirrors share: records of every kind, written by librdkafka, and both sides read by it."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PATIENCE_S = 60.0


class Read(NamedTuple):
    """A record as a consumer sees it, with its offset."""

    offset: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str | bytes | None, ...], ...]
    time: tuple[int, int]


def any_record(rng: random.Random) -> dict[str, Any]:
    """Returns the arguments of a record with or without a key, a value, headers and a time of its own."""
    headers = [("h", None), ("ü", b""), ("h", rng.randbytes(3))][: rng.randrange(4)]
    return {
        "key": rng.choice([None, b"", rng.randbytes(3)]),
        "value": rng.choice([None, b"", rng.randbytes(rng.randrange(1, 300)), b"again" * 40]),
        "headers": headers,
        "timestamp": rng.choice([0, rng.randrange(1, 1_700_000_000_000)]),
    }


def write(bootstrap: str, topic: str, partitions: int, count: int, seed: int) -> None:
    """Writes records of every kind to all partitions, with each codec."""
    rng = random.Random(seed)  # noqa: S311
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
        for number in range(count):
            producer.produce(topic, partition=number % partitions, **any_record(rng))
        assert not producer.flush(PATIENCE_S)


def write_transactions(bootstrap: str, topic: str, partitions: int, fates: str, seed: int) -> None:
    """Writes a transaction to all partitions for each letter: "c" is committed, "a" aborted."""
    rng = random.Random(seed)  # noqa: S311
    producer = begun_producer(bootstrap, f"{topic}-{seed}")
    for fate in fates:
        producer.begin_transaction()
        for number in range(4 * partitions):
            producer.produce(topic, partition=number % partitions, **any_record(rng))
        assert not producer.flush(PATIENCE_S)
        producer.commit_transaction() if fate == "c" else producer.abort_transaction()


def begun_producer(bootstrap: str, transactional_id: str) -> Producer:
    """Returns a producer whose transactions can begin."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 5})
    producer.init_transactions(PATIENCE_S)
    return producer


def read(bootstrap: str, topic: str, partition: int) -> list[Read]:
    """Returns the committed records of a partition, up to its last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "compares",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    place = TopicPartition(topic, partition)
    place.offset = consumer.get_watermark_offsets(place, timeout=PATIENCE_S)[0]
    consumer.assign([place])
    found: list[Read] = []
    try:
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"{topic}-{partition} gives nothing"
            error = message.error()
            if error is not None:
                assert error.name() == "_PARTITION_EOF", error
                return found
            headers = tuple(map(tuple, message.headers() or ()))
            found.append(Read(message.offset(), message.key(), message.value(), headers, message.timestamp()))
    finally:
        consumer.close()


def contents(records: list[Read]) -> list[tuple[object, ...]]:
    """Returns the records without their offsets."""
    return [one[1:] for one in records]
