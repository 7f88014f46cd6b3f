"""The topics in which coordinators keep their state: `__consumer_offsets` and `__transaction_state`.

All that belongs to one group or to one transactional id is in one partition, and the leader of that partition is its
coordinator. Such a topic is created when a client first looks for a coordinator.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Mapping
from functools import lru_cache

from millrace.errors import CoordinatorNotAvailableError, TopicExistsError
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.metadata_image import BrokerInfo
from millrace_broker.cluster.topic_manager import Charge, TopicManager, uncharged

logger = logging.getLogger(__name__)

INT_BITS = 32
KEYS_REMEMBERED = 16_384


class CoordinatorTopic:
    """An internal topic that keeps coordinators' state; the attributes say how it is created.

    If it is made of stray logs (adopted), it gets the same `config`, and no fewer `partitions` unless the operator says
    so.
    """

    def __init__(
        self,
        name: str,
        metadata: MetadataCache,
        topics: TopicManager,
        *,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
    ) -> None:
        self.name = name
        self._metadata = metadata
        self._topics = topics
        self.partitions = partitions
        self._replication_factor = replication_factor
        self.config = config
        self._creation = asyncio.Lock()

    @property
    def exists(self) -> bool:
        """Returns whether the topic has been created."""
        return self.name in self._metadata.image.topics

    def partition_of(self, key: str) -> int:
        """Returns the partition for a group or transactional id, also before the topic is created."""
        topic = self._metadata.image.topics.get(self.name)
        return partition_of(key, self.partitions if topic is None else len(topic.partitions))

    def locate(self, key: str) -> BrokerInfo | None:
        """Returns the broker that coordinates a group or transactional id, the leader; None if there is no topic.

        Raises CoordinatorNotAvailableError where no live broker leads its partition.
        """
        image = self._metadata.image
        topic = image.topics.get(self.name)
        if topic is None:
            return None
        index = self.partition_of(key)
        broker = image.brokers.get(topic.partitions[index].leader)
        if broker is None:
            raise CoordinatorNotAvailableError(f"{self.name}-{index} has no leader")
        return broker

    async def create(self, charge: Charge = uncharged) -> None:
        """Creates the topic unless it exists. Raises a TopicError where that fails, or a quota's error (`charge`)."""
        async with self._creation:
            if self.exists:
                return
            try:
                await self._topics.create(
                    self.name,
                    partitions=self.partitions,
                    replication_factor=self._replication_factor,
                    config=self.config,
                    charge=charge,
                )
            except TopicExistsError:
                logger.info("%s was created by another broker", self.name)


@lru_cache(maxsize=KEYS_REMEMBERED)
def partition_of(key: str, partitions: int) -> int:
    """Returns the partition that Kafka chooses for a key: |Java's `hashCode`| modulo the number of partitions."""
    value = java_hash(key)
    return 0 if value == -(1 << INT_BITS - 1) else abs(value) % partitions


def java_hash(text: str) -> int:
    """Returns Java's `String.hashCode`: computed over UTF-16 units, in 32 bits with sign."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(encoded) // 2}H", encoded):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << INT_BITS) if value >> INT_BITS - 1 else value
