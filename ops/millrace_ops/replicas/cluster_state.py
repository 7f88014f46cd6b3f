"""What a cluster says of its replicas: where they are, where they are going, and how large they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millrace.client import Configs
from millrace.client.log_dirs import describe_log_dirs, replica_bytes
from millrace.client.reassignments import Reassignment, Reassignments
from millrace.errors import BrokerError, BrokerUnreachableError, UnsupportedVersionError
from millrace_ops.replicas.health import MIN_ISR_PROPERTY

if TYPE_CHECKING:
    from millrace.client import Cluster, ClusterMetadata, PartitionMetadata
    from millrace.client.log_dirs import LogDir
    from millrace.client.metadata import Partition


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Brokers, partitions of some topics, and all reassignments that are under way."""

    metadata: ClusterMetadata
    partitions: Mapping[Partition, PartitionMetadata]
    reassignments: Mapping[Partition, Reassignment]

    @property
    def racks(self) -> dict[int, str | None]:
        """The rack of each live broker."""
        return {one.id: one.rack for one in self.metadata.brokers.values()}

    def assigned(self, partition: Partition) -> tuple[int, ...]:
        """Returns the replicas that a partition is to have: those of its reassignment, or else those that it has."""
        reassignment = self.reassignments.get(partition)
        return self.partitions[partition].replicas if reassignment is None else reassignment.target

    def origin(self, partition: Partition) -> tuple[int, ...]:
        """Returns the replicas that a partition had before its reassignment, or has."""
        reassignment = self.reassignments.get(partition)
        return self.partitions[partition].replicas if reassignment is None else reassignment.origin


def read_cluster_state(cluster: Cluster, topics: Sequence[str] | None = None) -> ClusterState:
    """Returns the state of these topics, or of all without an error; raises AbsentTopicError or BrokerError."""
    metadata = cluster.metadata(topics)
    named = topics or sorted(name for name, topic in metadata.topics.items() if not topic.error_code)
    partitions = {
        (name, index): partition for name in named for index, partition in metadata.topic(name).partitions.items()
    }
    return ClusterState(metadata, partitions, read_reassignments(cluster))


def read_reassignments(cluster: Cluster) -> dict[Partition, Reassignment]:
    """Returns the reassignments under way; none of a cluster that does not know them (before Apache Kafka 2.4)."""
    with suppress(UnsupportedVersionError):
        return Reassignments(cluster).list()
    return {}


def read_min_isr(cluster: Cluster, topics: Sequence[str]) -> dict[str, int]:
    """Returns the min.insync.replicas of each topic."""
    described = Configs(cluster).describe_topics(topics, [MIN_ISR_PROPERTY])
    return {topic: int(properties[MIN_ISR_PROPERTY].value or 1) for topic, properties in described.items()}


def read_replica_bytes(
    cluster: Cluster, partitions_of: Mapping[int, Iterable[Partition]]
) -> dict[tuple[int, Partition], int]:
    """Returns the bytes of each replica by broker and partition, without those of a broker whose request fails."""
    found: dict[tuple[int, Partition], int] = {}
    for broker, partitions in partitions_of.items():
        sizes = replica_bytes(read_log_dirs(cluster, broker, partitions) or ())
        found |= {(broker, partition): size for partition, size in sizes.items()}
    return found


def read_log_dirs(
    cluster: Cluster, broker_id: int, partitions: Iterable[Partition] | None = None
) -> list[LogDir] | None:
    """Returns a broker's data directories with these partitions, or with all; None if the request fails."""
    with suppress(BrokerError, BrokerUnreachableError, UnsupportedVersionError):
        return describe_log_dirs(cluster, broker_id, partitions)
    return None


def by_broker(pairs: Iterable[tuple[int, Partition]]) -> dict[int, list[Partition]]:
    """Returns the partitions of each broker."""
    grouped: dict[int, list[Partition]] = {}
    for broker, partition in pairs:
        grouped.setdefault(broker, []).append(partition)
    return grouped
