"""ListOffsets, versions 1 to 11 (spec B5).

v1   one offset per timestamp     v2  isolation level      v4  leader epoch
v6   flexible                     v7  max timestamp (-3)   v8  earliest local (-4)
v9   latest tiered (-5)           v10 timeout              v11 earliest pending upload (-6)

timestamp  answer
   -1      the high watermark; for read_committed the last stable offset
   -2, -4  the log start offset (all of the log is local)
   -3      the offset of the largest timestamp
   -5, -6  none: there is no tiered storage
   t ≥ 0   the first offset whose timestamp is t or later; none if there is no such record
"""

from __future__ import annotations

from typing import Any

from millrace.errors import ErrorCode, MillraceError
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, decode, encode, field
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.replication.partition import Partition
from millrace_broker.storage import TopicPartition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
READ_COMMITTED = 1
NONE = (-1, -1)


def handle(services: Services, request: Request) -> Reply:
    """Look each partition's offset up."""
    message = decode(ApiKey.LIST_OFFSETS, request.version, Direction.REQUEST, request.body)
    committed = field(message, "isolation_level", 0) == READ_COMMITTED
    topics = [
        {
            "name": topic.name,
            "partitions": [_partition(services, topic.name, wanted, committed) for wanted in topic.partitions],
        }
        for topic in message.topics
    ]
    fields = {"throttle_time": 0, "topics": topics}
    return [encode(ApiKey.LIST_OFFSETS, request.version, Direction.RESPONSE, fields)]


def _partition(services: Services, topic: str, wanted: Any, committed: bool) -> dict[str, Any]:
    timestamp, offset, leader_epoch, code = -1, -1, -1, ErrorCode.NONE
    try:
        partition = services.replicas.partition(TopicPartition(topic, wanted.partition_index))
        partition.check_leader_epoch(field(wanted, "current_leader_epoch", -1))
        timestamp, offset = look_up(partition, wanted.timestamp, committed=committed)
        leader_epoch = partition.leader_epoch if offset >= 0 else -1
    except MillraceError as error:
        code = error.code
    return {
        "partition_index": wanted.partition_index,
        "error_code": code,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": leader_epoch,
    }


def look_up(partition: Partition, timestamp: int, *, committed: bool) -> tuple[int, int]:
    """(timestamp, offset) for a timestamp or a special value; (-1, -1) for none."""
    log = partition.log
    match timestamp:
        case _ if timestamp == LATEST:
            return -1, partition.last_stable_offset if committed else partition.high_watermark
        case _ if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return -1, log.log_start_offset
        case _ if timestamp == MAX_TIMESTAMP:
            return log.offset_of_max_timestamp() or NONE
        case _ if timestamp >= 0:
            return log.offset_for_timestamp(timestamp) or NONE
        case _:
            return NONE


API = Api(ApiKey.LIST_OFFSETS, VersionRange(1, 11), handle)
