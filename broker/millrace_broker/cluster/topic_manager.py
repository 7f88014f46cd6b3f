"""Creates, adopts, extends and deletes topics: checks rules, tells the metadata store, waits for the metadata image.

The store blocks, so it is called from a worker thread. When `create` returns, this broker leads the partitions of the
topic that were assigned to it; when `delete` returns, the topic is gone from its image.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from random import randrange
from uuid import uuid4

from millrace.config import MAX_INT
from millrace.errors import (
    TopicBeingDeletedError,
    TopicDeletionDisabledError,
    TopicExistsError,
    UnknownTopicError,
)
from millrace.uuids import encode_id
from millrace_broker.cluster import topics as rules
from millrace_broker.cluster.metadata_cache import CHANGE_TIMEOUT_S, MetadataCache
from millrace_broker.cluster.metadata_image import PartitionInfo, TopicInfo, racks_of
from millrace_broker.cluster.store import MetadataStore
from millrace_broker.cluster.topics import Replicas, assign_replicas
from millrace_broker.properties.broker_config import BrokerConfig

CHANGE_TIMEOUT = timedelta(seconds=CHANGE_TIMEOUT_S)
DELETION_PAUSE_S = 0.05
CheckConfig = Callable[[Mapping[str, str]], None]
Charge = Callable[[int], None]  # is told how many partitions are about to be made or deleted, and may refuse that


def uncharged(partitions: int) -> None:
    """Does nothing, in place of the function that counts new partitions for a client's quota."""


class TopicManager:
    """Creates, adopts, extends and deletes topics for clients.

    `random_below` chooses the broker that leads a new topic's first partition, so that small topics spread over them.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MetadataStore,
        metadata: MetadataCache,
        check_config: CheckConfig,
        random_below: Callable[[int], int] = randrange,
    ) -> None:
        self._config = config
        self._store = store
        self._metadata = metadata
        self._check_config = check_config
        self._random_below = random_below

    async def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
        validate_only: bool = False,
        within: timedelta = CHANGE_TIMEOUT,
        charge: Charge = uncharged,
    ) -> TopicInfo:
        """Creates a topic and returns it; None stands for the broker's default.

        Raises a TopicError for a bad name, number or property, and the errors of `charge`, which counts the partitions
        for a quota. Raises MetadataTimeoutError where the topic is not in the broker's image `within` that time; it may
        come later.
        """
        topic = self._plan(name, partitions, replication_factor, assignments, config or {})
        if not validate_only:
            charge(len(topic.partitions))
            await self._add(self._store.create_topic, topic, within)
            await self._until(
                lambda topics: _is_led(topics.get(name), len(topic.partitions)),
                f"topic {name} was created but is not seen yet",
                within,
            )
        return topic

    async def _add(self, add: Callable[[TopicInfo], None], topic: TopicInfo, within: timedelta) -> None:
        """Calls `add` with the topic, and again, for `within` at most, while another topic of its name is deleted."""
        now_s = asyncio.get_running_loop().time
        deadline_s = now_s() + within.total_seconds()
        while True:
            try:
                return await asyncio.to_thread(add, topic)
            except TopicBeingDeletedError:
                if now_s() >= deadline_s:
                    raise
            await asyncio.sleep(DELETION_PAUSE_S)

    async def adopt(self, topic: TopicInfo) -> None:
        """Adds a topic, exactly as given, whose logs live brokers have already.

        Raises a TopicError, such as TopicExistsError where another topic has its name or id, or MetadataTimeoutError.
        """
        image = self._metadata.image
        rules.check_topic_name(topic.name, image.topics)
        known = image.topics.get(topic.name)
        if known is not None:
            raise TopicExistsError(f"topic {topic.name} exists by now, with the id {encode_id(known.topic_id)}")
        other = self._metadata.topic_name(topic.topic_id)
        if other is not None:
            raise TopicExistsError(f"the id {encode_id(topic.topic_id)} is that of the topic {other}")
        rules.check_assignment({one.index: one.replicas for one in topic.partitions}, tuple(image.brokers))
        self._check_config(topic.config)
        await self._add(self._store.adopt_topic, topic, CHANGE_TIMEOUT)
        await self._until(
            lambda topics: _is_led(topics.get(topic.name), len(topic.partitions)),
            f"topic {topic.name} was adopted but is not seen with all its leaders yet",
            CHANGE_TIMEOUT,
        )

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
        within: timedelta = CHANGE_TIMEOUT,
        charge: Charge = uncharged,
    ) -> None:
        """Extends a topic to `count` partitions. Raises a TopicError, MetadataTimeoutError or the error of `charge`."""
        image = self._metadata.image
        topic = image.topics.get(name)
        if topic is None:
            raise UnknownTopicError(f"The topic '{name}' does not exist.")
        replicas = rules.added_replicas(topic, count, assignments, racks_of(image))
        if not validate_only:
            charge(len(replicas))
            added = _partitions(replicas, first=len(topic.partitions))
            await asyncio.to_thread(self._store.add_partitions, name, added)
            await self._until(
                lambda topics: _is_led(topics.get(name), count),
                f"topic {name} was extended but its new partitions are not seen yet",
                within,
            )

    async def delete(self, name: str, *, within: timedelta = CHANGE_TIMEOUT, charge: Charge = uncharged) -> TopicInfo:
        """Deletes a topic and returns it. Raises a TopicError, MetadataTimeoutError or the error of `charge`."""
        if not self._config.delete_topic_enable:
            raise TopicDeletionDisabledError(f"topic {name}: topic deletion is disabled, delete.topic.enable=false")
        topic = self._metadata.image.topics.get(name)
        if topic is None:
            raise UnknownTopicError(f"The topic '{name}' does not exist.")
        charge(len(topic.partitions))
        await asyncio.to_thread(self._store.delete_topic, name)
        await self._until(
            lambda topics: name not in topics or topics[name].topic_id != topic.topic_id,
            f"topic {name} was deleted but is still seen",
            within,
        )
        return topic

    def _plan(
        self,
        name: str,
        partitions: int | None,
        replication_factor: int | None,
        assignments: Mapping[int, Sequence[int]] | None,
        config: Mapping[str, str],
    ) -> TopicInfo:
        image = self._metadata.image
        rules.check_topic_name(name, image.topics)
        if name in image.topics:
            raise TopicExistsError(f"Topic '{name}' already exists.")
        self._check_config(config)
        if assignments is None:
            count = self._config.num_partitions if partitions is None else partitions
            factor = self._config.default_replication_factor if replication_factor is None else replication_factor
            rules.check_partition_count(count)
            start, shift = self._random_below(MAX_INT), self._random_below(MAX_INT)
            replicas = assign_replicas(racks_of(image), count, factor, start=start, shift=shift)
        else:
            replicas = rules.check_assignment(assignments, tuple(image.brokers))
        return TopicInfo(name, uuid4(), _partitions(replicas), dict(config))

    async def _until(self, holds: Callable[[Mapping[str, TopicInfo]], bool], message: str, within: timedelta) -> None:
        await self._metadata.until_seen(lambda image: holds(image.topics), message, within.total_seconds())


def _partitions(replicas: Sequence[Replicas], first: int = 0) -> tuple[PartitionInfo, ...]:
    return tuple(PartitionInfo(index, ids[0], 0, ids, ids) for index, ids in enumerate(replicas, first))


def _is_led(topic: TopicInfo | None, count: int) -> bool:
    """Returns whether a topic has `count` partitions, each with a leader."""
    return topic is not None and len(topic.partitions) >= count and all(one.leader >= 0 for one in topic.partitions)
