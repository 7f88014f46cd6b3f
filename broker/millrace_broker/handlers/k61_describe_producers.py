"""DescribeProducers, version 0 (KIP-664): the producers that a partition's log remembers."""

from __future__ import annotations

from typing import Any

from millrace.errors import ErrorCode, MillraceError
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode
from millrace_broker.cluster.topics import check_topic_name
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.storage import TopicPartition


def handle(services: Services, request: Request) -> Reply:
    """Describe each partition's producers."""
    message = decode(ApiKey.DESCRIBE_PRODUCERS, request.version, Direction.REQUEST, request.body)
    topics = [
        {
            "name": topic.name,
            "partitions": [
                _described(services, TopicPartition(topic.name, index))
                for index in dict.fromkeys(topic.partition_indexes)
            ],
        }
        for topic in {one.name: one for one in message.topics}.values()  # each is told once
    ]
    fields = {"throttle_time": 0, "topics": topics}
    return answer(services, ApiKey.DESCRIBE_PRODUCERS, request.version, fields)


def _described(services: Services, topic_partition: TopicPartition) -> dict[str, Any]:
    result: dict[str, Any] = {
        "partition_index": topic_partition.partition,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "active_producers": (),
    }
    try:
        check_topic_name(topic_partition.topic)
        entries = services.replicas.partition(topic_partition).log.producers.entries.values()
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


API = Api(ApiKey.DESCRIBE_PRODUCERS, VersionRange(0, 0), handle)
