"""Asks a running cluster which brokers it has, whether each answers, and how its partitions stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from millrace.client import Cluster, ClusterMetadata
from millrace.errors import MillraceError
from millrace_ops.replicas.health import has_leader


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What a cluster answered; `trouble` is why it did not.

    `silent` has the brokers that the cluster tells of and that can't be reached from here. Of the partitions,
    `unavailable` have no leader, and `under_replicated` have replicas that are not in sync.
    """

    bootstrap: str
    trouble: str | None = None
    cluster_id: str | None = None
    broker_ids: frozenset[int] = frozenset()
    silent: tuple[str, ...] = ()
    partitions: int = 0
    unavailable: int = 0
    under_replicated: int = 0
    on_one_broker: int = 0


def read_cluster(bootstrap: str, cluster: Cluster) -> ClusterFacts:
    """Returns the facts of a cluster."""
    try:
        metadata = cluster.metadata()
    except MillraceError as error:
        return ClusterFacts(bootstrap=bootstrap, trouble=str(error))
    partitions = [one for topic in metadata.topics.values() for one in topic.partitions.values()]
    return ClusterFacts(
        bootstrap=bootstrap,
        cluster_id=metadata.cluster_id,
        broker_ids=frozenset(metadata.brokers),
        silent=tuple(_silent(cluster, metadata)),
        partitions=len(partitions),
        unavailable=sum(not has_leader(one) for one in partitions),
        under_replicated=sum(len(one.isr) < len(one.replicas) for one in partitions),
        on_one_broker=sum(len(one.replicas) == 1 for one in partitions),
    )


def _silent(cluster: Cluster, metadata: ClusterMetadata) -> Iterator[str]:
    for broker in metadata.brokers.values():
        try:
            cluster.connection_to(broker.address)
        except MillraceError:
            yield f"{broker.id} at {broker.address}"
