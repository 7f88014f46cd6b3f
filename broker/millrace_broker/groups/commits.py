"""Committing, fetching and deleting offsets, for groups of every type.

Version 0 of OffsetCommit and OffsetFetch means offsets in ZooKeeper, where clients of Kafka 0.8.1 kept them: the data
of `/consumers/[group]/offsets/[topic]/[partition]` is the offset in decimal, without metadata.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from millrace.errors import ErrorCode, ZooKeeperError
from millrace.records.batch import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP
from millrace.records.record import BatchProducer
from millrace.zk import paths
from millrace.zk.session import ZooKeeperSession
from millrace_broker.groups.group import Committer
from millrace_broker.groups.group_coordinator import GroupCoordinator, simple_group
from millrace_broker.groups.records import MAX_TIMESTAMP, CommittedOffset, OffsetKey, fits
from millrace_broker.groups.shard import Shard
from millrace_broker.replication.shards import Then
from millrace_broker.storage import TopicPartition

FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 9


class Commit(NamedTuple):
    """One offset to commit. Only clients before OffsetCommit v2 give a timestamp."""

    topic_partition: TopicPartition
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str | None = None
    commit_timestamp_ms: int = NO_TIMESTAMP


class Fetched(NamedTuple):
    """One offset as OffsetFetch returns it; -1 means that none is committed."""

    topic_partition: TopicPartition
    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


Errors = dict[TopicPartition, ErrorCode]
Append = Callable[[Shard, Sequence[Commit], Then], None]


def commit(
    coordinator: GroupCoordinator,
    group_id: str,
    committer: Committer,
    commits: Sequence[Commit],
    retention_ms: int | None = None,
) -> asyncio.Future[Errors]:
    """Commits offsets; the future gets an error, or NONE, for each partition once the in-sync replicas have them.

    Args:
        coordinator: the coordinator.
        group_id: the group. Where there is none and the committer is no member, one is made that only keeps offsets.
        committer: the client that commits.
        commits: the offsets.
        retention_ms: how long to keep them, which clients before OffsetCommit v5 say; None: as configured.

    Raises:
        GroupError: the group is led elsewhere or still being loaded.
    """

    def append(shard: Shard, accepted: Sequence[Commit], then: Then) -> None:
        now_ms = shard.now_ms()
        shard.commit([_entry(group_id, one, now_ms, retention_ms) for one in accepted], then)

    return _commit(coordinator, group_id, committer, commits, append)


def commit_in_transaction(
    coordinator: GroupCoordinator,
    group_id: str,
    committer: Committer,
    commits: Sequence[Commit],
    producer: BatchProducer,
) -> asyncio.Future[Errors]:
    """Commits offsets as `commit` does, but valid only once the producer's transaction commits (KIP-98)."""

    def append(shard: Shard, accepted: Sequence[Commit], then: Then) -> None:
        now_ms = shard.now_ms()
        shard.commit_in_transaction(producer, [_entry(group_id, one, now_ms, None) for one in accepted], then)

    return _commit(coordinator, group_id, committer, commits, append)


def refused(asked: Sequence[Commit], error: ErrorCode) -> asyncio.Future[Errors]:
    """Returns a finished future with this error for every partition of `asked`."""
    response: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()
    response.set_result({one.topic_partition: error for one in asked})
    return response


def _commit(
    coordinator: GroupCoordinator, group_id: str, committer: Committer, commits: Sequence[Commit], append: Append
) -> asyncio.Future[Errors]:
    response: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()
    shard = coordinator.shard(group_id)
    error = _check_commit(shard, group_id, committer)
    limit = coordinator.config.offset_metadata_max_bytes
    accepted = [one for one in commits if len(one.metadata or "") <= limit and fits(one.metadata or "")]
    errors = {one.topic_partition: error or ErrorCode.OFFSET_METADATA_TOO_LARGE for one in commits}
    if error or not accepted:
        response.set_result(errors)
        return response

    def replicated(error: ErrorCode) -> None:
        if not response.done():
            response.set_result(errors | {one.topic_partition: error for one in accepted})

    append(shard, accepted, replicated)
    return response


def _check_commit(shard: Shard, group_id: str, committer: Committer) -> ErrorCode:
    group = shard.groups.get(group_id)
    if group is None:
        if committer.generation >= 0:
            newer = committer.version >= FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND and not committer.is_transactional
            return ErrorCode.GROUP_ID_NOT_FOUND if newer else ErrorCode.ILLEGAL_GENERATION
        simple_group(shard, group_id)
        return ErrorCode.NONE
    error = group.check_commit(committer)
    if not error:
        shard.perform(group, group.committed(committer, shard.now_ms()))
    return error


def _entry(group_id: str, one: Commit, now_ms: int, retention_ms: int | None) -> tuple[OffsetKey, CommittedOffset]:
    expire_timestamp_ms = NO_TIMESTAMP if retention_ms is None else min(now_ms + retention_ms, MAX_TIMESTAMP)
    commit_timestamp_ms = now_ms if one.commit_timestamp_ms == NO_TIMESTAMP else one.commit_timestamp_ms
    committed = CommittedOffset(
        one.offset, one.leader_epoch, one.metadata or "", commit_timestamp_ms, expire_timestamp_ms
    )
    return OffsetKey(group_id, *one.topic_partition), committed


def fetch(
    coordinator: GroupCoordinator,
    group_id: str,
    asked: Sequence[TopicPartition] | None,
    *,
    member_id: str | None = None,
    member_epoch: int = -1,
    require_stable: bool = False,
) -> tuple[ErrorCode, list[Fetched]]:
    """Returns (error of the group, offsets) for the partitions `asked`, or for all that have an offset if it is None.

    Raises:
        GroupError: the group is led elsewhere or still being loaded.
    """
    shard = coordinator.shard(group_id)
    group = shard.groups.get(group_id)
    if group is not None and (error := group.check_fetch(member_id, member_epoch)):
        return error, []
    if asked is None:
        wanted = shard.offsets.keys_of(group_id)
    else:
        wanted = [OffsetKey(group_id, *topic_partition) for topic_partition in asked]
    return ErrorCode.NONE, [_fetched(shard, key, require_stable=require_stable) for key in wanted]


def _fetched(shard: Shard, key: OffsetKey, *, require_stable: bool) -> Fetched:
    topic_partition = TopicPartition(key.topic, key.partition)
    if require_stable and shard.offsets.is_pending(key):
        return Fetched(topic_partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = shard.offsets.get(key)
    if committed is None:
        return Fetched(topic_partition)
    return Fetched(topic_partition, committed.offset, committed.leader_epoch, committed.metadata)


def delete(
    coordinator: GroupCoordinator, group_id: str, asked: Sequence[TopicPartition]
) -> asyncio.Future[tuple[ErrorCode, Mapping[TopicPartition, ErrorCode]]]:
    """Deletes offsets (KIP-496); the future gets the error of the group and one for each partition.

    Raises:
        GroupError: the group is led elsewhere or still being loaded.
    """
    response: asyncio.Future[tuple[ErrorCode, Mapping[TopicPartition, ErrorCode]]]
    response = asyncio.get_running_loop().create_future()
    shard = coordinator.shard(group_id)
    group = shard.groups.get(group_id)
    error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete_offsets()
    if not group_id:
        error = ErrorCode.INVALID_GROUP_ID
    if group is None or error:
        response.set_result((error, {}))
        return response
    subscribed = {one for one in asked if group.is_subscribed(one.topic)}
    errors = {one: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if one in subscribed else ErrorCode.NONE for one in asked}
    keys = [OffsetKey(group_id, *one) for one in asked if one not in subscribed]
    kept = [key for key in keys if shard.offsets.get(key) is not None or shard.offsets.is_pending(key)]

    def replicated(error: ErrorCode) -> None:
        if not response.done():
            response.set_result((error, errors))

    shard.forget(kept, None, replicated)
    return response


class ZooKeeperOffsets:
    """The offsets in ZooKeeper. The methods block, so a worker thread calls them, and raise ZooKeeperError."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session

    def commit(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Replaces a group's offset of a partition in ZooKeeper."""
        self._session.put(paths.consumer_offset(group_id, topic, partition), str(offset).encode())

    def fetch(self, group_id: str, topic: str, partition: int) -> int | None:
        """Returns a group's offset of a partition in ZooKeeper; None without one."""
        path = paths.consumer_offset(group_id, topic, partition)
        if not (data := self._session.get(path)):
            return None
        try:
            return int(data)
        except ValueError:
            raise ZooKeeperError(f"{path} has {data[:40]!r}, which is no offset") from None
