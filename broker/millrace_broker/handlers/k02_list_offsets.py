"""ListOffsets, versions 0 to 10.

v0   many offsets before a timestamp      v1  one offset per timestamp
v2   isolation level                      v4  leader epoch
v6   flexible                             v7  max timestamp (-3)    v8   earliest local (-4)
v9   latest tiered (-5)                   v10 timeout

timestamp  answer
   -1      the high watermark; for read_committed the last stable offset; for a replica the log end
   -2, -4  the log start offset (all of the log is local)
   -3      the offset of the largest timestamp
   -5      none: there is no tiered storage
   t ≥ 0   the first offset whose timestamp is t or later; none if there is no such record
   other   UNSUPPORTED_VERSION, and so is a special value in a version from before it was added

Version 0 knows only -1, -2 and timestamps, which it compares with a segment's newest record (`offsets_before`).
Records that the reader may not see yet are not found. While the high watermark is below the start of the leader's
epoch, a consumer that asks for -1, or for a time that is not found below, gets OFFSET_NOT_AVAILABLE (KIP-207), before
v5 LEADER_NOT_AVAILABLE. A partition that is named twice is INVALID_REQUEST.

Only the leader answers, but for a tool that compares replicas (replica id -2), which any replica tells of its own log.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode, MillraceError
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.fetch_request import CONSUMER, REPLICA_COMPARISON
from millrace.wire.messages import LIST_OFFSETS
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.partitions import any_replica, isolation_of, led_partition
from millrace_broker.handlers.responses import respond
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.replica import Isolation, Replica
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsPartitionResponseFields,
        ListOffsetsRequest,
        ListOffsetsResponseFields,
        ListOffsetsTopicResponseFields,
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

GUARD = Guard(ApiKey.LIST_OFFSETS, AclOperation.DESCRIBE, ResourceType.TOPIC)


def handle(services: Services, request: Request) -> Reply:
    """Looks up each partition's offset."""
    message = LIST_OFFSETS.decode_request(request.version, request.body)
    named = Counter((topic.name, one.partition_index) for topic in message.topics for one in each(topic.partitions))
    topics: list[ListOffsetsTopicResponseFields] = []
    for topic in message.topics:
        listed: list[ListOffsetsPartitionResponseFields] = []
        is_denied = not GUARD.permits(services, request.session, topic.name)
        for one in each(topic.partitions):
            key = TopicPartition(topic.name, one.partition_index)
            if is_denied:
                listed.append(_failed(key, GUARD.error))
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
    """Returns the replica that answers, the led one for all but a tool that compares replicas."""
    find = any_replica if replica_id == REPLICA_COMPARISON else led_partition
    return find(services, key, current_leader_epoch)


def _may_be_above(timestamp: int, found: tuple[int, int, int], isolation: Isolation) -> bool:
    """Returns whether a consumer may have seen another response from the last leader."""
    if isolation is Isolation.LOG_END or timestamp in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED):
        return False
    return timestamp == LATEST or found == NONE


def look_up(replica: Replica, timestamp: int, isolation: Isolation) -> tuple[int, int, int]:
    """Returns (timestamp, offset, leader epoch) for a timestamp or a special value; each is -1 where there is none."""
    log = replica.log
    end = replica.visible_end(isolation)
    match timestamp:
        case _ if timestamp == LATEST:
            return -1, end, replica.leader_epoch
        case _ if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return -1, log.log_start_offset, replica.epoch_of(log.log_start_offset)
        case _ if timestamp == MAX_TIMESTAMP:
            found = log.offset_of_max_timestamp()
        case _ if timestamp >= 0:
            found = log.offset_for_timestamp(timestamp)
        case _:
            found = None
    return (*found, replica.epoch_of(found[1])) if found is not None and found[1] < end else NONE


API = Api(
    ApiKey.LIST_OFFSETS,
    VersionRange(0, 10),
    handle,
    refuses="special timestamps that the version does not have (UNSUPPORTED_VERSION)",
    guards=(GUARD,),
    is_long=True,  # to find a time, the records of a batch are gone through
)
