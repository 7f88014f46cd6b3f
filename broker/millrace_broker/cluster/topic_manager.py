"""Creates, extends and deletes topics: checks the rules, tells the metadata store, and waits for the broker's own view.

The store blocks, so it is called from a worker thread. When `create` returns, this broker leads the partitions of the
topic that were assigned to it; when `delete` returns, the topic is gone from its view.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from random import randrange
from uuid import uuid4

from millrace.config import MAX_INT
from millrace.errors import MetadataTimeoutError, TopicDeletionDisabledError, TopicExistsError, UnknownTopicError
from millrace_broker.cluster import topics as rules
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.store import MetadataStore
from millrace_broker.cluster.view import PartitionInfo, TopicInfo
from millrace_broker.properties.broker_config import BrokerConfig

CHANGE_TIMEOUT = timedelta(seconds=15)
CheckConfig = Callable[[Mapping[str, str]], None]


class TopicManager:
    """Creates, extends and deletes topics for clients.

    `random_below` chooses the broker that leads a new topic's first partition, so that small topics spread over the
    brokers.
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
    ) -> TopicInfo:
        """Creates a topic and returns it; None stands for the broker's default.

        A TopicError says what is not acceptable. MetadataTimeoutError where the topic is not in the broker's view
        `within` that time; it may be there later.
        """
        topic = self._plan(name, partitions, replication_factor, assignments, config or {})
        if not validate_only:
            await asyncio.to_thread(self._store.create_topic, topic)
            await self._until(lambda topics: name in topics, f"topic {name} was created but is not seen yet", within)
        return topic

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
        within: timedelta = CHANGE_TIMEOUT,
    ) -> None:
        """Extends a topic to `count` partitions. Raises as `create` does, and UnknownTopicError."""
        view = self._metadata.view
        topic = view.topics.get(name)
        if topic is None:
            raise UnknownTopicError(f"topic {name} does not exist")
        replicas = rules.added_replicas(topic, count, assignments, tuple(view.brokers))
        if not validate_only:
            added = _partitions(replicas, first=len(topic.partitions))
            await asyncio.to_thread(self._store.add_partitions, name, added)
            await self._until(
                lambda topics: name in topics and len(topics[name].partitions) >= count,
                f"topic {name} was extended but its new partitions are not seen yet",
                within,
            )

    async def delete(self, name: str, *, within: timedelta = CHANGE_TIMEOUT) -> TopicInfo:
        """Deletes a topic with its records and returns it. UnknownTopicError; MetadataTimeoutError as `create`."""
        if not self._config.delete_topic_enable:
            raise TopicDeletionDisabledError(f"topic {name}: topic deletion is disabled, delete.topic.enable=false")
        topic = self._metadata.view.topics.get(name)
        if topic is None:
            raise UnknownTopicError(f"topic {name} does not exist")
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
        view = self._metadata.view
        rules.check_topic_name(name, view.topics)
        if name in view.topics:
            raise TopicExistsError(f"topic {name} already exists")
        self._check_config(config)
        if assignments is None:
            count = self._config.num_partitions if partitions is None else partitions
            factor = self._config.default_replication_factor if replication_factor is None else replication_factor
            start, shift = self._random_below(MAX_INT), self._random_below(MAX_INT)
            replicas = rules.assign_replicas(tuple(view.brokers), count, factor, start=start, shift=shift)
        else:
            replicas = rules.check_assignment(assignments, tuple(view.brokers))
        return TopicInfo(name, uuid4(), _partitions(replicas), dict(config))

    async def _until(self, holds: Callable[[Mapping[str, TopicInfo]], bool], message: str, within: timedelta) -> None:
        try:
            await self._metadata.until(lambda view: holds(view.topics), within.total_seconds())
        except TimeoutError:
            raise MetadataTimeoutError(message) from None


def _partitions(replicas: Sequence[rules.Replicas], first: int = 0) -> tuple[PartitionInfo, ...]:
    return tuple(PartitionInfo(index, ids[0], 0, ids, ids) for index, ids in enumerate(replicas, first))
