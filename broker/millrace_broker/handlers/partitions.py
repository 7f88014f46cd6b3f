"""The partitions that this broker leads, as handlers of several APIs look them up, and who leads the others."""

from __future__ import annotations

from collections.abc import Iterable

from millrace.errors import MillraceError, NotLeaderError, StorageError, UnknownTopicError
from millrace.wire.leader import LeaderHint, NodeEndpoint
from millrace_broker.cluster.view import PartitionInfo
from millrace_broker.handlers.api import Services
from millrace_broker.replication.partition import Partition
from millrace_broker.storage import TopicPartition

UNKNOWN_LEADER = LeaderHint(-1, -1)


def led_partition(services: Services, topic_partition: TopicPartition) -> Partition:
    """The led partition.

    UnknownTopicError where the cluster has none of this name, NotLeaderError where another broker leads it,
    StorageError where its log can't be opened.
    """
    partition = services.replicas.partitions.get(topic_partition)
    if partition is None:
        raise not_led(services, topic_partition)
    return partition


def is_known(services: Services, topic_partition: TopicPartition) -> bool:
    """Whether the cluster has this partition, whoever leads it."""
    return topic_partition in services.replicas.partitions or _info(services, topic_partition) is not None


def is_led_here(services: Services, topic_partition: TopicPartition) -> bool:
    """Whether this broker leads the partition, be its log offline."""
    info = _info(services, topic_partition)
    here = topic_partition in services.replicas.partitions
    return here or (info is not None and info.leader == services.broker_id)


def leader_hint(services: Services, topic_partition: TopicPartition) -> LeaderHint:
    """Who leads a partition, as far as this broker knows (KIP-951)."""
    info = _info(services, topic_partition)
    return UNKNOWN_LEADER if info is None else LeaderHint(info.leader, info.leader_epoch)


def endpoints(services: Services, hints: Iterable[LeaderHint]) -> list[NodeEndpoint]:
    """Where the leaders are reached, each once."""
    brokers = services.metadata.view.brokers
    leaders = {hint.leader for hint in hints if hint.leader in brokers}
    return [NodeEndpoint(one, brokers[one].host, brokers[one].port, brokers[one].rack) for one in sorted(leaders)]


def not_led(services: Services, topic_partition: TopicPartition) -> MillraceError:
    """Why a partition is not led here, as `led_partition` raises it."""
    info = _info(services, topic_partition)
    name = f"{topic_partition.topic}-{topic_partition.partition}"
    if info is not None and info.leader != services.broker_id:
        return NotLeaderError(f"{name} is led by broker {info.leader}")
    if info is not None and topic_partition in services.replicas.offline:
        return StorageError(f"{name} is offline: its log can't be opened")
    return UnknownTopicError(f"{name} is not here")


def _info(services: Services, topic_partition: TopicPartition) -> PartitionInfo | None:
    topic = services.metadata.view.topics.get(topic_partition.topic)
    if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
        return None
    return topic.partitions[topic_partition.partition]
