"""OffsetForLeaderEpoch, versions 0 to 4 (KIP-101, KIP-320): the end offset of a leader epoch.

v1  the epoch that was found      v2  current leader epoch      v3  replica id      v4  flexible

After a change of leaders a consumer asks this to learn whether the records that it has read are still in the log.
"""

from __future__ import annotations

from millrace.errors import MillraceError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.offset_for_leader_epoch import EpochEnd, EpochWanted, decode_epoch_request, encode_epoch_response
from millrace_broker.handlers.answers import count_errors
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.partitions import led_partition
from millrace_broker.storage import TopicPartition

GUARD = Guard(ApiKey.OFFSET_FOR_LEADER_EPOCH, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, is_silent=True)
TOPIC_GUARD = Guard(ApiKey.OFFSET_FOR_LEADER_EPOCH, AclOperation.DESCRIBE, ResourceType.TOPIC)


def handle(services: Services, request: Request) -> Reply:
    """Looks up the end offset of each partition's epoch."""
    topics = decode_epoch_request(request.version, request.body)
    is_broker = GUARD.permits(services, request.session)
    ends = [
        (
            name,
            [_end(services, name, one) for one in each(wanted)]
            if is_broker or TOPIC_GUARD.permits(services, request.session, name)
            else [EpochEnd(one.partition_index, TOPIC_GUARD.error) for one in each(wanted)],
        )
        for name, wanted in topics
    ]
    count_errors(services, ApiKey.OFFSET_FOR_LEADER_EPOCH, (end.error_code for _, found in ends for end in found))
    return encode_epoch_response(request.version, ends)


def _end(services: Services, topic: str, wanted: EpochWanted) -> EpochEnd:
    try:
        key = TopicPartition(topic, wanted.partition_index)
        partition = led_partition(services, key, wanted.current_leader_epoch)
    except MillraceError as error:
        return EpochEnd(wanted.partition_index, error.code)
    return EpochEnd(wanted.partition_index, 0, *partition.end_of_epoch(wanted.leader_epoch))


API = Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, VersionRange(0, 4), handle, guards=(GUARD, TOPIC_GUARD))
