"""A hash of a group's topics as they were at its last rebalance (KIP-1101); another hash means another rebalance.

    topic   XXH3-64 of: 0 u8, topic id (high i64, low i64), name, partition count i32,
            and per partition: index i32, then each rack of its replicas in order: length i32, rack
    group   XXH3-64 of its topics' hashes, i64 each, in the order of their names; 0 for no topic

Numbers are little-endian; a string is UTF-16-LE with its count of units behind it, i32. These are the hashes of
Apache Kafka 4.1, so a group goes on without a rebalance when its offsets topic moves from one broker to the other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

import xxhash

from millrace_broker.cluster.view import BrokerInfo, ClusterView, TopicInfo

FORMAT = b"\0"
HALF = struct.Struct("<Q")
INT32 = struct.Struct("<i")
NO_TOPICS = 0


def group_hash(topic_names: Iterable[str], view: ClusterView) -> int:
    """Returns the hash, as a signed number, of those of the topics that exist."""
    topics = [view.topics[name] for name in sorted(set(topic_names) & view.topics.keys())]
    if not topics:
        return NO_TOPICS
    return _signed(xxhash.xxh3_64_intdigest(b"".join(HALF.pack(topic_hash(topic, view.brokers)) for topic in topics)))


def topic_hash(topic: TopicInfo, brokers: Mapping[int, BrokerInfo]) -> int:
    """Returns the hash, as an unsigned number, of a topic's id, name, partitions and their racks."""
    high, low = divmod(topic.topic_id.int, 1 << 64)
    parts = [FORMAT, HALF.pack(high), HALF.pack(low), _string(topic.name), INT32.pack(len(topic.partitions))]
    for partition in topic.partitions:
        racks = sorted(brokers[broker].rack or "" for broker in partition.replicas if broker in brokers)
        parts.append(INT32.pack(partition.index))
        parts += [INT32.pack(_units(rack)) + _string(rack) for rack in racks if rack]
    return xxhash.xxh3_64_intdigest(b"".join(parts))


def _string(text: str) -> bytes:
    return text.encode("utf-16-le") + INT32.pack(_units(text))


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
