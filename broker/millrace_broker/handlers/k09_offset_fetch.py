"""OffsetFetch, versions 0 to 9.

    v0  from ZooKeeper, where there is one     v2  all topics (null), error of the group    v3  throttle time
    v5  leader epoch   v6  flexible            v7  require stable (KIP-447)                 v8  many groups (KIP-709)
    v9  KIP-848 members

A partition without a committed offset is answered with offset -1 and no error; before v1 it is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from millrace.errors import ErrorCode, GroupError, ZooKeeperError
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode, field
from millrace.wire.encoder import Parts
from millrace.wire.legacy_offsets import decode_offset_fetch, encode_offset_fetch
from millrace_broker.groups import commits
from millrace_broker.groups.commits import NO_OFFSET, Fetched
from millrace_broker.groups.zookeeper_offsets import ZooKeeperOffsets
from millrace_broker.handlers.answers import answer, count_errors, error_codes
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.storage import TopicPartition

FIRST_VERSION_WITH_GROUP_ERROR = 2
FIRST_VERSION_WITH_MANY_GROUPS = 8


class _Topic(NamedTuple):
    """Partitions of a topic that are asked for."""

    name: str
    partitions: tuple[int, ...]


def handle(services: Services, request: Request) -> Reply:
    """Give the committed offsets of one group or of many."""
    version = request.version
    if version == 0:
        return _legacy(services, decode_offset_fetch(request.body))
    message = decode(ApiKey.OFFSET_FETCH, version, Direction.REQUEST, request.body)
    require_stable = field(message, "require_stable", False)
    if version >= FIRST_VERSION_WITH_MANY_GROUPS:
        asked = {group.group_id: group for group in message.groups}  # each is told once
        groups = [_group(services, version, group, require_stable=require_stable) for group in asked.values()]
        fields: dict[str, Any] = {"groups": groups}
    else:
        fields = _group(services, version, message, require_stable=require_stable)
    return answer(services, ApiKey.OFFSET_FETCH, version, {"throttle_time": 0, **fields})


def _group(services: Services, version: int, group: Any, *, require_stable: bool) -> dict[str, Any]:
    topics = group.topics
    asked = None if topics is None else _once([_Topic(topic.name, topic.partition_indexes) for topic in topics])
    wanted = None if asked is None else [TopicPartition(one.name, index) for one in asked for index in one.partitions]
    try:
        error, fetched = commits.fetch(
            services.groups,
            group.group_id,
            wanted,
            member_id=field(group, "member_id", None),
            member_epoch=field(group, "member_epoch", -1),
            require_stable=require_stable,
        )
    except GroupError as refused:
        error, fetched = refused.code, []
    if error:
        topics = _failed(asked or (), error) if version < FIRST_VERSION_WITH_GROUP_ERROR else []
        return {"group_id": group.group_id, "topics": topics, "error_code": error}
    topics = _all(fetched) if asked is None else _asked(asked, fetched)
    return {"group_id": group.group_id, "topics": topics, "error_code": error}


def _once(topics: Sequence[_Topic]) -> list[_Topic]:
    """Each partition at its first place: one that is named often, with metadata of 4 KiB, is told once."""
    seen: set[tuple[str, int]] = set()
    once = []
    for topic in topics:
        keys = {(topic.name, index): index for index in topic.partitions}
        once.append(topic._replace(partitions=tuple(index for key, index in keys.items() if key not in seen)))
        seen.update(keys)
    return once


def _asked(asked: Sequence[_Topic], fetched: Sequence[Fetched]) -> list[dict[str, Any]]:
    """The answers in the order of the request."""
    answers = iter(fetched)
    return [
        {"name": topic.name, "partitions": [_partition(next(answers)) for _ in topic.partitions]} for topic in asked
    ]


def _all(fetched: Sequence[Fetched]) -> list[dict[str, Any]]:
    """All topics that have offsets."""
    topics: dict[str, dict[str, Any]] = {}
    for one in fetched:
        name = one.topic_partition.topic
        topic = topics.setdefault(name, {"name": name, "partitions": []})
        topic["partitions"].append(_partition(one))
    return list(topics.values())


def _failed(asked: Sequence[_Topic], error: ErrorCode) -> list[dict[str, Any]]:
    failed = [Fetched(TopicPartition(topic.name, index), error=error) for topic in asked for index in topic.partitions]
    return _asked(asked, failed)


def _partition(one: Fetched) -> dict[str, Any]:
    return {
        "partition_index": one.topic_partition.partition,
        "committed_offset": one.offset,
        "committed_leader_epoch": one.leader_epoch,
        "metadata": one.metadata,
        "error_code": one.error,
    }


def _legacy(services: Services, message: Any) -> Reply:
    """Version 0."""
    asked = [_Topic(topic.name, topic.partition_indexes) for topic in message.topics]
    wanted = [TopicPartition(topic.name, index) for topic in asked for index in topic.partitions]
    if services.zookeeper_offsets is not None:
        return asyncio.ensure_future(
            _legacy_answer(services, services.zookeeper_offsets, message.group_id, asked, wanted)
        )
    try:
        _, fetched = commits.fetch(services.groups, message.group_id, wanted)
    except GroupError as refused:
        return _legacy_parts(services, _failed(asked, refused.code))
    return _legacy_parts(services, _asked(asked, [_known(one) for one in fetched]))


async def _legacy_answer(
    services: Services,
    offsets: ZooKeeperOffsets,
    group_id: str,
    asked: Sequence[_Topic],
    wanted: Sequence[TopicPartition],
) -> Parts:
    fetched = [await asyncio.to_thread(_from_zookeeper, offsets, group_id, one) for one in wanted]
    return _legacy_parts(services, _asked(asked, [_known(one) for one in fetched]))


def _legacy_parts(services: Services, topics: list[dict[str, Any]]) -> Parts:
    count_errors(services, ApiKey.OFFSET_FETCH, error_codes({"topics": topics}))
    return encode_offset_fetch(topics)


def _from_zookeeper(offsets: ZooKeeperOffsets, group_id: str, wanted: TopicPartition) -> Fetched:
    try:
        offset = offsets.fetch(group_id, *wanted)
    except ZooKeeperError as error:
        return Fetched(wanted, error=error.code)
    return Fetched(wanted, NO_OFFSET if offset is None else offset)


def _known(one: Fetched) -> Fetched:
    is_missing = one.offset == NO_OFFSET and not one.error
    return one._replace(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if is_missing else one


API = Api(ApiKey.OFFSET_FETCH, VersionRange(0, 9), handle)
