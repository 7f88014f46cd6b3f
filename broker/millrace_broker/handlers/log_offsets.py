"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: where a log has what, and where it begins.

    ListOffsets           v0 to v10   v0  many offsets before a timestamp    v1  one offset per timestamp
                                      v2  isolation level    v4  leader epoch    v6  flexible    v7  max timestamp (-3)
                                      v8  earliest local (-4)    v9  latest tiered (-5)    v10  timeout
    OffsetForLeaderEpoch  v0 to v4    KIP-101, KIP-320: the end offset of a leader epoch
                                      v1  the epoch that was found    v2  current leader epoch    v3  replica id
                                      v4  flexible
    DeleteRecords         v0 to v2    KIP-107; v2  flexible

What ListOffsets tells of a timestamp:

   -1      the high watermark; for read_committed the last stable offset; for a replica the log end
   -2, -4  the log start offset (all of the log is local)
   -3      the offset of the largest timestamp
   -5      none: there is no tiered storage
   t ≥ 0   the first offset whose timestamp is t or later; none if there is no such record
   other   UNSUPPORTED_VERSION, and so is a special value in a version from before it was added

Version 0 knows only -1, -2 and timestamps, which it compares with a segment's newest record (`offsets_before`).
Records that the reader may not see yet are not found. While the high watermark is below the start of the leader's
epoch, a consumer that asks for -1, or for a time that is not found below, gets OFFSET_NOT_AVAILABLE (KIP-207), before
v5 LEADER_NOT_AVAILABLE. A partition that is named twice is INVALID_REQUEST. Only the leader answers, but for a tool
that compares replicas (replica id -2), which any replica tells of its own log.

After a change of leaders a consumer asks for the end of an epoch, to learn whether the records that it has read are
still in the log.

DeleteRecords raises the log start offset to the given offset, where -1 means the high watermark; it is on the disk
before the response. That waits until the followers that are alive have deleted the records, too
(`delayed_requests`). The next retention pass deletes the segments below it. A topic that is only compacted keeps
its records.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, InvalidTopicError, MillraceError, OffsetOutOfRangeError, PolicyViolationError
from millrace.internal_topics import INTERNAL_TOPICS
from millrace.records.batch import NO_LEADER_EPOCH, NO_OFFSET
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import milliseconds
from millrace.wire.encoder import Parts
from millrace.wire.fetch import CONSUMER, REPLICA_COMPARISON
from millrace.wire.messages import DELETE_RECORDS, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.partitions import any_replica, isolation_of, led_partition
from millrace_broker.handlers.responses import respond
from millrace_broker.replication.damage_reports import fetch_error
from millrace_broker.replication.delayed_requests import Deleted, Outcomes, until_all_have_deleted
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.replica import Isolation, Replica
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.delete_records import (
        DeleteRecordsPartitionResultFields,
        DeleteRecordsResponseFields,
        DeleteRecordsTopicResultFields,
    )
    from millrace.wire.messages.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsPartitionResponseFields,
        ListOffsetsRequest,
        ListOffsetsResponseFields,
        ListOffsetsTopicResponseFields,
    )
    from millrace.wire.messages.offset_for_leader_epoch import (
        EpochEndOffsetFields,
        OffsetForLeaderEpochResponseFields,
        OffsetForLeaderPartition,
    )

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
FIRST_VERSION = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
NONE = (-1, -1, NO_LEADER_EPOCH)
FIRST_VERSION_WITH_NOT_YET = 5
NOT_YET, NO_LEADER_YET = ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE
LIST_GUARD = Guard(ApiKey.LIST_OFFSETS, AclOperation.DESCRIBE, ResourceType.TOPIC)
BROKER_GUARD = Guard(ApiKey.OFFSET_FOR_LEADER_EPOCH, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, is_silent=True)
EPOCH_GUARD = Guard(ApiKey.OFFSET_FOR_LEADER_EPOCH, AclOperation.DESCRIBE, ResourceType.TOPIC)
HIGH_WATERMARK = -1
DELETE_GUARD = Guard(ApiKey.DELETE_RECORDS, AclOperation.DELETE, ResourceType.TOPIC)


def list_offsets(services: Services, request: Request) -> Reply:
    """Responds to ListOffsets with the offset for each partition's timestamp or special value (-1: the end)."""
    message = LIST_OFFSETS.decode_request(request.version, request.body)
    named = Counter((topic.name, one.partition_index) for topic in message.topics for one in each(topic.partitions))
    topics: list[ListOffsetsTopicResponseFields] = []
    for topic in message.topics:
        listed: list[ListOffsetsPartitionResponseFields] = []
        is_denied = not LIST_GUARD.permits(services, request.session, topic.name)
        for one in each(topic.partitions):
            key = TopicPartition(topic.name, one.partition_index)
            if is_denied:
                listed.append(_failed(key, LIST_GUARD.error))
            elif named[key] > 1:
                listed.append(_failed(key, ErrorCode.INVALID_REQUEST))
            elif request.version == 0:
                listed.append(_list_before(services, message, key, one))
            else:
                listed.append(_list(services, request.version, message, key, one))
        topics.append({"name": topic.name, "partitions": listed})
    fields: ListOffsetsResponseFields = {"throttle_time": 0, "topics": topics}
    return respond(services, LIST_OFFSETS, request.version, fields)


def _failed(key: TopicPartition, code: int) -> ListOffsetsPartitionResponseFields:
    return {"partition_index": key.partition, "error_code": code}


def _list(
    services: Services, version: int, message: ListOffsetsRequest, key: TopicPartition, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponseFields:
    if wanted.timestamp < 0 and version < FIRST_VERSION.get(wanted.timestamp, version + 1):
        return _failed(key, ErrorCode.UNSUPPORTED_VERSION)
    isolation = isolation_of(message.replica_id, message.isolation_level)
    try:
        replica = _asked(services, key, message.replica_id, wanted.current_leader_epoch)
        found = timestamp, offset, epoch = look_up(replica, wanted.timestamp, isolation)
        is_behind = isinstance(replica, Partition) and replica.is_behind_its_epoch
        if is_behind and _may_be_above(wanted.timestamp, found, isolation):
            return _failed(key, NOT_YET if version >= FIRST_VERSION_WITH_NOT_YET else NO_LEADER_YET)
    except MillraceError as error:
        return _failed(key, error.code)
    return {
        "partition_index": key.partition,
        "error_code": 0,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": epoch,
    }


def _list_before(
    services: Services, message: ListOffsetsRequest, key: TopicPartition, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponseFields:
    if wanted.timestamp < EARLIEST:
        return _failed(key, ErrorCode.UNSUPPORTED_VERSION)
    try:
        replica = _asked(services, key, message.replica_id, NO_LEADER_EPOCH)
        end = replica.high_watermark if message.replica_id == CONSUMER else None
        offsets = replica.log.offsets_before(wanted.timestamp, wanted.max_num_offsets, up_to_offset=end)
    except MillraceError as error:
        return _failed(key, error.code)
    return {"partition_index": key.partition, "error_code": 0, "old_style_offsets": offsets}


def _asked(services: Services, key: TopicPartition, replica_id: int, current_leader_epoch: int) -> Replica:
    """Returns the leader's replica, or any one for a tool that compares replicas. Raises NotLeaderError and others."""
    find = any_replica if replica_id == REPLICA_COMPARISON else led_partition
    return find(services, key, current_leader_epoch)


def _may_be_above(timestamp: int, found: tuple[int, int, int], isolation: Isolation) -> bool:
    """Returns whether a former leader may have told a consumer a higher offset for the timestamp than `found`."""
    if isolation is Isolation.LOG_END or timestamp in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED):
        return False
    return timestamp == LATEST or found == NONE


def look_up(replica: Replica, timestamp: int, isolation: Isolation) -> tuple[int, int, int]:
    """Returns (timestamp, offset, leader epoch) for a timestamp or special value like -1; all -1 if there is none."""
    log = replica.log
    end = replica.visible_end(isolation)
    match timestamp:
        case _ if timestamp == LATEST:
            is_led = isinstance(replica, Partition)
            return -1, end, replica.leader_epoch if is_led else replica.epoch_of(end - 1)
        case _ if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return -1, log.log_start_offset, replica.epoch_of(log.log_start_offset)
        case _ if timestamp == MAX_TIMESTAMP:
            found = log.offset_of_max_timestamp()
        case _ if timestamp >= 0:
            found = log.offset_for_timestamp(timestamp)
        case _:
            found = None
    return (*found, replica.epoch_of(found[1])) if found is not None and found[1] < end else NONE


def offset_for_leader_epoch(services: Services, request: Request) -> Reply:
    """Responds to OffsetForLeaderEpoch with the offset at which each partition's leader epoch ends in the log."""
    message = OFFSET_FOR_LEADER_EPOCH.decode_request(request.version, request.body)
    is_broker = BROKER_GUARD.permits(services, request.session)
    fields: OffsetForLeaderEpochResponseFields = {
        "throttle_time": 0,
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [_end(services, topic.topic, one) for one in each(topic.partitions)]
                if is_broker or EPOCH_GUARD.permits(services, request.session, topic.topic)
                else [_no_end(one, EPOCH_GUARD.error) for one in each(topic.partitions)],
            }
            for topic in each(message.topics)
        ],
    }
    return respond(services, OFFSET_FOR_LEADER_EPOCH, request.version, fields)


def _end(services: Services, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffsetFields:
    try:
        key = TopicPartition(topic, wanted.partition)
        partition = led_partition(services, key, wanted.current_leader_epoch)
        epoch, end_offset = partition.end_of_epoch(wanted.leader_epoch)
    except MillraceError as error:
        return _no_end(wanted, fetch_error(error, services.replicas.replica(key)))
    return {"error_code": 0, "partition": wanted.partition, "leader_epoch": epoch, "end_offset": end_offset}


def _no_end(wanted: OffsetForLeaderPartition, code: int) -> EpochEndOffsetFields:
    return {"error_code": code, "partition": wanted.partition}


def delete_records(services: Services, request: Request) -> Reply:
    """Handles DeleteRecords: raises log start offsets; responds once all that may lead next have them on disk."""
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
    return later(_deleted(services, request.version, topics, milliseconds(message.timeout)))


async def _deleted(
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
    """Waits until the log start offsets are on disk and followers have raised theirs; returns each one's outcome."""
    if not deleted:
        return {}
    try:
        await asyncio.to_thread(services.replicas.logs.checkpoint)
    except MillraceError as error:
        return dict.fromkeys(deleted, Deleted(NO_OFFSET, ErrorCode(error.code)))
    offsets = {key: one["low_watermark"] for key, one in deleted.items()}
    return await until_all_have_deleted(services.replicas, offsets, wait_ms)


def _delete(
    services: Services, request: Request, topic_partition: TopicPartition, offset: int
) -> DeleteRecordsPartitionResultFields:
    """Deletes a partition's records below `offset`; returns the response's fields, with the new log start offset."""
    try:
        DELETE_GUARD.check(services, request.session, topic_partition.topic)
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


APIS = (
    Api(
        ApiKey.LIST_OFFSETS,
        VersionRange(0, 10),
        list_offsets,
        refuses="special timestamps that the version does not have (UNSUPPORTED_VERSION)",
        guards=(LIST_GUARD,),
        is_long=True,  # to find a time, the records of a batch are gone through
    ),
    Api(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, VersionRange(0, 4), offset_for_leader_epoch, guards=(BROKER_GUARD, EPOCH_GUARD)
    ),
    Api(ApiKey.DELETE_RECORDS, VersionRange(0, 2), delete_records, guards=(DELETE_GUARD,)),
)
