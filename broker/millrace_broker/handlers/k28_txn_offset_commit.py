"""TxnOffsetCommit, versions 0 to 5: offsets that count when their transaction commits (KIP-98, KIP-447).

v2  leader epoch      v3  flexible; generation, member and instance, which fence as OffsetCommit does
v4  TRANSACTION_ABORTABLE      v5  the group's partition joins the transaction without AddOffsetsToTxn (KIP-890)

A partition that does not exist is answered UNKNOWN_TOPIC_OR_PARTITION; the others are committed. Another broker may
coordinate the transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, GroupError
from millrace.records.record import BatchProducer
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import TXN_OFFSET_COMMIT
from millrace_broker.groups import commits
from millrace_broker.groups.commits import Commit
from millrace_broker.groups.group import Committer
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.partitions import is_known
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.metadata import Producer
from millrace_broker.txns.verification import ClientSupport, TransactionalWrite, Verification

if TYPE_CHECKING:
    from millrace.wire.messages.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestPartition,
        TxnOffsetCommitResponseFields,
        TxnOffsetCommitResponseTopicFields,
    )

FIRST_VERSION_WITH_LOAD_IN_PROGRESS = 2
FIRST_VERSION_WITH_GENERIC_ERRORS = 4
FIRST_VERSION_WITH_EPOCH_BUMP = 5
GUARD = Guard(ApiKey.TXN_OFFSET_COMMIT, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
GROUP_GUARD = Guard(ApiKey.TXN_OFFSET_COMMIT, AclOperation.READ, ResourceType.GROUP)
TOPIC_GUARD = Guard(ApiKey.TXN_OFFSET_COMMIT, AclOperation.READ, ResourceType.TOPIC)


def handle(services: Services, request: Request) -> Reply:
    """Commits the offsets of the partitions that exist."""
    message = TXN_OFFSET_COMMIT.decode_request(request.version, request.body)
    asked = {
        TopicPartition(topic.name, one.partition_index): one
        for topic in each(message.topics)
        for one in each(topic.partitions)
    }
    errors = {key: _refusal(services, request, message, key) for key in each(asked)}
    existing = [_commit(key, one) for key, one in each(asked.items()) if not errors[key]]
    # At once where it can be, not in a task: the next request on this connection must find the offsets.
    committing = _into_group(services, request.version, message, existing) if existing else None
    return later(_respond(services, request.version, message, errors, committing))


def _refusal(services: Services, request: Request, message: TxnOffsetCommitRequest, key: TopicPartition) -> ErrorCode:
    """Returns the error of a partition to which nothing can be committed, and NONE for another."""
    if not GUARD.permits(services, request.session, message.transactional_id):
        return GUARD.error
    if not GROUP_GUARD.permits(services, request.session, message.group_id):
        return GROUP_GUARD.error
    if not TOPIC_GUARD.permits(services, request.session, key.topic):
        return TOPIC_GUARD.error
    return ErrorCode.NONE if is_known(services, key) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _respond(
    services: Services,
    version: int,
    message: TxnOffsetCommitRequest,
    errors: commits.Errors,
    committing: asyncio.Future[commits.Errors] | None,
) -> Parts:
    if committing is not None:
        errors |= await committing
    topics: list[TxnOffsetCommitResponseTopicFields] = [
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
    fields: TxnOffsetCommitResponseFields = {"throttle_time": 0, "topics": topics}
    return respond(services, TXN_OFFSET_COMMIT, version, fields)


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
    """Commits the offsets at once, unless there is an error."""
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
    """Returns the error of the group's partition, NONE where it may take the offsets; or what tells it later."""
    if not message.group_id:
        return ErrorCode.INVALID_GROUP_ID
    topic = services.groups.topic
    key = TopicPartition(topic.name, topic.partition_of(message.group_id))
    partition = services.replicas.partitions.get(key)
    if partition is None:
        return ErrorCode.NOT_COORDINATOR
    producer = Producer(message.producer_id, message.producer_epoch)
    write = TransactionalWrite(message.transactional_id, producer, _support(version))
    admitted = services.admission.admit(write, {key: partition})
    return admitted if isinstance(admitted, Verification) else admitted[key]


def _support(version: int) -> ClientSupport:
    return ClientSupport.of(
        version,
        generic_error_since=FIRST_VERSION_WITH_GENERIC_ERRORS,
        epoch_bump_since=FIRST_VERSION_WITH_EPOCH_BUMP,
    )


def _commit(key: TopicPartition, one: TxnOffsetCommitRequestPartition) -> Commit:
    return Commit(key, one.committed_offset, one.committed_leader_epoch, one.committed_metadata)


API = Api(ApiKey.TXN_OFFSET_COMMIT, VersionRange(0, 5), handle, guards=(GUARD, GROUP_GUARD, TOPIC_GUARD))
