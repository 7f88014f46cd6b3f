"""DescribeTransactions, ListTransactions and DescribeProducers: what administrators ask of transactions (KIP-664).

    DescribeTransactions  v0         the producer and the partitions of transactional ids
    ListTransactions      v0 to v2   v1  filter by duration (KIP-994)    v2  pattern of ids (KIP-1152)
    DescribeProducers     v0         the producers that a partition's log remembers

Any replica tells of its own log: kafka-transactions asks one broker for all of the partitions that it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, MillraceError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS
from millrace_broker.cluster.topics import check_topic_name
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.partitions import any_replica
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition, by_topic
from millrace_broker.txns.transaction_coordinator import Filter, find_transaction, list_transactions

if TYPE_CHECKING:
    from millrace.wire.messages.describe_producers import (
        DescribeProducersResponseFields,
        PartitionResponseFields,
        TopicResponseFields,
    )
    from millrace.wire.messages.describe_transactions import DescribeTransactionsResponseFields, TransactionStateFields
    from millrace.wire.messages.list_transactions import ListTransactionsResponseFields

DESCRIBE_GUARD = Guard(ApiKey.DESCRIBE_TRANSACTIONS, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_TOPIC_GUARD = Guard(ApiKey.DESCRIBE_TRANSACTIONS, AclOperation.DESCRIBE, ResourceType.TOPIC)
LIST_GUARD = Guard(ApiKey.LIST_TRANSACTIONS, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
PRODUCERS_GUARD = Guard(ApiKey.DESCRIBE_PRODUCERS, AclOperation.READ, ResourceType.TOPIC)


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
    Api(ApiKey.DESCRIBE_TRANSACTIONS, VersionRange(0, 0), describe, guards=(DESCRIBE_GUARD, DESCRIBE_TOPIC_GUARD)),
    Api(ApiKey.LIST_TRANSACTIONS, VersionRange(0, 2), list_all, guards=(LIST_GUARD,)),
    Api(ApiKey.DESCRIBE_PRODUCERS, VersionRange(0, 0), describe_producers, guards=(PRODUCERS_GUARD,)),
)
