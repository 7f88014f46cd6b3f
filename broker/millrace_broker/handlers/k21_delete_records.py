"""DeleteRecords, versions 0 to 2 (KIP-107); v2 flexible.

The log start offset rises to the given offset, where -1 means the high watermark, and is on the disk before the
response. The response waits until the followers that are alive have deleted the records, too
(`delayed_delete_records`). The next retention pass deletes the segments below it. A topic that is only compacted keeps
its records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, InvalidTopicError, MillraceError, OffsetOutOfRangeError, PolicyViolationError
from millrace.internal_topics import INTERNAL_TOPICS
from millrace.records.batch import NO_OFFSET
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import milliseconds
from millrace.wire.encoder import Parts
from millrace.wire.messages import DELETE_RECORDS
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.partitions import led_partition
from millrace_broker.handlers.responses import respond
from millrace_broker.replication.delayed_delete_records import Deleted, Outcomes, until_all_have_deleted
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.delete_records import (
        DeleteRecordsPartitionResultFields,
        DeleteRecordsResponseFields,
        DeleteRecordsTopicResultFields,
    )

HIGH_WATERMARK = -1
GUARD = Guard(ApiKey.DELETE_RECORDS, AclOperation.DELETE, ResourceType.TOPIC)


def handle(services: Services, request: Request) -> Reply:
    """Raises each log start offset, and answers once they are on the disk and all live replicas have deleted."""
    message = DELETE_RECORDS.decode_request(request.version, request.body)
    topics: list[DeleteRecordsTopicResultFields] = [
        {
            "name": topic.name,
            "partitions": [
                _delete(services, request, TopicPartition(topic.name, partition.partition_index), partition.offset)
                for partition in each(topic.partitions)
            ],
        }
        for topic in message.topics
    ]
    return later(_respond(services, request.version, topics, milliseconds(message.timeout)))


async def _respond(
    services: Services, version: int, topics: list[DeleteRecordsTopicResultFields], wait_ms: int
) -> Parts:
    deleted = {
        TopicPartition(topic["name"], one["partition_index"]): one
        for topic in topics
        for one in topic["partitions"]
        if one["error_code"] == ErrorCode.NONE
    }
    for key, outcome in (await _all_deleted(services, deleted, wait_ms)).items():
        deleted[key] |= {"low_watermark": outcome.low_watermark, "error_code": outcome.error_code}
    fields: DeleteRecordsResponseFields = {"throttle_time": 0, "topics": topics}
    return respond(services, DELETE_RECORDS, version, fields)


async def _all_deleted(
    services: Services, deleted: Mapping[TopicPartition, DeleteRecordsPartitionResultFields], wait_ms: int
) -> Outcomes:
    """Waits for the disk, and then for the followers to begin where the leader does."""
    if not deleted:
        return {}
    try:
        await asyncio.to_thread(services.replicas.checkpoint_log_start_offsets)
    except MillraceError as error:
        return dict.fromkeys(deleted, Deleted(NO_OFFSET, ErrorCode(error.code)))
    offsets = {key: one["low_watermark"] for key, one in deleted.items()}
    return await until_all_have_deleted(services.replicas, offsets, wait_ms)


def _delete(
    services: Services, request: Request, topic_partition: TopicPartition, offset: int
) -> DeleteRecordsPartitionResultFields:
    """Returns the response, in which the low watermark is the offset at which the leader's log begins."""
    try:
        GUARD.check(services, request.session, topic_partition.topic)
        low_watermark, code = _raise_log_start(services, topic_partition, offset), ErrorCode.NONE
    except MillraceError as error:
        low_watermark, code = NO_OFFSET, error.code
    return {"partition_index": topic_partition.partition, "low_watermark": low_watermark, "error_code": code}


def _raise_log_start(services: Services, topic_partition: TopicPartition, offset: int) -> int:
    if topic_partition.topic in INTERNAL_TOPICS:
        raise InvalidTopicError(f"{topic_partition.topic} is an internal topic: its records can't be deleted")
    partition = led_partition(services, topic_partition)
    if not partition.log.config.is_deleted:
        policy = partition.log.config.cleanup_policy
        raise PolicyViolationError(f"{topic_partition} keeps its records, as its topic has cleanup.policy={policy}")
    end = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= end <= partition.high_watermark:
        raise OffsetOutOfRangeError(f"{topic_partition}: {offset} is not in 0..{partition.high_watermark}")
    services.replicas.raise_log_start_offset(partition, end)
    return partition.log.log_start_offset


API = Api(ApiKey.DELETE_RECORDS, VersionRange(0, 2), handle, guards=(GUARD,))
