"""Holds the newest metadata image that this broker has acted upon; clients are told of no newer one.

Used on the event loop's thread. An image is put here only after its partitions are led, so a client that is told of a
partition can use it at once. A broker that has just started knows of no broker until the controller has told it, and
lets clients that ask wait for that: librdkafka, told that a cluster has no brokers, gives up those that it knows.

`DeletionLookup` tells a partition that was deleted from one that this broker has not been told of yet. A controller
tells a broker of partitions one request after another, so for a moment after its start a broker may know less than
there is. Work that must not be lost by that, such as the markers of a transaction, is looked up there: the image tells
that a partition exists, and only the metadata store can tell that it does not. It asks the store on a worker thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from uuid import UUID

from millrace.addresses import PLAINTEXT, Address
from millrace.errors import MetadataTimeoutError, MillraceError
from millrace_broker.cluster.metadata_image import MetadataImage, PartitionInfo
from millrace_broker.storage import TopicPartition

CHANGE_TIMEOUT_S = 15.0
BROKERS_TIMEOUT_S = 5.0  # then clients may rather ask another broker
logger = logging.getLogger(__name__)
HasPartition = Callable[[str, int], bool]


class MetadataCache:
    """The current metadata image, the names of its topics by id, and the requests that wait for another image.

    `topic_configs` are the newest configurations of topics; logs take them before the image that clients see has them.
    `inter_broker_listener` is the name of the listener by which brokers reach each other.
    """

    def __init__(self, image: MetadataImage, inter_broker_listener: str = PLAINTEXT) -> None:
        self._inter_broker_listener = inter_broker_listener
        self._waiting: set[asyncio.Event] = set()
        self.topic_configs: Mapping[str, Mapping[str, str]] = {}
        self.update(image)

    def update(self, image: MetadataImage) -> None:
        """Replaces the image by a newer one and wakes the requests that wait for it."""
        self.image = image
        self._names = {topic.topic_id: topic.name for topic in image.topics.values()}
        self.look_again()

    def look_again(self) -> None:
        """Wakes all that wait in `until`: what they wait for may depend on this broker's roles, too."""
        for event in self._waiting:
            event.set()

    def topic_name(self, topic_id: UUID) -> str | None:
        """Returns the name of the topic with this id; None for an unknown one."""
        return self._names.get(topic_id)

    def partition(self, topic_partition: TopicPartition) -> PartitionInfo | None:
        """Returns a partition's leader, replicas and ISR; None where the cluster has no such partition."""
        return self.image.partition(*topic_partition)

    def leader_of(self, topic_partition: TopicPartition) -> int | None:
        """Returns the id of a partition's leader, -1 where it has none; None where there is no such partition."""
        partition = self.partition(topic_partition)
        return None if partition is None else partition.leader

    def address_of(self, broker_id: int) -> Address | None:
        """Returns the address by which brokers reach a broker; None where it is not alive or has no such listener."""
        broker = self.image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._inter_broker_listener)
        return None if endpoint is None else endpoint.address

    async def until_brokers_are_known(self) -> None:
        """Waits until the controller has told this broker of the live brokers, but at most for `BROKERS_TIMEOUT_S`."""
        with suppress(TimeoutError):
            await self.until(lambda image: bool(image.brokers), BROKERS_TIMEOUT_S)

    async def until_seen(
        self, holds: Callable[[MetadataImage], bool], message: str, timeout_s: float = CHANGE_TIMEOUT_S
    ) -> None:
        """Waits until a change is in the image, as `holds` says; raises MetadataTimeoutError with the message."""
        try:
            await self.until(holds, timeout_s)
        except TimeoutError:
            raise MetadataTimeoutError(message) from None

    async def until(self, holds: Callable[[MetadataImage], bool], timeout_s: float) -> None:
        """Waits until `holds` is true for the current image; raises TimeoutError after `timeout_s`."""
        async with asyncio.timeout(timeout_s):
            while not holds(self.image):
                event = asyncio.Event()
                self._waiting.add(event)
                try:
                    await event.wait()
                finally:
                    self._waiting.discard(event)


class DeletionLookup:
    """Finds out whether partitions are deleted: asks the metadata store about those that the image lacks."""

    def __init__(self, metadata: MetadataCache, has_partition: HasPartition) -> None:
        self._metadata = metadata
        self._has_partition = has_partition
        self._asking: set[asyncio.Task[None]] = set()

    def ask(self, topic_partition: TopicPartition, then: Callable[[bool], None]) -> None:
        """Calls `then` with whether a partition is surely deleted: at once if the image has it, else once known."""
        if self._metadata.partition(topic_partition) is not None:
            then(False)
            return
        task = asyncio.get_running_loop().create_task(self._look_up(topic_partition, then))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _look_up(self, topic_partition: TopicPartition, then: Callable[[bool], None]) -> None:
        try:
            is_deleted = not await asyncio.to_thread(self._has_partition, *topic_partition)
        except MillraceError as error:
            logger.warning("whether %s is deleted is not known yet: %s", topic_partition, error)
            is_deleted = False
        then(is_deleted)
