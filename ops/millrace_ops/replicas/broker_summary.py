"""What each broker has: how many partitions it leads, holds and lags behind in, where they lie, and stray logs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from millrace.client import ClusterMetadata
    from millrace.client.metadata import Partition
    from millrace.client.replicas import LogDir
    from millrace_ops.replicas.cluster_state import ClusterState


@dataclass(frozen=True, slots=True)
class BrokerSummary:
    """One broker; `address` is None where it holds replicas and is not alive.

    Attributes:
        leaders: How many partitions it leads.
        replicas: How many partitions it leads or follows.
        under_replicated: How many of those that it leads have replicas that are not in sync.
        out_of_sync: How many of its own replicas are not in sync.
    """

    id: int
    address: str | None
    rack: str | None
    is_controller: bool
    leaders: int
    replicas: int
    under_replicated: int
    out_of_sync: int


@dataclass(frozen=True, slots=True)
class HeldReplica:
    """A replica of a broker."""

    partition: Partition
    is_leader: bool
    is_in_sync: bool
    leader: int
    replicas: tuple[int, ...]


def broker_ids(state: ClusterState) -> list[int]:
    """Returns the brokers that are alive or hold replicas."""
    holders = {one for partition in state.partitions.values() for one in partition.replicas}
    return sorted(holders | state.metadata.brokers.keys())


def summarize_broker(state: ClusterState, broker_id: int) -> BrokerSummary:
    """Returns what a broker has."""
    broker, held = state.metadata.brokers.get(broker_id), held_replicas(state, broker_id)
    led = [state.partitions[one.partition] for one in held if one.is_leader]
    return BrokerSummary(
        id=broker_id,
        address=None if broker is None else str(broker.address),
        rack=None if broker is None else broker.rack,
        is_controller=broker_id == state.metadata.controller_id,
        leaders=len(led),
        replicas=len(held),
        under_replicated=sum(len(one.isr) < len(one.replicas) for one in led),
        out_of_sync=sum(not one.is_in_sync for one in held),
    )


def held_replicas(state: ClusterState, broker_id: int) -> list[HeldReplica]:
    """Returns the replicas of a broker, in the order of topics and partitions."""
    return [
        HeldReplica(partition, one.leader == broker_id, broker_id in one.isr, one.leader, one.replicas)
        for partition, one in sorted(state.partitions.items())
        if broker_id in one.replicas
    ]


def total_bytes(log_dirs: Sequence[LogDir]) -> int:
    """Returns the bytes of all replicas in data directories."""
    return sum(size for one in log_dirs for size in one.replicas.values())


class StrayLog(NamedTuple):
    """A log that is no replica; `directory` is the data directory that it lies in."""

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
    """Returns why a log is stray; None where it is a replica."""
    topic = metadata.topics.get(name)
    if topic is None:
        return "no such topic"
    if topic.error_code:
        return None
    partition = topic.partitions.get(index)
    if partition is None:
        return "no such partition"
    return None if broker_id in partition.replicas else "on other brokers"
