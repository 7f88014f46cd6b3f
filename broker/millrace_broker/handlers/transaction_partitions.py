"""AddPartitionsToTxn and WriteTxnMarkers: the partitions of a transaction, and the markers that end it there (KIP-98).

    AddPartitionsToTxn  v0 to v3   one transaction, from its client    v2  PRODUCER_FENCED    v3  flexible
                        v4, v5     many transactions, from brokers; verify only (KIP-890)    v5  TRANSACTION_ABORTABLE
    WriteTxnMarkers     v0, v1     in partitions that this broker leads

Where one partition can't be added, none is: the others are answered OPERATION_NOT_ATTEMPTED. Any broker may lead them.

A marker comes from the transaction's coordinator on another broker, or from an administrator who ends a hanging
transaction (KIP-664). Markers of an older epoch of the producer or of its coordinator are refused.
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
from millrace.wire.messages import ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.partitions import is_known
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.markers import Marker
from millrace_broker.txns.state import EPOCH_BUMP_VERSION, NO_CLIENT_VERSION, Producer
from millrace_broker.txns.transaction import Result

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
    from millrace.wire.messages.write_txn_markers import (
        WritableTxnMarkerPartitionResultFields,
        WritableTxnMarkerResultFields,
        WritableTxnMarkerTopicResultFields,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponseFields,
    )

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_BATCHED_VERSION = 4
Errors = Mapping[TopicPartition, ErrorCode]
ADD_GUARD = Guard(ApiKey.ADD_PARTITIONS_TO_TXN, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
TOPIC_GUARD = Guard(ApiKey.ADD_PARTITIONS_TO_TXN, AclOperation.WRITE, ResourceType.TOPIC)
ADD_BROKER_GUARD = Guard(ApiKey.ADD_PARTITIONS_TO_TXN, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
WRITE_GUARD = Guard(ApiKey.WRITE_TXN_MARKERS, AclOperation.ALTER, ResourceType.CLUSTER, is_silent=True)
WRITE_BROKER_GUARD = Guard(ApiKey.WRITE_TXN_MARKERS, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)


def add_partitions(services: Services, request: Request) -> Reply:
    """Handles AddPartitionsToTxn: adds partitions to each transaction; with `verify_only` checks that it has them."""
    version = request.version
    message = ADD_PARTITIONS_TO_TXN.decode_request(version, request.body)
    if version >= FIRST_BATCHED_VERSION:
        return _take_brokers(services, request, message)
    keys = _keys(message.v3_and_below_topics)
    if not ADD_GUARD.permits(services, request.session, message.v3_and_below_transactional_id):
        return _respond_one(services, version, message, dict.fromkeys(keys, ADD_GUARD.error))
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
    if ADD_BROKER_GUARD.permits(services, request.session):
        return later(_respond_all(services, request.without_body(), message))
    fields: AddPartitionsToTxnResponseFields = {
        "throttle_time": 0,
        "error_code": ADD_BROKER_GUARD.error,
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
    """Returns an error for every partition of a request if any of them can't be added; an empty mapping if all can."""
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


def write_markers(services: Services, request: Request) -> Reply:
    """Handles WriteTxnMarkers: appends a marker to each partition; responds once the in-sync replicas have them all."""
    message = WRITE_TXN_MARKERS.decode_request(request.version, request.body)
    permitted = WRITE_GUARD.permits(services, request.session) or WRITE_BROKER_GUARD.permits(services, request.session)
    return later(_write(services, request.version, message, permitted=permitted))


async def _write(services: Services, version: int, message: WriteTxnMarkersRequest, *, permitted: bool) -> Parts:
    written: dict[int, dict[TopicPartition, asyncio.Future[ErrorCode]]] = {}
    for one in each(message.markers):
        marker = Marker(Producer(one.producer_id, one.producer_epoch), one.transaction_result, one.coordinator_epoch)
        for topic in each(one.topics):
            for index in each(topic.partition_indexes):
                key = TopicPartition(topic.name, index)
                writing = _written(services, key, marker) if permitted else _denied()
                written.setdefault(one.producer_id, {})[key] = writing
    markers = [
        _result(producer_id, {key: await error for key, error in each(errors.items())})
        for producer_id, errors in each(written.items())
    ]
    fields: WriteTxnMarkersResponseFields = {"markers": markers}
    return respond(services, WRITE_TXN_MARKERS, version, fields)


def _written(services: Services, key: TopicPartition, marker: Marker) -> asyncio.Future[ErrorCode]:
    ticket: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def then(error: ErrorCode) -> None:
        if not ticket.done():
            ticket.set_result(error)

    services.txns.markers.local.write(key, marker, then)
    return ticket


def _denied() -> asyncio.Future[ErrorCode]:
    denied: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    denied.set_result(WRITE_BROKER_GUARD.error)
    return denied


def _result(producer_id: int, errors: dict[TopicPartition, ErrorCode]) -> WritableTxnMarkerResultFields:
    topics: dict[str, list[WritableTxnMarkerPartitionResultFields]] = {}
    for key, error in each(errors.items()):
        topics.setdefault(key.topic, []).append({"partition_index": key.partition, "error_code": error})
    named: list[WritableTxnMarkerTopicResultFields] = [
        {"name": name, "partitions": partitions} for name, partitions in each(topics.items())
    ]
    return {"producer_id": producer_id, "topics": named}


APIS = (
    Api(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        VersionRange(0, 5),
        add_partitions,
        guards=(ADD_GUARD, TOPIC_GUARD, ADD_BROKER_GUARD),
    ),
    Api(ApiKey.WRITE_TXN_MARKERS, VersionRange(0, 1), write_markers, guards=(WRITE_GUARD, WRITE_BROKER_GUARD)),
)
