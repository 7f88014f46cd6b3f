"""The requests of producers for their ids and transactions, and what administrators ask of these (KIP-664).

    InitProducerId        v0 to v5   an id for an idempotent producer (KIP-98), or the producer of a transactional id
                                     v2  flexible    v3  the producer's current id and epoch (KIP-360)
                                     v4  PRODUCER_FENCED    v5  TRANSACTION_ABORTABLE
    AddOffsetsToTxn       v0 to v4   a group's partition of `__consumer_offsets` joins a transaction (KIP-98)
                                     v2  PRODUCER_FENCED    v3  flexible    v4  TRANSACTION_ABORTABLE
    EndTxn                v0 to v5   commit or abort (KIP-98)
                                     v2  PRODUCER_FENCED    v3  flexible    v4  TRANSACTION_ABORTABLE
                                     v5  the epoch is bumped, and is in the response with the producer id, a new
                                     one where no epoch is left (KIP-890)
    DescribeTransactions  v0         the producer and the partitions of transactional ids
    ListTransactions      v0 to v2   v1  filter by duration (KIP-994)    v2  pattern of ids (KIP-1152)
    DescribeProducers     v0         the producers that a partition's log remembers

Without a transactional id each InitProducerId gets a new id with epoch 0, even one that names an id. While the next
block of ids can't be reserved, the response is COORDINATOR_NOT_AVAILABLE, and the client tries again.

Any broker may coordinate the group of AddOffsetsToTxn. The first request creates the topic, as FindCoordinator does.
While the topic is not in this broker's image, the response is COORDINATOR_NOT_AVAILABLE: the broker would take the
group's partition for a deleted one, which needs no marker.

The response to EndTxn leaves once the decision is stored. The markers follow; requests before they are written are
answered CONCURRENT_TRANSACTIONS.

Any replica answers DescribeProducers by its own log: kafka-transactions asks one broker for all of the partitions that
it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from millrace.errors import ErrorCode, MillraceError
from millrace.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.api_messages import Answered
from millrace.wire.cold import milliseconds
from millrace.wire.encoder import Parts
from millrace.wire.messages import (
    ADD_OFFSETS_TO_TXN,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
)
from millrace_broker.cluster.topics import check_topic_name
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.partitions import any_replica
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition, by_topic
from millrace_broker.txns.state import EPOCH_BUMP_VERSION, NO_CLIENT_VERSION, Producer
from millrace_broker.txns.transaction import End, InitProducer, Result
from millrace_broker.txns.transaction_coordinator import Filter, find_transaction, list_transactions

if TYPE_CHECKING:
    from millrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponseFields
    from millrace.wire.messages.describe_producers import (
        DescribeProducersResponseFields,
        PartitionResponseFields,
        TopicResponseFields,
    )
    from millrace.wire.messages.describe_transactions import DescribeTransactionsResponseFields, TransactionStateFields
    from millrace.wire.messages.init_producer_id import InitProducerIdResponseFields
    from millrace.wire.messages.list_transactions import ListTransactionsResponseFields

logger = logging.getLogger(__name__)
FIRST_WITH_PRODUCER_FENCED = {ApiKey.INIT_PRODUCER_ID: 4, ApiKey.ADD_OFFSETS_TO_TXN: 2, ApiKey.END_TXN: 2}
INIT_GUARD = Guard(ApiKey.INIT_PRODUCER_ID, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
INIT_CLUSTER_GUARD = Guard(ApiKey.INIT_PRODUCER_ID, AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, is_silent=True)
INIT_TOPIC_GUARD = Guard(ApiKey.INIT_PRODUCER_ID, AclOperation.WRITE, ResourceType.TOPIC)
ADD_GUARD = Guard(ApiKey.ADD_OFFSETS_TO_TXN, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
ADD_GROUP_GUARD = Guard(ApiKey.ADD_OFFSETS_TO_TXN, AclOperation.READ, ResourceType.GROUP)
FIRST_VERSION_WITH_EPOCH_BUMP = 5
END_GUARD = Guard(ApiKey.END_TXN, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_GUARD = Guard(ApiKey.DESCRIBE_TRANSACTIONS, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_TOPIC_GUARD = Guard(ApiKey.DESCRIBE_TRANSACTIONS, AclOperation.DESCRIBE, ResourceType.TOPIC)
LIST_GUARD = Guard(ApiKey.LIST_TRANSACTIONS, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
PRODUCERS_GUARD = Guard(ApiKey.DESCRIBE_PRODUCERS, AclOperation.READ, ResourceType.TOPIC)


def init_producer_id(services: Services, request: Request) -> Reply:
    """Handles InitProducerId: responds with a producer id and epoch, for a transactional or an idempotent producer."""
    message = INIT_PRODUCER_ID.decode_request(request.version, request.body)
    if denied := _denied(services, request, message.transactional_id):
        return _told(services, INIT_PRODUCER_ID, request.version, Result(denied))
    has_id = message.producer_id != NO_PRODUCER_ID
    has_epoch = message.producer_epoch != NO_PRODUCER_EPOCH
    if has_id != has_epoch:
        return _told(services, INIT_PRODUCER_ID, request.version, Result(ErrorCode.INVALID_REQUEST))
    if message.transactional_id is None:
        return later(_told_later(services, INIT_PRODUCER_ID, request.version, partial(_idempotent, services)))
    expected = Producer(message.producer_id, message.producer_epoch) if has_id else None
    init = InitProducer(milliseconds(message.transaction_timeout), expected)
    initialize = partial(services.txns.init_producer, message.transactional_id, init)
    return later(_told_later(services, INIT_PRODUCER_ID, request.version, initialize))


def _denied(services: Services, request: Request, transactional_id: str | None) -> ErrorCode:
    """Returns NONE if the client may get a producer id, else the authorization error.

    Without a transactional id, the right to write to any one topic is enough.
    """
    if transactional_id is not None:
        permitted = INIT_GUARD.permits(services, request.session, transactional_id)
        return ErrorCode.NONE if permitted else INIT_GUARD.error
    permitted = INIT_CLUSTER_GUARD.permits(services, request.session) or INIT_TOPIC_GUARD.permits_on_any(
        services, request.session
    )
    return ErrorCode.NONE if permitted else INIT_CLUSTER_GUARD.error


async def _idempotent(services: Services) -> Result:
    return Result(ErrorCode.NONE, Producer(await services.producer_ids.take(), 0))


async def _told_later(
    services: Services, api: Answered[Any], version: int, work: Callable[[], Awaitable[Result]]
) -> Parts:
    try:
        result = await work()  # begun here, as a client that is gone may have cancelled this before it began
    except MillraceError as failed:
        logger.warning("no producer id can be given: %s", failed)
        result = Result(ErrorCode.COORDINATOR_NOT_AVAILABLE if failed.retriable else failed.code)
    return _told(services, api, version, result)


def _told(services: Services, api: Answered[Any], version: int, result: Result) -> Parts:
    """Returns the encoded response of InitProducerId or EndTxn, which have the same fields, for a result."""
    fields: InitProducerIdResponseFields = {
        "throttle_time": 0,
        "error_code": _as_known(api.key, version, result.error),
        "producer_id": result.producer.producer_id,
        "producer_epoch": result.producer.epoch,
    }
    return respond(services, api, version, fields)


def _as_known(api_key: ApiKey, version: int, error: ErrorCode) -> ErrorCode:
    """Returns the error code; INVALID_PRODUCER_EPOCH for PRODUCER_FENCED in versions without the latter code."""
    if error is ErrorCode.PRODUCER_FENCED and version < FIRST_WITH_PRODUCER_FENCED[api_key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def add_offsets(services: Services, request: Request) -> Reply:
    """Handles AddOffsetsToTxn: adds the group's partition of `__consumer_offsets` to the transaction."""
    message = ADD_OFFSETS_TO_TXN.decode_request(request.version, request.body)
    if not ADD_GUARD.permits(services, request.session, message.transactional_id):
        return _added(services, request.version, ADD_GUARD.error)
    if not ADD_GROUP_GUARD.permits(services, request.session, message.group_id):
        return _added(services, request.version, ADD_GROUP_GUARD.error)
    if not services.groups.topic.exists:
        return later(_create_and_respond(services, request.version, message))
    adding = _add(services, message)
    if adding.done():  # as with one replica; a task for it would cost as much as the record
        return _added(services, request.version, adding.result().error)
    return later(_added_later(services, request.version, adding))


def _add(services: Services, message: AddOffsetsToTxnRequest) -> asyncio.Future[Result]:
    topic = services.groups.topic
    key = TopicPartition(topic.name, topic.partition_of(message.group_id))
    producer = Producer(message.producer_id, message.producer_epoch)
    return services.txns.add_partitions(message.transactional_id, producer, [key], NO_CLIENT_VERSION)


async def _create_and_respond(services: Services, version: int, message: AddOffsetsToTxnRequest) -> Parts:
    topic = services.groups.topic
    try:
        await topic.create()
    except MillraceError as error:
        logger.warning("%s can't be created: %s", topic.name, error)
    if not topic.exists:
        return _added(services, version, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return await _added_later(services, version, _add(services, message))


async def _added_later(services: Services, version: int, adding: asyncio.Future[Result]) -> Parts:
    return _added(services, version, (await adding).error)


def _added(services: Services, version: int, error: ErrorCode) -> Parts:
    code = _as_known(ApiKey.ADD_OFFSETS_TO_TXN, version, error)
    fields: AddOffsetsToTxnResponseFields = {"throttle_time": 0, "error_code": code}
    return respond(services, ADD_OFFSETS_TO_TXN, version, fields)


def end(services: Services, request: Request) -> Reply:
    """Handles EndTxn: commits or aborts the transaction; responds once that decision is in the coordinator's log."""
    version = request.version
    message = END_TXN.decode_request(version, request.body)
    if not END_GUARD.permits(services, request.session, message.transactional_id):
        return _told(services, END_TXN, version, Result(END_GUARD.error))
    client_version = EPOCH_BUMP_VERSION if version >= FIRST_VERSION_WITH_EPOCH_BUMP else NO_CLIENT_VERSION
    producer = Producer(message.producer_id, message.producer_epoch)
    ending = services.txns.end(message.transactional_id, End(producer, message.committed, client_version))
    if ending.done():  # as with one replica; a task for it would cost as much as the decision
        return _told(services, END_TXN, version, ending.result())
    return later(_told_later(services, END_TXN, version, lambda: ending))


def describe(services: Services, request: Request) -> Reply:
    """Responds to DescribeTransactions with the state, the producer and the partitions of each transactional id."""
    message = DESCRIBE_TRANSACTIONS.decode_request(request.version, request.body)
    described = [_transaction(services, request, one) for one in each(dict.fromkeys(message.transactional_ids))]
    fields: DescribeTransactionsResponseFields = {"throttle_time": 0, "transaction_states": described}
    return respond(services, DESCRIBE_TRANSACTIONS, request.version, fields)


def _transaction(services: Services, request: Request, transactional_id: str) -> TransactionStateFields:
    if not DESCRIBE_GUARD.permits(services, request.session, transactional_id):
        return _failed(transactional_id, DESCRIBE_GUARD.error)
    found = find_transaction(services.txns, transactional_id)
    if isinstance(found, ErrorCode):
        return _failed(transactional_id, found)
    kept = found.metadata
    seen = [
        one for one in sorted(kept.partitions) if DESCRIBE_TOPIC_GUARD.permits(services, request.session, one.topic)
    ]
    return {
        **_failed(transactional_id, ErrorCode.NONE),
        "transaction_state": str(kept.state),
        "transaction_timeout": kept.timeout_ms,
        "transaction_start_time": kept.start_timestamp_ms,
        "producer_id": kept.producer_id,
        "producer_epoch": kept.producer_epoch,
        "topics": [{"topic": topic, "partitions": partitions} for topic, partitions in by_topic(seen).items()],
    }


def _failed(transactional_id: str, error: ErrorCode) -> TransactionStateFields:
    return {
        "error_code": error,
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout": 0,
        "transaction_start_time": 0,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": (),
    }


def list_all(services: Services, request: Request) -> Reply:
    """Responds to ListTransactions with the ids that this broker coordinates and the request's filters match."""
    message = LIST_TRANSACTIONS.decode_request(request.version, request.body)
    wanted = Filter(
        states=message.state_filters,
        producer_ids=message.producer_id_filters,
        duration_ms=message.duration_filter,
        pattern=message.transactional_id_pattern,
    )
    error, listed = list_transactions(services.txns, wanted, services.txns.now_ms())
    fields: ListTransactionsResponseFields = {
        "throttle_time": 0,
        "error_code": error,
        "unknown_state_filters": () if error else wanted.unknown_states,
        "transaction_states": [
            {
                "transactional_id": one.transactional_id,
                "producer_id": one.metadata.producer_id,
                "transaction_state": str(one.state),
            }
            for one in listed
            if LIST_GUARD.permits(services, request.session, one.transactional_id)
        ],
    }
    return respond(services, LIST_TRANSACTIONS, request.version, fields)


def describe_producers(services: Services, request: Request) -> Reply:
    """Responds to DescribeProducers with the producers (ids, epochs, sequences) that each partition's log keeps."""
    message = DESCRIBE_PRODUCERS.decode_request(request.version, request.body)
    topics: list[TopicResponseFields] = [
        {
            "name": topic.name,
            "partitions": [
                _producers(services, request, TopicPartition(topic.name, index))
                for index in dict.fromkeys(topic.partition_indexes)
            ],
        }
        for topic in {one.name: one for one in message.topics}.values()  # each is answered once
    ]
    fields: DescribeProducersResponseFields = {"throttle_time": 0, "topics": topics}
    return respond(services, DESCRIBE_PRODUCERS, request.version, fields)


def _producers(services: Services, request: Request, topic_partition: TopicPartition) -> PartitionResponseFields:
    result: PartitionResponseFields = {
        "partition_index": topic_partition.partition,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "active_producers": (),
    }
    try:
        check_topic_name(topic_partition.topic)
        PRODUCERS_GUARD.check(services, request.session, topic_partition.topic)
        entries = any_replica(services, topic_partition).log.producers.entries.values()
    except MillraceError as error:
        return result | {"error_code": error.code, "error_message": str(error)}
    return result | {
        "active_producers": [
            {
                "producer_id": entry.producer_id,
                "producer_epoch": entry.epoch,
                "last_sequence": entry.last_sequence,
                "last_timestamp": entry.last_timestamp,
                "coordinator_epoch": entry.coordinator_epoch,
                "current_txn_start_offset": entry.transaction_first_offset,
            }
            for entry in entries
        ]
    }


APIS = (
    Api(
        ApiKey.INIT_PRODUCER_ID,
        VersionRange(0, 5),
        init_producer_id,
        guards=(INIT_GUARD, INIT_CLUSTER_GUARD, INIT_TOPIC_GUARD),
    ),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, VersionRange(0, 4), add_offsets, guards=(ADD_GUARD, ADD_GROUP_GUARD)),
    Api(ApiKey.END_TXN, VersionRange(0, 5), end, guards=(END_GUARD,)),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, VersionRange(0, 0), describe, guards=(DESCRIBE_GUARD, DESCRIBE_TOPIC_GUARD)),
    Api(ApiKey.LIST_TRANSACTIONS, VersionRange(0, 2), list_all, guards=(LIST_GUARD,)),
    Api(ApiKey.DESCRIBE_PRODUCERS, VersionRange(0, 0), describe_producers, guards=(PRODUCERS_GUARD,)),
)
