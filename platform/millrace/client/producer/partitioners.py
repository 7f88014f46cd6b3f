"""Choose the partition of a record: by its key as Java's client does, or as the application's partitioner does.

Records without a key stick to one partition until its batch is full, then to another (KIP-480): batches are full and
partitions evenly filled. `RandomPartitioner` draws one for each record, as Kafka 0.7 did.
"""

from __future__ import annotations

import random
from typing import Any, Protocol

from millrace.client.murmur2 import partition_for_key


class Partitioner(Protocol):
    """Chooses among `num_partitions`; the key is the application's own, before it is encoded, or None."""

    def partition(self, key: Any, num_partitions: int) -> int:
        """Returns a number from 0 on, below `num_partitions`."""
        ...


class StickyPartitioner:
    """The default: murmur2 of the encoded key; without one, the same for a whole batch."""

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
    """Murmur2 of the key, which is bytes or text; without one, another for each record."""

    def partition(self, key: Any, num_partitions: int) -> int:
        """Returns the partition for a record."""
        if key is None:
            return random.randrange(num_partitions)  # noqa: S311 -- spreads, hides nothing
        return partition_for_key(key.encode() if isinstance(key, str) else bytes(key), num_partitions)
