"""The group coordinator finds a group's partition of `__consumer_offsets`, and has those that this broker leads.

Until a led partition is read, requests for its groups are answered COORDINATOR_LOAD_IN_PROGRESS. When another broker
leads it, requests that wait are answered NOT_COORDINATOR.

Runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from millrace.clock import Clock
from millrace.errors import CoordinatorLoadInProgressError, ErrorCode, InvalidGroupIdError, NotCoordinatorError
from millrace.internal_topics import OFFSETS_TOPIC
from millrace_broker.cluster.coordinator_topic import CoordinatorTopic
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.topic_manager import TopicManager
from millrace_broker.groups.classic.classic_group import ClassicGroup
from millrace_broker.groups.group import Group
from millrace_broker.groups.offsets import expired
from millrace_broker.groups.records import (
    GROUP_KEY_VERSION,
    OFFSET_KEY_VERSIONS,
    fits,
    read_group_key,
    read_group_value,
    read_offset_key,
    read_offset_value,
)
from millrace_broker.groups.shard import Replay, Shard
from millrace_broker.metrics import GroupCounts
from millrace_broker.properties.coordinator_config import GroupConfig
from millrace_broker.replication.purgatory import CallLater
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.shards import LedShards
from millrace_broker.storage import TopicPartition


def replay_offset(shard: Shard, key: bytes, value: bytes | None) -> None:
    """Adds a record's committed offset to a shard, and its group if there is none; removes it if `value` is None."""
    offset_key = read_offset_key(key)
    if value is None:
        shard.offsets.remove(offset_key)
        return
    shard.offsets.put(offset_key, read_offset_value(value))
    simple_group(shard, offset_key.group_id)


def replay_group(shard: Shard, key: bytes, value: bytes | None) -> None:
    """Sets a shard's classic group as its record says; without a value only its offsets are kept, if it has any."""
    group_id = read_group_key(key)
    if value is None:
        shard.groups.pop(group_id, None)
        if shard.offsets.of_group(group_id):
            simple_group(shard, group_id)
        return
    shard.groups[group_id] = ClassicGroup.of(group_id, read_group_value(value), shard.config, shard.now_ms())


def simple_group(shard: Shard, group_id: str) -> None:
    """Makes a group that only keeps offsets, unless there is a group with this id."""
    if group_id not in shard.groups:
        shard.groups[group_id] = ClassicGroup(group_id, shard.config, shard.now_ms())


REPLAYERS: dict[int, Replay] = {
    **dict.fromkeys(OFFSET_KEY_VERSIONS, replay_offset),
    GROUP_KEY_VERSION: replay_group,
}


def _topic_config(config: GroupConfig) -> dict[str, str]:
    """Returns the properties of `__consumer_offsets`: Kafka's, but for `compression.type=producer`, the default."""
    return {"cleanup.policy": "compact", "segment.bytes": str(config.offsets_topic_segment_bytes)}


logger = logging.getLogger(__name__)


class GroupCoordinator:
    """Coordinates the groups whose partitions of `__consumer_offsets` this broker leads.

    Args:
        config: the properties of groups.
        replicas: the partitions that this broker leads; groups are written to and read from these.
        metadata: has the current metadata image.
        topics: creates the topic of committed offsets.
        clock: gives timestamps.
        call_later: sets timers, as an event loop does.
        replayers: read the records of further types of groups, by the version of their keys.
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
        self.topic = CoordinatorTopic(
            OFFSETS_TOPIC,
            metadata,
            topics,
            partitions=config.offsets_topic_num_partitions,
            replication_factor=config.offsets_topic_replication_factor,
            config=_topic_config(config),
        )
        self._clock = clock
        self._call_later = call_later
        self._replayers = {**REPLAYERS, **(replayers or {})}
        self.counts = GroupCounts()
        self.led = LedShards(
            OFFSETS_TOPIC,
            replicas,
            self._new_shard,
            clock=clock,
            load_buffer_bytes=config.offsets_load_buffer_size,
            when_loaded=self._loaded,
        )

    def shard(self, group_id: str) -> Shard:
        """Returns the shard (the state of a led partition of `__consumer_offsets`) that a group belongs to.

        Raises:
            InvalidGroupIdError: the group id is too long to be stored.
            NotCoordinatorError: another broker leads the partition.
            CoordinatorLoadInProgressError: the partition is being read.
        """
        if not fits(group_id):
            raise InvalidGroupIdError(f"a group id of {len(group_id)} characters is too long")
        index = self.topic.partition_of(group_id)
        shard = self.led.of_partition(index)
        if shard is None:
            raise NotCoordinatorError(f"group {group_id}: {OFFSETS_TOPIC}-{index} is not led by this broker")
        if not shard.is_loaded:
            raise CoordinatorLoadInProgressError(f"group {group_id}: {OFFSETS_TOPIC}-{index} is being loaded")
        return shard

    def shards(self) -> Iterator[Shard]:
        """Yields every shard; raises CoordinatorLoadInProgressError where one is being loaded."""
        for shard in self.led.all():
            if not shard.is_loaded:
                raise CoordinatorLoadInProgressError(f"{shard.topic_partition} is being loaded")
            yield shard

    def _new_shard(self, topic_partition: TopicPartition) -> Shard:
        return Shard(
            topic_partition.partition,
            self.config,
            self._replicas,
            clock=self._clock,
            call_later=self._call_later,
            replayers=self._replayers,
            counts=self.counts,
        )

    def _loaded(self, shard: Shard, seconds: float) -> None:
        self.counts.partitions_loaded += 1
        self.counts.groups_loaded += len(shard.groups)
        self.counts.offsets_loaded += shard.offsets.count
        self.counts.load_seconds += seconds
        logger.info(
            "%s: loaded %d groups with %d offsets", shard.topic_partition, len(shard.groups), shard.offsets.count
        )

    # Transactions.

    def is_loading(self, topic_partition: TopicPartition) -> bool:
        """Returns whether a partition is led here and being loaded, so that a marker written now would be missed."""
        shard = self.led.find(topic_partition)
        return shard is not None and not shard.is_loaded

    def transaction_ended(self, topic_partition: TopicPartition, producer_id: int, *, is_commit: bool) -> None:
        """Makes a transaction's offsets valid, or drops them, once its marker is in a partition of the topic."""
        shard = self.led.find(topic_partition)
        if shard is not None:
            shard.end_transaction(producer_id, is_commit=is_commit)

    # Housekeeping.

    async def expire_offsets(self) -> int:
        """Removes offsets whose retention is over, and groups that have nothing else; returns how many offsets."""
        count = 0
        for shard in self.led.loaded():
            for group in tuple(shard.groups.values()):
                count += self._expire(shard, group)
            await asyncio.sleep(0)  # requests come first
        return count

    def _expire(self, shard: Shard, group: Group) -> int:
        keys = expired(group, shard.offsets, retention_ms=self.config.offsets_retention_ms, now_ms=self._clock.now_ms())
        pending = any(map(shard.offsets.is_pending, shard.offsets.keys_of(group.group_id)))
        pending = pending or bool(shard.transactional.keys_of(group.group_id))
        goes = group.is_empty and not pending and len(keys) == len(shard.offsets.keys_of(group.group_id))
        if keys or goes:
            shard.forget(keys, group if goes else None, lambda error: self._report_expired(group, len(keys), error))
        return len(keys)

    def _report_expired(self, group: Group, offsets: int, error: ErrorCode) -> None:
        if error:
            logger.warning("group %s: %d expired offsets stay for now: %s", group.group_id, offsets, error.name)
        else:
            self.counts.offsets_expired += offsets
            logger.info("group %s: %d offsets have expired", group.group_id, offsets)

    def topics_deleted(self, names: Collection[str]) -> None:
        """Removes the offsets of deleted topics, also those that open transactions have committed."""
        for shard in self.led.all():
            shard.topics_deleted(names)


class Listed(NamedTuple):
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    type: str


def list_groups(
    coordinator: GroupCoordinator, states: Collection[str] = (), types: Collection[str] = ()
) -> list[Listed]:
    """Returns the groups with one of the states and types, in upper or lower case; an empty filter lets all pass.

    Raises:
        CoordinatorLoadInProgressError: some groups are not known yet.
    """
    wanted_states, wanted_types = ({one.lower() for one in names} for names in (states, types))
    return [
        Listed(group.group_id, group.protocol_type or "", group.state_name, group.type)
        for shard in coordinator.shards()
        for group in shard.groups.values()
        if (not wanted_states or group.state_name.lower() in wanted_states)
        and (not wanted_types or group.type.lower() in wanted_types)
    ]


def delete_group(coordinator: GroupCoordinator, group_id: str) -> asyncio.Future[ErrorCode]:
    """Deletes a group without members, and its offsets; the future gets the error or NONE.

    Raises:
        GroupError: the group is led elsewhere or still being loaded.
    """
    response: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    shard = coordinator.shard(group_id)
    group = shard.groups.get(group_id)
    error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete()
    if group is None or error:
        response.set_result(error)
        return response

    def replicated(error: ErrorCode) -> None:
        if not response.done():
            response.set_result(error)

    keys = dict.fromkeys([*shard.offsets.keys_of(group_id), *shard.transactional.keys_of(group_id)])
    shard.forget(list(keys), group, replicated)
    return response
