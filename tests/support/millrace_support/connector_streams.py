"""What tests of `ConsumerConnector` share: bounds for a busy machine, topics of four partitions, streams, offsets."""

from __future__ import annotations

from millrace.client import Cluster, SyncProducer
from millrace.client.consumer import ConsumerConnector, Partition
from millrace.client.consumer.group_offsets import describe_zookeeper_group
from millrace.client.consumer.streams import ConsumerStream, Message
from millrace.records.record import NewRecord
from millrace.zk.session import ZooKeeperSession

SESSION_TIMEOUT_MS = 60_000
BOUNDS = {
    "consumer.timeout.ms": "60000", "rebalance.backoff.ms": "200", "rebalance.max.retries": "200",
    "zookeeper.session.timeout.ms": "30000", "zookeeper.connection.timeout.ms": "30000",
}  # fmt: skip


def fill(cluster: Cluster, topic: str, count: int = 5, partitions: int = 4) -> None:
    """Sends so many records to each partition, whose values are the partition and their number in it."""
    producer = SyncProducer(cluster)
    for number in range(partitions):
        records = [NewRecord(b"%d-%d" % (number, one), b"k", headers=(("h", b"1"),)) for one in range(count)]
        producer.send(topic, number, records)


def stream_of(connector: ConsumerConnector, topic: str) -> ConsumerStream:
    """Joins and returns the only stream of a topic."""
    return connector.create_message_streams({topic: 1})[topic][0]


def read(stream: ConsumerStream, count: int) -> list[Message]:
    """Returns the next messages."""
    return [next(stream) for _ in range(count)]


def offsets_of(session: ZooKeeperSession, topic: str) -> dict[Partition, int]:
    """Returns the offsets that ZooKeeper has of the group that is named as its topic."""
    return dict(describe_zookeeper_group(session, topic).offsets)


def all_at(topic: str, offset: int) -> dict[Partition, int]:
    """Returns the same offset for all partitions."""
    return {Partition(topic, number): offset for number in range(4)}
