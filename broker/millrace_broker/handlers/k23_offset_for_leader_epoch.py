"""OffsetForLeaderEpoch, versions 0 to 4 (KIP-101, KIP-320): the end offset of a leader epoch.

v1  the epoch that was found      v2  current leader epoch      v3  replica id      v4  flexible

After a change of leaders a consumer asks this to learn whether the records that it has read are still in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.errors import MillraceError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import OFFSET_FOR_LEADER_EPOCH
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.partitions import led_partition
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.offset_for_leader_epoch import (
        EpochEndOffsetFields,
        OffsetForLeaderEpochResponseFields,
        OffsetForLeaderPartition,
    )

GUARD = Guard(ApiKey.OFFSET_FOR_LEADER_EPOCH, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, is_silent=True)
TOPIC_GUARD = Guard(ApiKey.OFFSET_FOR_LEADER_EPOCH, AclOperation.DESCRIBE, ResourceType.TOPIC)


def handle(services: Services, request: Request) -> Reply:
    """Looks up the end offset of each partition's epoch."""
    message = OFFSET_FOR_LEADER_EPOCH.decode_request(request.version, request.body)
    is_broker = GUARD.permits(services, request.session)
    fields: OffsetForLeaderEpochResponseFields = {
        "throttle_time": 0,
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [_end(services, topic.topic, one) for one in each(topic.partitions)]
                if is_broker or TOPIC_GUARD.permits(services, request.session, topic.topic)
                else [_failed(one, TOPIC_GUARD.error) for one in each(topic.partitions)],
            }
            for topic in each(message.topics)
        ],
    }
    return respond(services, OFFSET_FOR_LEADER_EPOCH, request.version, fields)


def _end(services: Services, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffsetFields:
    try:
        key = TopicPartition(topic, wanted.partition)
        partition = led_partition(services, key, wanted.current_leader_epoch)
    except MillraceError as error:
        return _failed(wanted, error.code)
    epoch, end_offset = partition.end_of_epoch(wanted.leader_epoch)
    return {"error_code": 0, "partition": wanted.partition, "leader_epoch": epoch, "end_offset": end_offset}


def _failed(wanted: OffsetForLeaderPartition, code: int) -> EpochEndOffsetFields:
    return {"error_code": code, "partition": wanted.partition}


API = Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, VersionRange(0, 4), handle, guards=(GUARD, TOPIC_GUARD))
