"""What an application plugs in: how values become bytes, and which partition a record goes to.

Any object with an `encode(value)` encodes; None stays None, a null. Without a partitioner of the application's, the key
decides as in Java's client, and records without a key stick to one partition until its batch is full, then to another
(KIP-480): batches are full and partitions evenly filled.

The partition of a key is that of Kafka's DefaultPartitioner, so that all clients agree:

    partition = (murmur2(key) & 0x7fffffff) mod number of partitions
"""

from __future__ import annotations

import json
import random
from typing import Any, Protocol

from millrace.errors import InvalidRecordError

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Returns the partition that every client with Kafka's default partitioner gives to a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    """Returns Austin Appleby's MurmurHash2 with Kafka's seed, as an unsigned 32-bit integer."""
    hashed = SEED ^ len(data)
    body_end = len(data) & ~3
    for position in range(0, body_end, 4):
        word = int.from_bytes(data[position : position + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        hashed = (hashed * MULTIPLIER & MASK) ^ word
    tail = data[body_end:]
    if tail:
        hashed = (hashed ^ int.from_bytes(tail, "little")) * MULTIPLIER & MASK
    hashed = (hashed ^ hashed >> 13) * MULTIPLIER & MASK
    return hashed ^ hashed >> 15


class Encoder(Protocol):
    """A plug-in that encodes an application's values or keys as bytes."""

    def encode(self, data: Any) -> bytes:
        """Returns a value or key as bytes; `send` raises the exception that is raised here."""


class BytesEncoder:
    """The default encoder, which takes bytes and leaves them as they are.

    Args:
        option: The argument of `Producer` that takes another encoder.
    """

    def __init__(self, option: str = "encoder") -> None:
        self._option = option

    def encode(self, data: Any) -> bytes:
        """Returns the bytes as they are; raises InvalidRecordError, which names an encoder, for anything else."""
        if not isinstance(data, bytes | bytearray | memoryview):
            encoder = StringEncoder if isinstance(data, str) else JsonEncoder
            raise InvalidRecordError(
                f"{type(data).__name__} is not bytes: Producer(…, {self._option}={encoder.__name__}) sends it, "
                f"after `from millrace import {encoder.__name__}`"
            )
        return bytes(data)


class StringEncoder:
    """Encodes text in UTF-8, or in another encoding."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def encode(self, data: Any) -> bytes:
        """Returns the text as bytes; raises InvalidRecordError for anything but text."""
        if not isinstance(data, str):
            raise InvalidRecordError(f"{type(data).__name__} is not text: JsonEncoder encodes other values, too")
        return data.encode(self._encoding)


class JsonEncoder:
    """Encodes a value as compact JSON in UTF-8."""

    def encode(self, data: Any) -> bytes:
        """Returns the value as JSON; raises InvalidRecordError for a value that JSON can't represent."""
        try:
            return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise InvalidRecordError(f"no JSON can be made of a {type(data).__name__}: {error}") from error


class Partitioner(Protocol):
    """A plug-in that chooses a partition; it gets the application's key, not encoded, or None."""

    def partition(self, key: Any, num_partitions: int) -> int:
        """Returns the partition, from 0 to `num_partitions` - 1, for a record with this key."""


class StickyPartitioner:
    """The default partitioner: murmur2 of the encoded key, or without keys one random partition for a whole batch."""

    def __init__(self) -> None:
        self._current: dict[str, int] = {}

    def choose(self, topic: str, key: bytes | None, num_partitions: int) -> int:
        """Returns the partition for a record of a topic with this encoded key, which may be None."""
        if key is not None:
            return partition_for_key(key, num_partitions)
        current = self._current.get(topic)
        if current is None or current >= num_partitions:
            current = self._current[topic] = random.randrange(num_partitions)  # noqa: S311 -- spreads, hides nothing
        return current

    def batch_is_full(self, topic: str) -> None:
        """Makes `choose` pick another partition for the topic's next records without a key."""
        self._current.pop(topic, None)


class RandomPartitioner:
    """A partitioner that uses murmur2 of the key (bytes or text); without a key, a random partition for each record."""

    def partition(self, key: Any, num_partitions: int) -> int:
        """Returns the partition for a record with this key, a random one if the key is None."""
        if key is None:
            return random.randrange(num_partitions)  # noqa: S311 -- spreads, hides nothing
        return partition_for_key(key.encode() if isinstance(key, str) else bytes(key), num_partitions)
