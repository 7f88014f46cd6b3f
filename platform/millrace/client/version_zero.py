"""What only version 0 of an API can say, as Kafka 0.8 had it: where segments begin, and a group's offsets in ZooKeeper.

Millrace serves these versions, and so does Apache Kafka up to 3.9; from 4.0 on it has none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection
from millrace.client.metadata import Partition
from millrace.errors import ErrorCode, MalformedRequestError, UnsupportedVersionError
from millrace.wire.api import ApiKey
from millrace.wire.api_messages import Ask, Message
from millrace.wire.fetch import CONSUMER
from millrace.wire.messages import LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH


def segment_starts(cluster: Cluster, topic: str, partition: int, time: int, max_count: int) -> list[int] | None:
    """Returns first offsets of segments last written to by `time` in ms, newest first, by ListOffsets v0.

    Returns None where the broker does not serve that version.
    """
    request = LIST_OFFSETS.encode_request(
        0,
        {
            "replica_id": CONSUMER,
            "topics": [
                {
                    "name": topic,
                    "partitions": [{"partition_index": partition, "timestamp": time, "max_num_offsets": max_count}],
                }
            ],
        },
    )

    def action(connection: Connection) -> list[int] | None:
        if not connection.serves(ApiKey.LIST_OFFSETS, 0):
            return None
        answer = LIST_OFFSETS.decode_response(0, connection.exchange(ApiKey.LIST_OFFSETS, 0, request))
        for one in (one for named in answer.topics for one in named.partitions):
            check(one.error_code, f"offsets of {topic}-{partition}")
            return list(one.old_style_offsets)
        raise MalformedRequestError("LIST_OFFSETS v0 answer has no partition")

    return cluster.on_leader(topic, partition, action)


def commit_to_zookeeper(cluster: Cluster, group_id: str, offsets: Mapping[Partition, int]) -> None:
    """Commits offsets to ZooKeeper by OffsetCommit v0; raises the first partition's error after all were tried.

    Raises UnsupportedVersionError where the broker does not serve that version.
    """
    ask = OFFSET_COMMIT.ask(
        {
            "group_id": group_id,
            "topics": [
                {
                    "name": topic,
                    "partitions": [{"partition_index": index, "committed_offset": offset, "committed_metadata": ""}],
                }
                for (topic, index), offset in offsets.items()
            ],
        }
    )
    for topic in _exchange(cluster, ask).topics:
        for one in topic.partitions:
            check(one.error_code, _subject(group_id, topic.name, one.partition_index))


def fetch_from_zookeeper(cluster: Cluster, group_id: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """Returns the partitions' offsets in ZooKeeper, by OffsetFetch v0, without partitions that have none.

    Raises UnsupportedVersionError where the broker does not serve that version.
    """
    topics = [(topic, [index]) for topic, index in partitions]
    ask = OFFSET_FETCH.ask(
        {"group_id": group_id, "topics": [{"name": topic, "partition_indexes": indexes} for topic, indexes in topics]}
    )
    found = {}
    for topic in _exchange(cluster, ask).topics:
        for one in topic.partitions:
            if one.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # how this version says that there is none
                check(one.error_code, _subject(group_id, topic.name, one.partition_index))
                found[topic.name, one.partition_index] = one.committed_offset
    return found


def _exchange(cluster: Cluster, ask: Ask[Message]) -> Message:
    api, fields = ask

    def action(connection: Connection) -> Message:
        if not connection.serves(api.key, 0):
            raise UnsupportedVersionError(
                f"the broker at {connection.address} keeps no offsets in ZooKeeper: {api.key.name} v0 is not served"
            )
        return api.decode_response(0, connection.exchange(api.key, 0, api.encode_request(0, fields)))

    return cluster.on_any(action)


def _subject(group_id: str, topic: str, partition: int) -> str:
    return f"offset of group {group_id} in {topic}-{partition}"
