"""What only version 0 of an API can say, as Kafka 0.8 had it: where segments begin, and a group's offsets in ZooKeeper.

Millrace serves these versions, and so does Apache Kafka up to 3.9; from 4.0 on it has none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection
from millrace.client.metadata import Partition
from millrace.errors import ErrorCode, UnsupportedVersionError
from millrace.wire.api import ApiKey
from millrace.wire.legacy_offsets import (
    OffsetAnswered,
    decode_offset_commit_response,
    decode_offset_fetch_response,
    encode_offset_commit_request,
    encode_offset_fetch_request,
)
from millrace.wire.list_offsets import decode_offsets_before_response, encode_offsets_before_request


def segment_starts(cluster: Cluster, topic: str, partition: int, time: int, max_count: int) -> list[int] | None:
    """Returns the starts of segments before the time by ListOffsets v0, newest first, at most `max_count`.

    None where the broker does not serve that version.
    """
    request = encode_offsets_before_request(topic, partition, time, max_count)

    def action(connection: Connection) -> list[int] | None:
        if not connection.serves(ApiKey.LIST_OFFSETS, 0):
            return None
        answer = decode_offsets_before_response(connection.exchange(ApiKey.LIST_OFFSETS, 0, request))
        check(answer.error_code, f"offsets of {topic}-{partition}")
        return list(answer.offsets)

    return cluster.on_leader(topic, partition, action)


def commit_to_zookeeper(cluster: Cluster, group_id: str, offsets: Mapping[Partition, int]) -> None:
    """Commits offsets by OffsetCommit v0: all that can be, then the first partition's error is raised.

    Raises UnsupportedVersionError where the broker does not serve that version.
    """
    request = encode_offset_commit_request(group_id, offsets)
    answered = decode_offset_commit_response(_exchange(cluster, ApiKey.OFFSET_COMMIT, request))
    for one in answered:
        check(one.error_code, _subject(group_id, one))


def fetch_from_zookeeper(cluster: Cluster, group_id: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """Returns the offsets of those partitions that have one, by OffsetFetch v0; raises UnsupportedVersionError."""
    request = encode_offset_fetch_request(group_id, partitions)
    found = {}
    for one in decode_offset_fetch_response(_exchange(cluster, ApiKey.OFFSET_FETCH, request)):
        if one.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # how this version says that there is none
            check(one.error_code, _subject(group_id, one))
            found[one.topic, one.partition_index] = one.offset
    return found


def _exchange(cluster: Cluster, api_key: ApiKey, request: bytes) -> memoryview:
    def action(connection: Connection) -> memoryview:
        if not connection.serves(api_key, 0):
            raise UnsupportedVersionError(
                f"the broker at {connection.address} keeps no offsets in ZooKeeper: {api_key.name} v0 is not served"
            )
        return connection.exchange(api_key, 0, request)

    return cluster.on_any(action)


def _subject(group_id: str, one: OffsetAnswered) -> str:
    return f"offset of group {group_id} in {one.topic}-{one.partition_index}"
