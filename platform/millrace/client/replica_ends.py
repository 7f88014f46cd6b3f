"""Where the logs of replicas end, asked of the replicas themselves, whether they lead, follow or wait for a leader.

A broker tells that to a tool that compares replicas: ListOffsets and Fetch with the replica id -2, as Apache Kafka's
kafka-replica-verification sends them. The high watermark is what the replica knows: it may be behind the leader's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from millrace.client.connection import Connection
from millrace.client.metadata import Partition, indexes_by_topic
from millrace.wire.fetch import READ_UNCOMMITTED, REPLICA_COMPARISON
from millrace.wire.messages import FETCH, LIST_OFFSETS

LATEST = -1


class ReplicaEnd(NamedTuple):
    """The end of a replica's log: the leader epoch of its last record, -1 if unknown, and the log end offset.

    The greater one is the end of the log with the newer records, and among those of one epoch the longer.
    """

    leader_epoch: int
    log_end_offset: int


def read_replica_ends(connection: Connection, partitions: Iterable[Partition]) -> dict[Partition, ReplicaEnd]:
    """Returns where a broker's logs of these partitions end, without those that it has none of; raises ClientError."""
    answer = connection.request(
        *LIST_OFFSETS.ask(
            {
                "replica_id": REPLICA_COMPARISON,
                "isolation_level": READ_UNCOMMITTED,
                "topics": [
                    {"name": topic, "partitions": [{"partition_index": one, "timestamp": LATEST} for one in indexes]}
                    for topic, indexes in indexes_by_topic(partitions).items()
                ],
            }
        )
    )
    return {
        (topic.name, int(one.partition_index)): ReplicaEnd(int(one.leader_epoch), int(one.offset))
        for topic in answer.topics
        for one in topic.partitions
        if not one.error_code
    }


def read_high_watermarks(connection: Connection, ends: Mapping[Partition, ReplicaEnd]) -> dict[Partition, int]:
    """Returns the high watermarks that a broker knows for these partitions, whose logs end there; raises ClientError.

    A partition whose log has changed meanwhile is left out.
    """
    answer = connection.request(
        *FETCH.ask(
            {
                "replica_id": REPLICA_COMPARISON,
                "max_wait": 0,
                "min_bytes": 0,
                "max_bytes": 1,
                "isolation_level": READ_UNCOMMITTED,
                "topics": [
                    {
                        "topic": topic,
                        "partitions": [
                            {
                                "partition": index,
                                "fetch_offset": ends[topic, index].log_end_offset,
                                "partition_max_bytes": 1,
                            }
                            for index in indexes
                        ],
                    }
                    for topic, indexes in indexes_by_topic(ends).items()
                ],
                "forgotten_topics_data": (),
            }
        )
    )
    return {
        (topic.topic, int(one.partition_index)): int(one.high_watermark)
        for topic in answer.responses
        for one in topic.partitions
        if not one.error_code
    }
