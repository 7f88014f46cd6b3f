"""The group coordinator: which partition of `__consumer_offsets` has a group, and which of them are led here.

    elected   this broker leads a partition: it is read in worker threads, piece by piece; until then requests for its
              groups are answered COORDINATOR_LOAD_IN_PROGRESS
    resigned  another broker leads it now, or it is gone: everyone who waits is answered NOT_COORDINATOR

Runs on the event loop. The topic is created when a client first looks for a coordinator (spec E6).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping

from millrace.clock import Clock
from millrace.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    ErrorCode,
    InvalidGroupIdError,
    MillraceError,
    NotCoordinatorError,
    TopicExistsError,
)
from millrace.wire.encoder import contents
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.topic_manager import TopicManager
from millrace_broker.cluster.view import BrokerInfo
from millrace_broker.group_config import GroupConfig
from millrace_broker.groups.group import Group
from millrace_broker.groups.offsets import expired
from millrace_broker.groups.offsets_topic import OFFSETS_TOPIC, partition_of, topic_config
from millrace_broker.groups.records import fits
from millrace_broker.groups.replay import REPLAYERS
from millrace_broker.groups.shard import Replay, Shard
from millrace_broker.replication.purgatory import CallLater
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.storage import TopicPartition

logger = logging.getLogger(__name__)


class Coordinator:
    """The groups of this broker.

    Args:
        config: the properties.
        replicas: the led partitions; groups are written to and read from these.
        metadata: the cluster's newest view.
        topics: creates the topic of committed offsets.
        clock: timestamps.
        call_later: timers, as an event loop has them.
        replayers: how records of further types of groups are read, by the version of their keys.
    """

    def __init__(
        self,
        config: GroupConfig,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        topics: TopicManager,
        *,
        clock: Clock,
        call_later: CallLater,
        replayers: Mapping[int, Replay] | None = None,
    ) -> None:
        self.config = config
        self.metadata = metadata
        self._replicas = replicas
        self._topics = topics
        self._clock = clock
        self._call_later = call_later
        self._replayers = {**REPLAYERS, **(replayers or {})}
        self._shards: dict[int, Shard] = {}
        self._loading: set[asyncio.Task[None]] = set()
        self._creation = asyncio.Lock()
        self._closed = False

    def partition_of(self, group_id: str) -> int:
        """The partition that has a group, of as many as the topic has or would have."""
        topic = self.metadata.view.topics.get(OFFSETS_TOPIC)
        partitions = self.config.offsets_topic_num_partitions if topic is None else len(topic.partitions)
        return partition_of(group_id, partitions)

    def shard(self, group_id: str) -> Shard:
        """Where a group is; NotCoordinatorError or CoordinatorLoadInProgressError where it can't be used here now.

        InvalidGroupIdError for an id that can't be kept.
        """
        if not fits(group_id):
            raise InvalidGroupIdError(f"a group id of {len(group_id)} characters is too long")
        index = self.partition_of(group_id)
        shard = self._shards.get(index)
        if shard is None:
            raise NotCoordinatorError(f"group {group_id}: {OFFSETS_TOPIC}-{index} is not led by this broker")
        if not shard.is_loaded:
            raise CoordinatorLoadInProgressError(f"group {group_id}: {OFFSETS_TOPIC}-{index} is being loaded")
        return shard

    def shards(self) -> Iterator[Shard]:
        """Every shard; CoordinatorLoadInProgressError while one is being loaded."""
        for shard in self._shards.values():
            if not shard.is_loaded:
                raise CoordinatorLoadInProgressError(f"{shard.topic_partition} is being loaded")
            yield shard

    def locate(self, group_id: str) -> BrokerInfo | None:
        """The broker that leads a group's partition; None while the topic is not there.

        CoordinatorNotAvailableError where no live broker does.
        """
        view = self.metadata.view
        topic = view.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return None
        index = self.partition_of(group_id)
        broker = view.brokers.get(topic.partitions[index].leader)
        if broker is None:
            raise CoordinatorNotAvailableError(f"{OFFSETS_TOPIC}-{index} has no leader")
        return broker

    async def create_topic(self) -> None:
        """Create the topic of committed offsets, unless it is there. Raises a TopicError where that is not possible."""
        async with self._creation:
            if OFFSETS_TOPIC in self.metadata.view.topics:
                return
            try:
                await self._topics.create(
                    OFFSETS_TOPIC,
                    partitions=self.config.offsets_topic_num_partitions,
                    replication_factor=self.config.offsets_topic_replication_factor,
                    config=topic_config(self.config),
                )
            except TopicExistsError:
                logger.info("%s was created by another broker", OFFSETS_TOPIC)

    # Leading.

    def elected(self, topic_partition: TopicPartition) -> None:
        """This broker leads a partition; nothing to do if it did so before, or if it is of another topic."""
        index = topic_partition.partition
        if topic_partition.topic != OFFSETS_TOPIC or index in self._shards or self._closed:
            return
        shard = Shard(
            index,
            self.config,
            self._replicas,
            clock=self._clock,
            call_later=self._call_later,
            replayers=self._replayers,
        )
        self._shards[index] = shard
        log = self._replicas.partition(topic_partition).log
        if log.log_start_offset == log.log_end_offset:
            shard.loaded()
            return
        task = asyncio.get_running_loop().create_task(self._load(shard))
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

    def resigned(self, topic_partition: TopicPartition) -> None:
        """This broker leads a partition no longer."""
        if topic_partition.topic == OFFSETS_TOPIC:
            shard = self._shards.pop(topic_partition.partition, None)
            if shard is not None:
                shard.close(ErrorCode.NOT_COORDINATOR)

    def close(self) -> None:
        """The broker stops: its groups find another one, or this one again."""
        self._closed = True
        for shard in tuple(self._shards.values()):
            self.resigned(shard.topic_partition)

    async def _load(self, shard: Shard) -> None:
        try:
            await self._read(shard)
        except MillraceError:
            logger.exception("groups of %s can't be loaded", shard.topic_partition)
            if not shard.is_closed:
                self.resigned(shard.topic_partition)
            return
        if not shard.is_closed:
            shard.loaded()
            logger.info(
                "%s: loaded %d groups with %d offsets", shard.topic_partition, len(shard.groups), shard.offsets.count
            )

    async def _read(self, shard: Shard) -> None:
        """Reads belong to the event loop; what is read is taken in by a worker thread."""
        partition = self._replicas.partition(shard.topic_partition)
        offset, end = partition.log.log_start_offset, partition.high_watermark
        while offset < end and not shard.is_closed:
            batches = partition.read(offset, self.config.offsets_load_buffer_size, at_least_one=True).records
            if not len(batches):
                return
            offset = await asyncio.to_thread(shard.replay, bytes(contents(batches)))

    # Housekeeping.

    async def expire_offsets(self) -> int:
        """Forget offsets that have outlived their retention, and groups left with nothing; how many offsets."""
        count = 0
        for shard in tuple(self._shards.values()):
            if shard.is_loaded:
                for group in tuple(shard.groups.values()):
                    count += self._expire(shard, group)
            await asyncio.sleep(0)  # requests go before
        return count

    def _expire(self, shard: Shard, group: Group) -> int:
        keys = expired(group, shard.offsets, retention_ms=self.config.offsets_retention_ms, now_ms=self._clock.now_ms())
        pending = any(map(shard.offsets.is_pending, shard.offsets.keys_of(group.group_id)))
        goes = group.is_empty and not pending and len(keys) == len(shard.offsets.keys_of(group.group_id))
        if keys or goes:
            shard.forget(keys, group if goes else None, lambda error: _report_expired(group, len(keys), error))
        return len(keys)

    def topics_deleted(self, names: Collection[str]) -> None:
        """Forget the offsets of topics that are gone."""
        for shard in tuple(self._shards.values()):
            keys = shard.offsets.keys_of_topics(names) if shard.is_loaded else []
            if keys:
                shard.forget(keys, None, lambda error: _report_deleted(names, error))


def _report_expired(group: Group, offsets: int, error: ErrorCode) -> None:
    if error:
        logger.warning("group %s: %d expired offsets stay for now: %s", group.group_id, offsets, error.name)
    else:
        logger.info("group %s: %d offsets have expired", group.group_id, offsets)


def _report_deleted(names: Collection[str], error: ErrorCode) -> None:
    if error:
        logger.warning("the offsets of deleted topics stay: %s: %s", ", ".join(names), error.name)
