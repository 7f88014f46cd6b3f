"""Asks a leader where its logs begin and end, as a follower does that is out of their range (ListOffsets)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from millrace.errors import ErrorCode
from millrace.wire.messages import LIST_OFFSETS
from millrace_broker.replication.broker_link import BrokerLink
from millrace_broker.replication.followed_partition import FollowedPartition
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.list_offsets import ListOffsetsPartitionFields, ListOffsetsRequestFields

VERSION = 7
READ_UNCOMMITTED = 0
LATEST, EARLIEST = -1, -2  # a replica is told where the log ends, not the high watermark


class LeaderOffset(NamedTuple):
    """The answer for one partition."""

    error_code: int
    offset: int


NOT_ANSWERED = LeaderOffset(ErrorCode.UNKNOWN_SERVER_ERROR, -1)


async def leader_offsets(
    link: BrokerLink, broker_id: int, partitions: Collection[FollowedPartition], timestamp: int
) -> dict[FollowedPartition, LeaderOffset]:
    """Returns the leader's answer for each partition, whose epoch it has to know.

    Raises what `BrokerLink.request` raises.

    Args:
        link: the connection to the leader.
        broker_id: the id of this broker.
        partitions: which partitions.
        timestamp: LATEST or EARLIEST.
    """
    topics: dict[str, list[ListOffsetsPartitionFields]] = {}
    for one in partitions:
        topics.setdefault(one.topic_partition.topic, []).append(
            {
                "partition_index": one.topic_partition.partition,
                "timestamp": timestamp,
                "current_leader_epoch": one.leader_epoch,
            }
        )
    fields: ListOffsetsRequestFields = {
        "replica_id": broker_id,
        "isolation_level": READ_UNCOMMITTED,
        "topics": [{"name": name, "partitions": asked} for name, asked in topics.items()],
    }
    answer = await link.request(LIST_OFFSETS, VERSION, fields)
    listed = {
        TopicPartition(topic.name, one.partition_index): LeaderOffset(int(one.error_code), one.offset)
        for topic in answer.topics
        for one in topic.partitions
    }
    return {one: listed.get(one.topic_partition, NOT_ANSWERED) for one in partitions}
