"""DeleteRecords, versions 0 to 2 (KIP-107); v2 flexible.

The log start offset rises to the given offset, where -1 means the high watermark, and is on the disk before the answer.
The next retention pass deletes the segments below it. A topic that is only compacted keeps its records.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, InvalidTopicError, MillraceError, OffsetOutOfRangeError, PolicyViolationError
from millrace.internal_topics import INTERNAL_TOPICS
from millrace.records.batch import NO_OFFSET
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import DELETE_RECORDS
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.delete_records import (
        DeleteRecordsPartitionResultFields,
        DeleteRecordsResponseFields,
        DeleteRecordsTopicResultFields,
    )

HIGH_WATERMARK = -1


def handle(services: Services, request: Request) -> Reply:
    """Raises each log start offset, and answers once all of them are on the disk."""
    message = DELETE_RECORDS.decode_request(request.version, request.body)
    topics: list[DeleteRecordsTopicResultFields] = [
        {
            "name": topic.name,
            "partitions": [
                _delete(services, TopicPartition(topic.name, partition.partition_index), partition.offset)
                for partition in topic.partitions
            ],
        }
        for topic in message.topics
    ]
    return asyncio.ensure_future(_answer(services, request.version, topics))


async def _answer(services: Services, version: int, topics: list[DeleteRecordsTopicResultFields]) -> Parts:
    deleted = [one for topic in topics for one in topic["partitions"] if one["error_code"] == ErrorCode.NONE]
    if deleted:
        try:
            await asyncio.to_thread(services.replicas.checkpoint_log_start_offsets)
        except MillraceError as error:
            for one in deleted:
                one |= {"low_watermark": NO_OFFSET, "error_code": error.code}
    fields: DeleteRecordsResponseFields = {"throttle_time": 0, "topics": topics}
    return answer(services, DELETE_RECORDS, version, fields)


def _delete(services: Services, topic_partition: TopicPartition, offset: int) -> DeleteRecordsPartitionResultFields:
    try:
        low_watermark, code = _raise_log_start(services, topic_partition, offset), ErrorCode.NONE
    except MillraceError as error:
        low_watermark, code = NO_OFFSET, error.code
    return {"partition_index": topic_partition.partition, "low_watermark": low_watermark, "error_code": code}


def _raise_log_start(services: Services, topic_partition: TopicPartition, offset: int) -> int:
    if topic_partition.topic in INTERNAL_TOPICS:
        raise InvalidTopicError(f"{topic_partition.topic} is an internal topic: its records can't be deleted")
    partition = services.replicas.partition(topic_partition)
    if not partition.log.config.is_deleted:
        policy = partition.log.config.cleanup_policy
        raise PolicyViolationError(f"{topic_partition} keeps its records, as its topic has cleanup.policy={policy}")
    end = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= end <= partition.high_watermark:
        raise OffsetOutOfRangeError(f"{topic_partition}: {offset} is not in 0..{partition.high_watermark}")
    partition.log.raise_log_start_offset(end)
    return partition.log.log_start_offset


API = Api(ApiKey.DELETE_RECORDS, VersionRange(0, 2), handle)
