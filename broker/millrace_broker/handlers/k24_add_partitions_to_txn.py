"""AddPartitionsToTxn, versions 0 to 5: adds the partitions that a producer is going to write to (KIP-98).

v0-v3  one transaction, from its client      v2  PRODUCER_FENCED      v3  flexible
v4     many transactions, from brokers; verify only (KIP-890)         v5  TRANSACTION_ABORTABLE

Where one partition can't be added, none is: the others are answered OPERATION_NOT_ATTEMPTED. Any broker may lead them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode
from millrace.internal_topics import INTERNAL_TOPICS
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import ADD_PARTITIONS_TO_TXN
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.partitions import is_known
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.effects import Result
from millrace_broker.txns.metadata import EPOCH_BUMP_VERSION, NO_CLIENT_VERSION, Producer

if TYPE_CHECKING:
    from millrace.wire.messages.add_partitions_to_txn import (
        AddPartitionsToTxnPartitionResultFields,
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponseFields,
        AddPartitionsToTxnResultFields,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTopicResultFields,
        AddPartitionsToTxnTransaction,
    )

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_BATCHED_VERSION = 4
Errors = Mapping[TopicPartition, ErrorCode]

GUARD = Guard(ApiKey.ADD_PARTITIONS_TO_TXN, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
TOPIC_GUARD = Guard(ApiKey.ADD_PARTITIONS_TO_TXN, AclOperation.WRITE, ResourceType.TOPIC)
BROKER_GUARD = Guard(ApiKey.ADD_PARTITIONS_TO_TXN, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Adds the partitions to each transaction, or verifies that they are in it."""
    version = request.version
    message = ADD_PARTITIONS_TO_TXN.decode_request(version, request.body)
    if version >= FIRST_BATCHED_VERSION:
        return _take_brokers(services, request, message)
    keys = _keys(message.v3_and_below_topics)
    if not GUARD.permits(services, request.session, message.v3_and_below_transactional_id):
        return _respond_one(services, version, message, dict.fromkeys(keys, GUARD.error))
    if missing := _missing(services, request, keys):
        return _respond_one(services, version, message, missing)
    producer = Producer(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)
    adding = services.txns.add_partitions(message.v3_and_below_transactional_id, producer, keys, NO_CLIENT_VERSION)
    if adding.done():  # as with one replica; a task for it would cost as much as the record
        return _respond_one(services, version, message, _errors(version, keys, adding.result()))
    return later(_respond_later(services, version, message, keys, adding))


async def _respond_later(
    services: Services,
    version: int,
    message: AddPartitionsToTxnRequest,
    keys: Sequence[TopicPartition],
    adding: asyncio.Future[Result],
) -> Parts:
    return _respond_one(services, version, message, _errors(version, keys, await adding))


def _respond_one(services: Services, version: int, message: AddPartitionsToTxnRequest, errors: Errors) -> Parts:
    fields: AddPartitionsToTxnResponseFields = {
        "throttle_time": 0,
        "results_by_topic_v3_and_below": _topics(message.v3_and_below_topics, errors),
    }
    return respond(services, ADD_PARTITIONS_TO_TXN, version, fields)


def _take_brokers(services: Services, request: Request, message: AddPartitionsToTxnRequest) -> Reply:
    if BROKER_GUARD.permits(services, request.session):
        return later(_respond_all(services, request.without_body(), message))
    fields: AddPartitionsToTxnResponseFields = {
        "throttle_time": 0,
        "error_code": BROKER_GUARD.error,
        "results_by_transaction": (),
    }
    return respond(services, ADD_PARTITIONS_TO_TXN, request.version, fields)


async def _respond_all(services: Services, request: Request, message: AddPartitionsToTxnRequest) -> Parts:
    results = [await _batched(services, request, one) for one in each(message.transactions)]
    fields: AddPartitionsToTxnResponseFields = {
        "throttle_time": 0,
        "error_code": ErrorCode.NONE,
        "results_by_transaction": results,
    }
    return respond(services, ADD_PARTITIONS_TO_TXN, request.version, fields)


async def _batched(
    services: Services, request: Request, one: AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResultFields:
    producer, keys = Producer(one.producer_id, one.producer_epoch), _keys(one.topics)
    errors = _missing(services, request, keys)
    if not errors and one.verify_only:
        errors = services.txns.verify(one.transactional_id, producer, keys)
    elif not errors:
        added = await services.txns.add_partitions(one.transactional_id, producer, keys, EPOCH_BUMP_VERSION)
        errors = _errors(request.version, keys, added)
    return {"transactional_id": one.transactional_id, "topic_results": _topics(one.topics, errors)}


def _errors(version: int, keys: Sequence[TopicPartition], added: Result) -> Errors:
    error = added.error
    if error is ErrorCode.PRODUCER_FENCED and version < FIRST_VERSION_WITH_PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return dict.fromkeys(keys, error)


def _missing(services: Services, request: Request, keys: Sequence[TopicPartition]) -> Errors:
    """Returns an error for every partition if one can't be added; clients can't add those of internal topics."""
    errors = {key: error for key in each(keys) if (error := _refusal(services, request, key))}
    return dict.fromkeys(keys, ErrorCode.OPERATION_NOT_ATTEMPTED) | errors if errors else {}


def _refusal(services: Services, request: Request, key: TopicPartition) -> ErrorCode:
    if request.version < FIRST_BATCHED_VERSION and (
        key.topic in INTERNAL_TOPICS or not TOPIC_GUARD.permits(services, request.session, key.topic)
    ):
        return TOPIC_GUARD.error
    return ErrorCode.NONE if is_known(services, key) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _keys(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in each(topics) for index in each(topic.partitions)]


def _topics(topics: Iterable[AddPartitionsToTxnTopic], errors: Errors) -> list[AddPartitionsToTxnTopicResultFields]:
    results: dict[str, list[AddPartitionsToTxnPartitionResultFields]] = {topic.name: [] for topic in each(topics)}
    for (topic, index), error in each(errors.items()):
        results[topic].append({"partition_index": index, "partition_error_code": error})
    return [{"name": topic, "results_by_partition": partitions} for topic, partitions in each(results.items())]


API = Api(ApiKey.ADD_PARTITIONS_TO_TXN, VersionRange(0, 5), handle, guards=(GUARD, TOPIC_GUARD, BROKER_GUARD))
