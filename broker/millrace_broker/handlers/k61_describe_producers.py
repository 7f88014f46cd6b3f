"""DescribeProducers, version 0 (KIP-664): the producers that a partition's log remembers.

Any replica tells of its own log: kafka-transactions asks one broker for all of the partitions that it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, MillraceError
from millrace.security.acls import AclOperation, ResourceType
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import DESCRIBE_PRODUCERS
from millrace_broker.cluster.topics import check_topic_name
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.partitions import any_replica
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.describe_producers import (
        DescribeProducersResponseFields,
        PartitionResponseFields,
        TopicResponseFields,
    )

GUARD = Guard(ApiKey.DESCRIBE_PRODUCERS, AclOperation.READ, ResourceType.TOPIC)


def handle(services: Services, request: Request) -> Reply:
    """Describes each partition's producers."""
    message = DESCRIBE_PRODUCERS.decode_request(request.version, request.body)
    topics: list[TopicResponseFields] = [
        {
            "name": topic.name,
            "partitions": [
                _described(services, request, TopicPartition(topic.name, index))
                for index in dict.fromkeys(topic.partition_indexes)
            ],
        }
        for topic in {one.name: one for one in message.topics}.values()  # each is answered once
    ]
    fields: DescribeProducersResponseFields = {"throttle_time": 0, "topics": topics}
    return respond(services, DESCRIBE_PRODUCERS, request.version, fields)


def _described(services: Services, request: Request, topic_partition: TopicPartition) -> PartitionResponseFields:
    result: PartitionResponseFields = {
        "partition_index": topic_partition.partition,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "active_producers": (),
    }
    try:
        check_topic_name(topic_partition.topic)
        GUARD.check(services, request.session, topic_partition.topic)
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


API = Api(ApiKey.DESCRIBE_PRODUCERS, VersionRange(0, 0), handle, guards=(GUARD,))
