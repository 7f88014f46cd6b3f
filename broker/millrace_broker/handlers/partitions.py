"""Looks up partitions for the handlers of several APIs: those that this broker has, and the leaders of the others.

| role of the partition here | what only its leader answers | what any replica answers |
|---|---|---|
| led | answered | answered |
| followed | NOT_LEADER_OR_FOLLOWER | answered |
| none, but the cluster has it | NOT_LEADER_OR_FOLLOWER | NOT_LEADER_OR_FOLLOWER |
| its log can't be opened | KAFKA_STORAGE_ERROR | KAFKA_STORAGE_ERROR |
| unknown | UNKNOWN_TOPIC_OR_PARTITION | UNKNOWN_TOPIC_OR_PARTITION |

Where a request names the leader's epoch, a replica judges that first, also one that follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millrace.addresses import Endpoint
from millrace.errors import ErrorCode, MillraceError, NotLeaderError, StorageError, UnknownTopicError
from millrace.leader_states import NO_LEADER
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.wire.fetch import CONSUMER, READ_COMMITTED
from millrace.wire.metadata import BrokerMetadata, LeaderHint
from millrace_broker.cluster.metadata_image import MetadataImage, PartitionInfo, reachable
from millrace_broker.handlers.api import Services
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.replica import Isolation, Replica
from millrace_broker.storage import TopicPartition

UNKNOWN_LEADER = LeaderHint(NO_LEADER, NO_LEADER_EPOCH)


def led_partition(
    services: Services, topic_partition: TopicPartition, current_leader_epoch: int = NO_LEADER_EPOCH
) -> Partition:
    """Returns the partition, which this broker must lead.

    Raises UnknownTopicError where the cluster has no such partition, NotLeaderError where another broker leads it,
    StorageError where its log can't be opened, FencedLeaderEpochError or UnknownLeaderEpochError for another epoch.
    """
    replica = any_replica(services, topic_partition, current_leader_epoch)
    if not isinstance(replica, Partition):
        raise not_led(services, topic_partition)
    return replica


def any_replica(
    services: Services, topic_partition: TopicPartition, current_leader_epoch: int = NO_LEADER_EPOCH
) -> Replica:
    """Returns a partition that this broker leads or follows; raises the same errors as `led_partition` otherwise."""
    replica = services.replicas.replica(topic_partition)
    if replica is None:
        raise not_led(services, topic_partition)
    replica.check_leader_epoch(current_leader_epoch)
    return replica


def is_known(services: Services, topic_partition: TopicPartition) -> bool:
    """Returns whether the cluster has this partition, on any broker."""
    return topic_partition in services.replicas.partitions or _info(services, topic_partition) is not None


def isolation_of(replica_id: int, isolation_level: int) -> Isolation:
    """Returns how far a request's sender may read: to the log end, the high watermark or the last stable offset.

    A consumer's replica id is -1; any other sender is a broker or a tool that compares replicas, and reads to the log
    end.
    """
    if replica_id != CONSUMER:
        return Isolation.LOG_END
    return Isolation.READ_COMMITTED if isolation_level == READ_COMMITTED else Isolation.READ_UNCOMMITTED


def leader_hint(services: Services, topic_partition: TopicPartition) -> LeaderHint:
    """Returns a partition's leader and leader epoch, as far as this broker knows them, to tell a client (KIP-951)."""
    info = _info(services, topic_partition)
    return UNKNOWN_LEADER if info is None else LeaderHint(info.leader, info.leader_epoch)


def endpoints(services: Services, hints: Iterable[LeaderHint], listener: str) -> list[BrokerMetadata]:
    """Returns the leaders that the hints name, each once, with its address on `listener`, if it has that listener."""
    image = services.metadata.image
    reached = reachable(image, listener)
    leaders = sorted({hint.leader for hint in hints if hint.leader in reached})
    return [BrokerMetadata(one, reached[one].host, reached[one].port, image.brokers[one].rack) for one in leaders]


def told_leader(
    partition: PartitionInfo, image: MetadataImage, reached: Mapping[int, Endpoint], *, names_listeners: bool = True
) -> tuple[int, ErrorCode]:
    """Returns the leader and NONE, or -1 and the error code for clients of a listener that can't reach the leader.

    `reached` are the brokers that have the listener. Without `names_listeners` a leader that lacks it gives
    LEADER_NOT_AVAILABLE, as older clients do not know LISTENER_NOT_FOUND.
    """
    if partition.leader in reached:
        return partition.leader, ErrorCode.NONE
    lacks_listener = names_listeners and partition.leader in image.brokers
    return NO_LEADER, ErrorCode.LISTENER_NOT_FOUND if lacks_listener else ErrorCode.LEADER_NOT_AVAILABLE


def not_led(services: Services, topic_partition: TopicPartition) -> MillraceError:
    """Returns the error for a partition without a replica here: NotLeaderError, StorageError or UnknownTopicError."""
    info = _info(services, topic_partition)
    name = f"{topic_partition.topic}-{topic_partition.partition}"
    if info is not None and info.leader != services.broker_id:
        return NotLeaderError(f"{name} is led by broker {info.leader}")
    if info is not None and topic_partition in services.replicas.offline:
        return StorageError(f"{name} is offline: its log can't be opened")
    return UnknownTopicError(f"{name} does not exist")


def _info(services: Services, topic_partition: TopicPartition) -> PartitionInfo | None:
    return services.metadata.partition(topic_partition)
