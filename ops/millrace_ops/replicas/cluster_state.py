"""What a cluster says of its replicas: where they are, where they go, how large they are, and how partitions stand.

Of each broker: how many partitions it leads, holds and lags behind in, where they lie, and stray logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from millrace.client import Configs
from millrace.client.replicas import Reassignments, describe_log_dirs, replica_bytes
from millrace.errors import BrokerError, BrokerUnreachableError, UnsupportedVersionError

if TYPE_CHECKING:
    from millrace.client import Cluster, ClusterMetadata, PartitionMetadata
    from millrace.client.metadata import Partition
    from millrace.client.replicas import LogDir, Reassignment

MIN_ISR_PROPERTY = "min.insync.replicas"


class PartitionState(StrEnum):
    """A state of a partition that users should know of; a partition without any is well."""

    UNAVAILABLE = "unavailable"
    UNDER_MIN_ISR = "under-min-isr"
    UNDER_REPLICATED = "under-replicated"
    AT_MIN_ISR = "at-min-isr"
    REASSIGNING = "reassigning"


SHOWN = tuple(one for one in PartitionState if one is not PartitionState.AT_MIN_ISR)
"""The states that are shown. AT_MIN_ISR is not, as it also holds for a partition whose only replica is in sync."""


def partition_states(
    partition: PartitionMetadata, min_isr: int, reassignment: Reassignment | None = None
) -> list[PartitionState]:
    """Returns the states of a partition, the worst first.

    `min_isr` counts as the number of replicas if it is larger, as for leaders since Apache Kafka 3.7. Replicas that a
    reassignment adds do not count as missing.
    """
    wanted = len(reassignment.origin if reassignment and reassignment.adding else partition.replicas)
    in_sync, enough = len(partition.isr), min(min_isr, wanted)
    is_led = has_leader(partition)
    holds = {
        PartitionState.UNAVAILABLE: not is_led,
        PartitionState.UNDER_MIN_ISR: not is_led or in_sync < enough,
        PartitionState.UNDER_REPLICATED: in_sync < wanted,
        PartitionState.AT_MIN_ISR: is_led and in_sync == enough,
        PartitionState.REASSIGNING: reassignment is not None,
    }
    return [state for state, is_so in holds.items() if is_so]


def has_leader(partition: PartitionMetadata) -> bool:
    """Returns whether the partition has a leader."""
    return partition.leader >= 0


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Brokers, partitions of some topics, and all reassignments that are under way."""

    metadata: ClusterMetadata
    partitions: Mapping[Partition, PartitionMetadata]
    reassignments: Mapping[Partition, Reassignment]

    @property
    def racks(self) -> dict[int, str | None]:
        """Returns the rack of each live broker."""
        return {one.id: one.rack for one in self.metadata.brokers.values()}

    def assigned(self, partition: Partition) -> tuple[int, ...]:
        """Returns the replicas that a partition is to have: those of its reassignment, or else those that it has."""
        reassignment = self.reassignments.get(partition)
        return self.partitions[partition].replicas if reassignment is None else reassignment.target

    def origin(self, partition: Partition) -> tuple[int, ...]:
        """Returns the replicas that a partition had before its reassignment, or, without one, has now."""
        reassignment = self.reassignments.get(partition)
        return self.partitions[partition].replicas if reassignment is None else reassignment.origin


def read_cluster_state(cluster: Cluster, topics: Sequence[str] | None = None) -> ClusterState:
    """Returns the state of these topics, or of all that have no error; raises AbsentTopicError or BrokerError."""
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
    """Returns the partitions in (broker, partition) pairs as a list for each broker."""
    grouped: dict[int, list[Partition]] = {}
    for broker, partition in pairs:
        grouped.setdefault(broker, []).append(partition)
    return grouped


def broker_ids(state: ClusterState) -> list[int]:
    """Returns the ids of the brokers that are alive or hold replicas."""
    holders = {one for partition in state.partitions.values() for one in partition.replicas}
    return sorted(holders | state.metadata.brokers.keys())


def summarize_broker(state: ClusterState, broker_id: int, log_dirs: Iterable[LogDir] | None) -> dict[str, object]:
    """Returns the numbers of one broker's replicas and leaders; without `log_dirs` their bytes are None.

    `address` is None where it holds replicas and is not alive. `under_replicated` are partitions that it leads and that
    have replicas that are not in sync; `out_of_sync` are its own replicas that are not.
    """
    broker, held = state.metadata.brokers.get(broker_id), held_replicas(state, broker_id)
    led = [one for one in held.values() if one.leader == broker_id]
    return {
        "broker": broker_id,
        "address": None if broker is None else str(broker.address),
        "rack": None if broker is None else broker.rack,
        "controller": broker_id == state.metadata.controller_id,
        "leaders": len(led),
        "replicas": len(held),
        "under_replicated": sum(len(one.isr) < len(one.replicas) for one in led),
        "out_of_sync": sum(broker_id not in one.isr for one in held.values()),
        "bytes": None if log_dirs is None else sum(sum(one.replicas.values()) for one in log_dirs),
        "free_bytes": min((one.usable_bytes for one in log_dirs or () if one.usable_bytes is not None), default=None),
    }


def held_replicas(state: ClusterState, broker_id: int) -> dict[Partition, PartitionMetadata]:
    """Returns the partitions of which a broker has a replica, in the order of topics and partitions."""
    return {partition: one for partition, one in sorted(state.partitions.items()) if broker_id in one.replicas}


class StrayLog(NamedTuple):
    """A log that the cluster does not assign to its broker; `directory` is the data directory that it lies in."""

    broker: int
    directory: str
    topic: str
    partition: int
    bytes: int
    reason: str


def find_strays(broker_id: int, log_dirs: Iterable[LogDir], metadata: ClusterMetadata) -> list[StrayLog]:
    """Returns the stray logs of a broker, in the order of topics and partitions.

    The metadata has to be newer than the logs, so that it knows topics that are created meanwhile. Topics whose
    partitions the cluster can't tell are left out.
    """
    found = [
        StrayLog(broker_id, log_dir.path, topic, partition, size, reason)
        for log_dir in log_dirs
        for (topic, partition), size in log_dir.replicas.items()
        if (reason := _reason(broker_id, topic, partition, metadata)) is not None
    ]
    return sorted(found, key=lambda one: (one.topic, one.partition))


def _reason(broker_id: int, name: str, index: int, metadata: ClusterMetadata) -> str | None:
    """Returns why the cluster does not assign a log to its broker; None where it does."""
    topic = metadata.topics.get(name)
    if topic is None:
        return "no such topic"
    if topic.error_code:
        return None
    partition = topic.partitions.get(index)
    if partition is None:
        return "no such partition"
    return None if broker_id in partition.replicas else "on other brokers"
