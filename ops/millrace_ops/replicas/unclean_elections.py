"""What an unclean election loses, told before it is made: who would lead, and where the logs of all replicas end.

The controller lets the live replica with the longest log lead: that whose last record is of the newest leader epoch,
and among those the one that ends last. (Apache Kafka's takes the first live one of the assignment.) Records that this
one lacks are lost, wherever they are; those of a broker that is not alive can't be counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millrace.client.replica_ends import ReplicaEnd, read_high_watermarks, read_replica_ends
from millrace.errors import MillraceError
from millrace_ops.replicas.cluster_state import ClusterState, by_broker

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace.client.metadata import Partition

MAX_TOLD = 20


@dataclass(frozen=True, slots=True)
class UncleanElection:
    """An election of any live replica in a partition without a leader.

    Attributes:
        partition: The topic, and the index of the partition.
        ends: Where the logs of the live replicas end, by broker, those in front whose logs are longer.
        absent: The brokers that are not alive, or do not tell.
        high_watermark: The largest high watermark that any of the live ones knows; None where none does.
    """

    partition: Partition
    ends: Mapping[int, ReplicaEnd]
    absent: tuple[int, ...]
    high_watermark: int | None

    @property
    def leader(self) -> int | None:
        """The broker that would lead; None where no live one tells where its log ends."""
        return next(iter(self.ends), None)

    @property
    def known_loss(self) -> int:
        """How many offsets are on live replicas, or are known to be committed, that the leader's log does not have."""
        if self.leader is None:
            return 0
        last = max(one.log_end_offset for one in self.ends.values())
        return max(last, self.high_watermark or 0) - self.ends[self.leader].log_end_offset

    def __str__(self) -> str:
        name = "-".join(map(str, self.partition))
        if self.leader is None:
            return f"{name}: no live replica tells where its log ends"
        (leader, end), *others = self.ends.items()
        said = [f"{name}: broker {leader} would lead, whose log ends at {_said(end)}"]
        said += [f"that of broker {broker} ends at {_said(other)}" for broker, other in others]
        if self.high_watermark is not None:
            said.append(f"the high watermark was {self.high_watermark} or more")
        said.append(f"{self.known_loss} offsets beyond the leader's log are known")
        if self.absent:
            said.append(f"what only the brokers {list(self.absent)} have is lost, too: they are not there")
        return "; ".join(said)


def _said(end: ReplicaEnd) -> str:
    return f"{end.log_end_offset} (leader epoch {end.leader_epoch})"


def plan_unclean(cluster: Cluster, state: ClusterState, partitions: Iterable[Partition]) -> list[UncleanElection]:
    """Returns the unclean elections of those of the partitions that have no leader, as their live replicas tell."""
    live = state.metadata.brokers
    unled = [one for one in partitions if state.partitions[one].leader not in live]
    asked = by_broker((broker, one) for one in unled for broker in state.partitions[one].replicas if broker in live)
    ends: dict[tuple[Partition, int], ReplicaEnd] = {}
    committed: dict[Partition, int] = {}
    for broker, keys in asked.items():
        with suppress(MillraceError):  # it counts as absent
            connection = cluster.connection_to(live[broker].address)
            found = read_replica_ends(connection, keys)
            ends |= {(one, broker): end for one, end in found.items()}
            for one, offset in read_high_watermarks(connection, found).items():
                committed[one] = max(offset, committed.get(one, 0))
    return [_election(state, one, ends, committed.get(one)) for one in sorted(unled)]


def _election(
    state: ClusterState, partition: Partition, ends: Mapping[tuple[Partition, int], ReplicaEnd], committed: int | None
) -> UncleanElection:
    replicas = state.partitions[partition].replicas
    known = {one: ends[partition, one] for one in replicas if (partition, one) in ends}
    ranked = sorted(known, key=lambda one: known[one], reverse=True)
    absent = tuple(one for one in replicas if one not in known)
    return UncleanElection(partition, {one: known[one] for one in ranked}, absent, committed)


def told(elections: list[UncleanElection]) -> list[str]:
    """Returns sentences on what elections lose: on the worst ones, and how many others there are."""
    worst = sorted(elections, key=lambda one: (one.leader is not None, -one.known_loss, one.partition))
    said = [str(one) for one in worst[:MAX_TOLD]]
    return [*said, f"… and {len(worst) - MAX_TOLD} more partitions"] if len(worst) > MAX_TOLD else said
