"""Tells a partition that was deleted from one that this broker has not been told of yet.

A controller tells a broker of partitions one request after another, so for a moment after its start a broker may know
less than there is. Work that must not be lost by that, such as the markers of a transaction, is looked up here: the
image tells that a partition exists, and only the metadata store can tell that it does not.

Runs on the event loop, and asks the store on a worker thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from millrace.errors import MillraceError
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.storage import TopicPartition

logger = logging.getLogger(__name__)

HasPartition = Callable[[str, int], bool]


class DeletionLookup:
    """Looks partitions up in the image, and those that it lacks by `has_partition`, as `MetadataStore` has it."""

    def __init__(self, metadata: MetadataCache, has_partition: HasPartition) -> None:
        self._metadata = metadata
        self._has_partition = has_partition
        self._asking: set[asyncio.Task[None]] = set()

    def ask(self, topic_partition: TopicPartition, then: Callable[[bool], None]) -> None:
        """Calls `then` with whether a partition is deleted for sure; at once where the image has it."""
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
