"""OffsetCommit and TxnOffsetCommit: what a group has read, at once or when a transaction commits.

    OffsetCommit     v0 to v9   v0  into ZooKeeper, where there is one    v1  generation, member, timestamps
                                v2 to v4  a retention time    v3  throttle time    v6  leader epoch
                                v7  static members    v8  flexible
                                v9  KIP-848 members, GROUP_ID_NOT_FOUND for an unknown group
    TxnOffsetCommit  v0 to v5   offsets that count when their transaction commits (KIP-98, KIP-447)
                                v2  leader epoch    v3  flexible; generation, member and instance, which fence as
                                OffsetCommit does    v4  TRANSACTION_ABORTABLE
                                v5  the group's partition joins the transaction without AddOffsetsToTxn (KIP-890)

A partition that does not exist is answered UNKNOWN_TOPIC_OR_PARTITION; the others are committed. Another broker may
coordinate the transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from millrace.errors import ErrorCode, GroupError, ZooKeeperError
from millrace.records.record import BatchProducer
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.api_messages import Answered
from millrace.wire.cold import milliseconds
from millrace.wire.encoder import Parts
from millrace.wire.messages import OFFSET_COMMIT, TXN_OFFSET_COMMIT
from millrace_broker.groups import commits
from millrace_broker.groups.commits import Commit, ZooKeeperOffsets
from millrace_broker.groups.group import Committer
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.partitions import is_known
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.admission import ClientSupport, TransactionalWrite, Verification
from millrace_broker.txns.state import Producer

if TYPE_CHECKING:
    from millrace.wire.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitResponseFields,
        OffsetCommitResponseTopicFields,
    )
    from millrace.wire.messages.txn_offset_commit import (
        TxnOffsetCommitRequest,
    )

DEFAULT_RETENTION_MS = -1
GUARD = Guard(ApiKey.OFFSET_COMMIT, AclOperation.READ, ResourceType.GROUP)
TOPIC_GUARD = Guard(ApiKey.OFFSET_COMMIT, AclOperation.READ, ResourceType.TOPIC)
FIRST_VERSION_WITH_LOAD_IN_PROGRESS = 2
FIRST_VERSION_WITH_GENERIC_ERRORS = 4
FIRST_VERSION_WITH_EPOCH_BUMP = 5
TXN_RESPONSES = cast("Answered[OffsetCommitResponseFields]", TXN_OFFSET_COMMIT)  # the fields are the same
TXN_GUARD = Guard(ApiKey.TXN_OFFSET_COMMIT, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
TXN_GROUP_GUARD = Guard(ApiKey.TXN_OFFSET_COMMIT, AclOperation.READ, ResourceType.GROUP)
TXN_TOPIC_GUARD = Guard(ApiKey.TXN_OFFSET_COMMIT, AclOperation.READ, ResourceType.TOPIC)


def commit(services: Services, request: Request) -> Reply:
    """Handles OffsetCommit: commits the offsets of the partitions that exist; the others get an error."""
    version = request.version
    message = OFFSET_COMMIT.decode_request(version, request.body)
    errors = _refusals(services, request, message)
    existing = [
        _offset(topic.name, one)
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
        committing = _commit_now(services, version, message, existing)
    return later(_respond(services, version, OFFSET_COMMIT, message, errors=errors, committing=committing))


async def _respond(
    services: Services,
    version: int,
    api: Answered[OffsetCommitResponseFields],
    message: OffsetCommitRequest | TxnOffsetCommitRequest,
    *,
    errors: commits.Errors,
    committing: asyncio.Future[commits.Errors] | None,
) -> Parts:
    """Returns the response with each partition's error, after `committing`, the future of errors, is done."""
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
    return respond(services, api, version, fields)


def _commit_now(
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
    """Returns the error code of each partition's commit that is refused, and NONE for the others."""
    is_denied = not GUARD.permits(services, request.session, message.group_id)
    return {
        TopicPartition(topic.name, one.partition_index): GUARD.error
        if is_denied
        else _refusal_of(services, request, topic.name, one.partition_index)
        for topic in message.topics
        for one in each(topic.partitions)
    }


def _refusal_of(services: Services, request: Request, topic: str, partition: int) -> ErrorCode:
    if not TOPIC_GUARD.permits(services, request.session, topic):
        return TOPIC_GUARD.error
    exists = services.metadata.partition(TopicPartition(topic, partition)) is not None
    return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _offset(topic: str, one: OffsetCommitRequestPartition) -> Commit:
    return Commit(
        topic_partition=TopicPartition(topic, one.partition_index),
        offset=one.committed_offset,
        leader_epoch=one.committed_leader_epoch,
        metadata=one.committed_metadata,
        commit_timestamp_ms=one.commit_timestamp,
    )


def commit_in_transaction(services: Services, request: Request) -> Reply:
    """Handles TxnOffsetCommit: commits offsets as part of a transaction; unknown partitions get an error."""
    message = TXN_OFFSET_COMMIT.decode_request(request.version, request.body)
    asked = {
        TopicPartition(topic.name, one.partition_index): one
        for topic in each(message.topics)
        for one in each(topic.partitions)
    }
    errors = {key: _refusal(services, request, message, key) for key in each(asked)}
    existing = [
        Commit(key, one.committed_offset, one.committed_leader_epoch, one.committed_metadata)
        for key, one in each(asked.items())
        if not errors[key]
    ]
    # At once where it can be, not in a task: the next request on this connection must find the offsets.
    committing = _into_group(services, request.version, message, existing) if existing else None
    return later(_respond(services, request.version, TXN_RESPONSES, message, errors=errors, committing=committing))


def _refusal(services: Services, request: Request, message: TxnOffsetCommitRequest, key: TopicPartition) -> ErrorCode:
    """Returns the error code where a partition's offset may not be committed; NONE where it may."""
    if not TXN_GUARD.permits(services, request.session, message.transactional_id):
        return TXN_GUARD.error
    if not TXN_GROUP_GUARD.permits(services, request.session, message.group_id):
        return TXN_GROUP_GUARD.error
    if not TXN_TOPIC_GUARD.permits(services, request.session, key.topic):
        return TXN_TOPIC_GUARD.error
    return ErrorCode.NONE if is_known(services, key) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _into_group(
    services: Services, version: int, message: TxnOffsetCommitRequest, existing: Sequence[Commit]
) -> asyncio.Future[commits.Errors]:
    admitted = _admission(services, version, message)
    if isinstance(admitted, Verification):
        return later(_once_verified(services, version, message, existing, admitted))
    return _commit_all(services, version, message, existing, admitted)


async def _once_verified(
    services: Services,
    version: int,
    message: TxnOffsetCommitRequest,
    existing: Sequence[Commit],
    verification: Verification,
) -> commits.Errors:
    (error,) = (await verification.errors()).values()
    return await _commit_all(services, version, message, existing, error)


def _commit_all(
    services: Services, version: int, message: TxnOffsetCommitRequest, existing: Sequence[Commit], error: ErrorCode
) -> asyncio.Future[commits.Errors]:
    """Begins to commit the offsets, or refuses all with `error`; returns the future of each partition's error."""
    committer = Committer(
        member_id=message.member_id,
        instance_id=message.group_instance_id,
        generation=message.generation_id,
        version=version,
        is_transactional=True,
    )
    if not error:
        producer = BatchProducer(message.producer_id, message.producer_epoch, base_sequence=0)
        try:
            return commits.commit_in_transaction(services.groups, message.group_id, committer, existing, producer)
        except GroupError as refused:
            error = refused.code
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_VERSION_WITH_LOAD_IN_PROGRESS:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return commits.refused(existing, error)


def _admission(services: Services, version: int, message: TxnOffsetCommitRequest) -> ErrorCode | Verification:
    """Returns NONE if the transaction may commit to the group's partition of `__consumer_offsets`, else the error.

    Where only the transaction's coordinator can tell, returns the Verification that asks it.
    """
    if not message.group_id:
        return ErrorCode.INVALID_GROUP_ID
    topic = services.groups.topic
    key = TopicPartition(topic.name, topic.partition_of(message.group_id))
    partition = services.replicas.partitions.get(key)
    if partition is None:
        return ErrorCode.NOT_COORDINATOR
    producer = Producer(message.producer_id, message.producer_epoch)
    support = ClientSupport.of(version, FIRST_VERSION_WITH_GENERIC_ERRORS, FIRST_VERSION_WITH_EPOCH_BUMP)
    write = TransactionalWrite(message.transactional_id, producer, support)
    admitted = services.admission.admit(write, {key: partition})
    return admitted if isinstance(admitted, Verification) else admitted[key]


APIS = (
    Api(ApiKey.OFFSET_COMMIT, VersionRange(0, 9), commit, guards=(GUARD, TOPIC_GUARD)),
    Api(
        ApiKey.TXN_OFFSET_COMMIT,
        VersionRange(0, 5),
        commit_in_transaction,
        guards=(TXN_GUARD, TXN_GROUP_GUARD, TXN_TOPIC_GUARD),
    ),
)
