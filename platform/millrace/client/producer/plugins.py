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
    """Makes the bytes of a value or a key."""

    def encode(self, data: Any) -> bytes:
        """Returns the bytes; any error it raises comes out of `send`."""


class BytesEncoder:
    """Bytes as they are: the default."""

    def encode(self, data: Any) -> bytes:
        """Returns the same bytes; raises InvalidRecordError for anything else."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidRecordError(f"{type(data).__name__} is not bytes: configure an encoder for it")
        return bytes(data)


class StringEncoder:
    """Text in UTF-8, or in another encoding."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def encode(self, data: Any) -> bytes:
        """Returns the text's bytes; raises InvalidRecordError for anything else."""
        if not isinstance(data, str):
            raise InvalidRecordError(f"{type(data).__name__} is not text")
        return data.encode(self._encoding)


class JsonEncoder:
    """Compact JSON in UTF-8."""

    def encode(self, data: Any) -> bytes:
        """Returns the document; raises InvalidRecordError for what JSON has no form for."""
        try:
            return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise InvalidRecordError(f"no JSON can be made of a {type(data).__name__}: {error}") from error


class Partitioner(Protocol):
    """Chooses among `num_partitions`; the key is the application's own, before it is encoded, or None."""

    def partition(self, key: Any, num_partitions: int) -> int:
        """Returns a number from 0 on, below `num_partitions`."""


class StickyPartitioner:
    """The default: by murmur2 of the encoded key; records without a key go to one random partition for a batch."""

    def __init__(self) -> None:
        self._current: dict[str, int] = {}

    def choose(self, topic: str, key: bytes | None, num_partitions: int) -> int:
        """Returns the partition for a record of a topic."""
        if key is not None:
            return partition_for_key(key, num_partitions)
        current = self._current.get(topic)
        if current is None or current >= num_partitions:
            current = self._current[topic] = random.randrange(num_partitions)  # noqa: S311 -- spreads, hides nothing
        return current

    def batch_is_full(self, topic: str) -> None:
        """Sends the topic's records without a key to another partition from now on."""
        self._current.pop(topic, None)


class RandomPartitioner:
    """Chooses by murmur2 of the key, which is bytes or text; at random for each record without a key."""

    def partition(self, key: Any, num_partitions: int) -> int:
        """Returns the partition for a record."""
        if key is None:
            return random.randrange(num_partitions)  # noqa: S311 -- spreads, hides nothing
        return partition_for_key(key.encode() if isinstance(key, str) else bytes(key), num_partitions)
