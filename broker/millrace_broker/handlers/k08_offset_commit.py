"""OffsetCommit, versions 0 to 9.

    v0  into ZooKeeper, where there is one    v1  generation, member, timestamps   v2-v4  a retention time
    v3  throttle time   v6  leader epoch      v7  static members                   v8     flexible
    v9  KIP-848 members, GROUP_ID_NOT_FOUND for an unknown group

A partition that does not exist is answered UNKNOWN_TOPIC_OR_PARTITION; the others are committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, GroupError, ZooKeeperError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import milliseconds
from millrace.wire.encoder import Parts
from millrace.wire.messages import OFFSET_COMMIT
from millrace_broker.groups import commits
from millrace_broker.groups.commits import Commit
from millrace_broker.groups.group import Committer
from millrace_broker.groups.zookeeper_offsets import ZooKeeperOffsets
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitResponseFields,
        OffsetCommitResponseTopicFields,
    )

DEFAULT_RETENTION_MS = -1
GUARD = Guard(ApiKey.OFFSET_COMMIT, AclOperation.READ, ResourceType.GROUP)
TOPIC_GUARD = Guard(ApiKey.OFFSET_COMMIT, AclOperation.READ, ResourceType.TOPIC)


def handle(services: Services, request: Request) -> Reply:
    """Commits the offsets of the partitions that exist."""
    version = request.version
    message = OFFSET_COMMIT.decode_request(version, request.body)
    errors = _refusals(services, request, message)
    existing = [
        _commit(topic.name, one)
        for topic in message.topics
        for one in each(topic.partitions)
        if not errors[TopicPartition(topic.name, one.partition_index)]
    ]
    committing: asyncio.Future[commits.Errors] | None = None
    if version == 0 and services.zookeeper_offsets is not None and existing:
        work = asyncio.to_thread(_into_zookeeper, services.zookeeper_offsets, message.group_id, existing)
        committing = asyncio.ensure_future(work)
    elif existing:
        # At once, not in a task: the next request on this connection must find the offsets.
        committing = _into_group(services, version, message, existing)
    return later(_respond(services, version, message, committing=committing, errors=errors))


async def _respond(
    services: Services,
    version: int,
    message: OffsetCommitRequest,
    *,
    committing: asyncio.Future[commits.Errors] | None,
    errors: commits.Errors,
) -> Parts:
    if committing is not None:
        errors |= await committing
    topics: list[OffsetCommitResponseTopicFields] = [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": one.partition_index,
                    "error_code": errors[TopicPartition(topic.name, one.partition_index)],
                }
                for one in each(topic.partitions)
            ],
        }
        for topic in each(message.topics)
    ]
    fields: OffsetCommitResponseFields = {"throttle_time": 0, "topics": topics}
    return respond(services, OFFSET_COMMIT, version, fields)


def _into_group(
    services: Services, version: int, message: OffsetCommitRequest, existing: Sequence[Commit]
) -> asyncio.Future[commits.Errors]:
    committer = Committer(
        member_id=message.member_id,
        instance_id=message.group_instance_id,
        generation=message.generation_id_or_member_epoch,
        version=version,
    )
    retention_ms = milliseconds(message.retention_time)
    kept_ms = None if retention_ms == DEFAULT_RETENTION_MS else retention_ms
    try:
        return commits.commit(services.groups, message.group_id, committer, existing, kept_ms)
    except GroupError as error:
        return commits.refused(existing, error.code)


def _into_zookeeper(offsets: ZooKeeperOffsets, group_id: str, existing: Sequence[Commit]) -> commits.Errors:
    errors: commits.Errors = {}
    for one in existing:
        try:
            offsets.commit(group_id, *one.topic_partition, one.offset)
            errors[one.topic_partition] = ErrorCode.NONE
        except ZooKeeperError as error:
            errors[one.topic_partition] = error.code
    return errors


def _refusals(services: Services, request: Request, message: OffsetCommitRequest) -> commits.Errors:
    """Returns the error of each partition to which nothing can be committed, and NONE for the others."""
    is_denied = not GUARD.permits(services, request.session, message.group_id)
    return {
        TopicPartition(topic.name, one.partition_index): GUARD.error
        if is_denied
        else _refusal(services, request, topic.name, one.partition_index)
        for topic in message.topics
        for one in each(topic.partitions)
    }


def _refusal(services: Services, request: Request, topic: str, partition: int) -> ErrorCode:
    if not TOPIC_GUARD.permits(services, request.session, topic):
        return TOPIC_GUARD.error
    exists = services.metadata.partition(TopicPartition(topic, partition)) is not None
    return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _commit(topic: str, one: OffsetCommitRequestPartition) -> Commit:
    return Commit(
        topic_partition=TopicPartition(topic, one.partition_index),
        offset=one.committed_offset,
        leader_epoch=one.committed_leader_epoch,
        metadata=one.committed_metadata,
        commit_timestamp_ms=one.commit_timestamp,
    )


API = Api(ApiKey.OFFSET_COMMIT, VersionRange(0, 9), handle, guards=(GUARD, TOPIC_GUARD))
