"""OffsetFetch, versions 0 to 9.

    v0  from ZooKeeper, where there is one     v2  all topics (null), an error for the group    v3  throttle time
    v5  leader epoch   v6  flexible            v7  require stable (KIP-447)                 v8  many groups (KIP-709)
    v9  KIP-848 members

A partition without a committed offset is answered with offset -1 and no error, but in v0 with an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from millrace.errors import ErrorCode, GroupError, ZooKeeperError
from millrace.records.batch import NO_OFFSET
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import OFFSET_FETCH
from millrace_broker.groups import commits
from millrace_broker.groups.commits import Fetched, ZooKeeperOffsets
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchResponseFields,
        OffsetFetchResponseGroupFields,
        OffsetFetchResponsePartitionFields,
        OffsetFetchResponseTopicFields,
    )

FIRST_VERSION_WITH_GROUP_ERROR = 2
FIRST_VERSION_WITH_MANY_GROUPS = 8
NO_MEMBER_EPOCH = -1
GUARD = Guard(ApiKey.OFFSET_FETCH, AclOperation.DESCRIBE, ResourceType.GROUP)
TOPIC_GUARD = Guard(ApiKey.OFFSET_FETCH, AclOperation.DESCRIBE, ResourceType.TOPIC)
ALL_GUARD = TOPIC_GUARD._replace(is_silent=True)


class _Topic(NamedTuple):
    """A topic and those of its partitions whose committed offsets a request asks for."""

    name: str
    partitions: tuple[int, ...]


class _Member(NamedTuple):
    """The group member that sends a request, and its member epoch; only requests from v9 on name a member."""

    member_id: str | None = None
    member_epoch: int = NO_MEMBER_EPOCH


def handle(services: Services, request: Request) -> Reply:
    """Handles OffsetFetch: responds with the committed offsets of one group or, from v8 on, of many."""
    version = request.version
    message = OFFSET_FETCH.decode_request(version, request.body)
    if version == 0:
        return _legacy(services, request, message)
    require_stable = message.require_stable
    if version >= FIRST_VERSION_WITH_MANY_GROUPS:
        # A group that is named twice is answered once.
        asked = {group.group_id: group for group in each(message.groups)}
        groups = [
            _group(
                services, request, group, _Member(group.member_id, group.member_epoch), require_stable=require_stable
            )
            for group in each(asked.values())
        ]
        fields: OffsetFetchResponseFields = {"throttle_time": 0, "groups": groups}
    else:
        group = _group(services, request, message, _Member(), require_stable=require_stable)
        fields = {"throttle_time": 0, "topics": group["topics"], "error_code": group["error_code"]}
    return respond(services, OFFSET_FETCH, version, fields)


def _group(
    services: Services,
    request: Request,
    group: OffsetFetchRequest | OffsetFetchRequestGroup,
    member: _Member,
    *,
    require_stable: bool,
) -> OffsetFetchResponseGroupFields:
    topics = group.topics
    asked = None if topics is None else _once([_Topic(topic.name, topic.partition_indexes) for topic in each(topics)])
    if not GUARD.permits(services, request.session, group.group_id):
        return _refused(request.version, group.group_id, asked, GUARD.error)
    hidden = _hidden(services, request, asked or ())
    seen = None if asked is None else [one for one in each(asked) if one.name not in hidden]
    wanted = None
    if seen is not None:
        wanted = [TopicPartition(one.name, index) for one in seen for index in each(one.partitions)]
    try:
        error, fetched = commits.fetch(
            services.groups,
            group.group_id,
            wanted,
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            require_stable=require_stable,
        )
    except GroupError as refused:
        error, fetched = refused.code, []
    if error:
        return _refused(request.version, group.group_id, asked, error)
    if asked is None or seen is None:
        found = [topic for topic in _all(fetched) if ALL_GUARD.permits(services, request.session, topic["name"])]
    else:
        found = _asked(seen, fetched) + _failed([one for one in each(asked) if one.name in hidden], TOPIC_GUARD.error)
    return {"group_id": group.group_id, "topics": found, "error_code": error}


def _refused(
    version: int, group_id: str, asked: Sequence[_Topic] | None, error: ErrorCode
) -> OffsetFetchResponseGroupFields:
    failed = _failed(asked or (), error) if version < FIRST_VERSION_WITH_GROUP_ERROR else []
    return {"group_id": group_id, "topics": failed, "error_code": error}


def _hidden(services: Services, request: Request, topics: Iterable[_Topic]) -> frozenset[str]:
    """Returns the names of those topics that the client may not describe."""
    names = dict.fromkeys(topic.name for topic in each(topics))
    return frozenset(name for name in each(names) if not TOPIC_GUARD.permits(services, request.session, name))


def _once(topics: Sequence[_Topic]) -> list[_Topic]:
    """Returns the topics without repeated partitions, so that an offset's metadata (up to 4 KiB) is sent only once."""
    seen: set[tuple[str, int]] = set()
    once = []
    for topic in each(topics):
        keys = {(topic.name, index): index for index in each(topic.partitions)}
        once.append(topic._replace(partitions=tuple(index for key, index in each(keys.items()) if key not in seen)))
        seen.update(keys)
    return once


def _asked(asked: Sequence[_Topic], fetched: Sequence[Fetched]) -> list[OffsetFetchResponseTopicFields]:
    """Returns the response's topics, grouped as in the request; `fetched` has a result per partition, in its order."""
    responses = iter(fetched)
    return [
        {"name": topic.name, "partitions": [_partition(next(responses)) for _ in topic.partitions]} for topic in asked
    ]


def _all(fetched: Sequence[Fetched]) -> list[OffsetFetchResponseTopicFields]:
    """Returns the response's topics, from all offsets that a group has committed."""
    topics: dict[str, list[OffsetFetchResponsePartitionFields]] = {}
    for one in fetched:
        topics.setdefault(one.topic_partition.topic, []).append(_partition(one))
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def _failed(asked: Sequence[_Topic], error: ErrorCode) -> list[OffsetFetchResponseTopicFields]:
    failed = [Fetched(TopicPartition(topic.name, index), error=error) for topic in asked for index in topic.partitions]
    return _asked(asked, failed)


def _partition(one: Fetched) -> OffsetFetchResponsePartitionFields:
    return {
        "partition_index": one.topic_partition.partition,
        "committed_offset": one.offset,
        "committed_leader_epoch": one.leader_epoch,
        "metadata": one.metadata,
        "error_code": one.error,
    }


def _legacy(services: Services, request: Request, message: OffsetFetchRequest) -> Reply:
    """Responds to v0 with the offsets in ZooKeeper, if there is one; a partition without an offset gets an error."""
    every = [_Topic(topic.name, topic.partition_indexes) for topic in message.topics or ()]
    if not GUARD.permits(services, request.session, message.group_id):
        return _legacy_parts(services, _failed(every, GUARD.error))
    hidden = _hidden(services, request, every)
    asked = [topic for topic in every if topic.name not in hidden]
    denied = _failed([topic for topic in every if topic.name in hidden], TOPIC_GUARD.error)
    if services.zookeeper_offsets is not None:
        return later(_legacy_response(services, services.zookeeper_offsets, message.group_id, asked, denied))
    wanted = [TopicPartition(topic.name, index) for topic in asked for index in topic.partitions]
    try:
        _, fetched = commits.fetch(services.groups, message.group_id, wanted)
    except GroupError as refused:
        return _legacy_parts(services, [*_failed(asked, refused.code), *denied])
    return _legacy_parts(services, [*_asked(asked, [_known(one) for one in fetched]), *denied])


async def _legacy_response(
    services: Services,
    offsets: ZooKeeperOffsets,
    group_id: str,
    asked: Sequence[_Topic],
    denied: Sequence[OffsetFetchResponseTopicFields],
) -> Parts:
    wanted = [TopicPartition(topic.name, index) for topic in asked for index in topic.partitions]
    fetched = [await asyncio.to_thread(_from_zookeeper, offsets, group_id, one) for one in wanted]
    return _legacy_parts(services, [*_asked(asked, [_known(one) for one in fetched]), *denied])


def _legacy_parts(services: Services, topics: Sequence[OffsetFetchResponseTopicFields]) -> Parts:
    fields: OffsetFetchResponseFields = {"topics": topics}
    return respond(services, OFFSET_FETCH, 0, fields)


def _from_zookeeper(offsets: ZooKeeperOffsets, group_id: str, wanted: TopicPartition) -> Fetched:
    try:
        offset = offsets.fetch(group_id, *wanted)
    except ZooKeeperError as error:
        return Fetched(wanted, error=error.code)
    return Fetched(wanted, NO_OFFSET if offset is None else offset)


def _known(one: Fetched) -> Fetched:
    is_missing = one.offset == NO_OFFSET and not one.error
    return one._replace(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if is_missing else one


API = Api(ApiKey.OFFSET_FETCH, VersionRange(0, 9), handle, guards=(GUARD, TOPIC_GUARD, ALL_GUARD))
