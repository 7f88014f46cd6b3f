"""The cluster as the controller knows it: brokers, assignments, leaders and in-sync replicas.

ZooKeeper has the same state, and is written first. Only the controller's thread changes the state here; another thread
only counts it for metrics (`count_cluster`). That copies each collection at once, and looks up what is in it. What
changes meanwhile is counted as it was or as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from millrace.addresses import Endpoint
from millrace.leader_states import RECOVERED
from millrace.zk.eligibility import NO_ONE, Eligibility
from millrace_broker.storage import TopicPartition


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A registered broker; its epoch is the id of the ZooKeeper transaction (czxid) that created its registration.

    `registers_again` says that it registers again if another broker deletes its registration; Apache Kafka's do not.
    `min_insync_replicas` is its own default for topics, None for a broker that does not tell what it has lost, either.
    """

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    registers_again: bool = False
    min_insync_replicas: int | None = None

    def endpoint(self, listener: str) -> Endpoint | None:
        """Returns the broker's address on a listener; None where it has no listener of this name."""
        return next((one for one in self.endpoints if one.listener == listener), None)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The ids of the brokers that keep a partition, the preferred leader first.

    During a reassignment these are the brokers that it goes to, and then those that it comes from (KIP-455).
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """Returns the brokers that will keep the partition when the reassignment has ended, or that keep it now."""
        return tuple(one for one in self.replicas if one not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """Returns the brokers that kept the partition before its reassignment, whose order may have changed since."""
        return tuple(one for one in self.replicas if one not in self.adding)

    @property
    def is_reassigned(self) -> bool:
        """Returns whether a reassignment of the partition is under way."""
        return bool(self.adding or self.removing)

    def to(self, target: tuple[int, ...]) -> Assignment:
        """Returns the assignment during a reassignment to the brokers `target`, which replaces an earlier target."""
        origin = self.origin
        return Assignment(
            replicas=(*target, *(one for one in origin if one not in target)),
            adding=tuple(one for one in target if one not in origin),
            removing=tuple(one for one in origin if one not in target),
        )


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """The leader of a partition, -1 for none, and its in-sync replicas.

    Attributes:
        leader: The id of the broker that leads.
        leader_epoch: Raised by one with each change that the controller decides.
        isr: The in-sync replicas.
        partition_epoch: The version of the node in ZooKeeper, raised by one with each change.
        controller_epoch: The epoch of the controller that wrote the node.
        leader_recovery_state: 1 from an unclean election until the leader has recovered (KIP-704).
        eligibility: Who may lead besides, and who must not.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int = 0
    controller_epoch: int = 0
    leader_recovery_state: int = RECOVERED
    eligibility: Eligibility = NO_ONE


@dataclass(slots=True)
class Topic:
    """A topic: its id, and the assignment of each partition in the order of their indexes."""

    topic_id: UUID
    assignments: list[Assignment]


@dataclass(slots=True)
class ClusterState:
    """The controller's view of the cluster: brokers, topics, leaders, failures, deletions.

    Attributes:
        brokers: All registered brokers by id, also those that are shutting down.
        shutting_down: The ids of brokers that have announced their end (ControlledShutdown).
        topics: All topics by name, also those that are being deleted.
        leaders: The states of all partitions that have one; a new partition has none.
        failed_replicas: By broker, the replicas in data directories that have failed.
        damaged: By broker, the partitions whose logs are damaged there; None for all of them.
        deleting: The names of topics whose deletion has begun: brokers are told that they are gone.
    """

    brokers: dict[int, LiveBroker] = field(default_factory=dict)
    shutting_down: set[int] = field(default_factory=set)
    topics: dict[str, Topic] = field(default_factory=dict)
    leaders: dict[TopicPartition, LeaderAndIsr] = field(default_factory=dict)
    failed_replicas: dict[int, set[TopicPartition]] = field(default_factory=dict)
    damaged: dict[int, frozenset[TopicPartition] | None] = field(default_factory=dict)
    deleting: set[str] = field(default_factory=set)

    def assignment(self, partition: TopicPartition) -> Assignment | None:
        """Returns the brokers that keep a partition, as an Assignment; None for an unknown partition."""
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.assignments):
            return None
        return topic.assignments[partition.partition]

    def partitions(self) -> Iterator[tuple[TopicPartition, Assignment]]:
        """Yields all partitions, each with the brokers that keep it."""
        for name, topic in self.topics.items():
            for index, assignment in enumerate(topic.assignments):
                yield TopicPartition(name, index), assignment

    def kept_partitions(self) -> Iterator[tuple[TopicPartition, Assignment]]:
        """Yields the partitions of topics that are not being deleted, each with the brokers that keep it."""
        return ((key, assignment) for key, assignment in self.partitions() if key.topic not in self.deleting)

    def live(self) -> AbstractSet[int]:
        """Returns the ids of the brokers that are not shutting down."""
        return self.brokers.keys() - self.shutting_down

    def reachable(self, partition: TopicPartition) -> frozenset[int]:
        """Returns the replicas that can serve the partition, also on brokers that are shutting down."""
        assignment = self.assignment(partition)
        replicas = () if assignment is None else assignment.replicas
        return frozenset(
            one for one in replicas if one in self.brokers and partition not in self.failed_replicas.get(one, ())
        )

    def online(self, partition: TopicPartition) -> frozenset[int]:
        """Returns the replicas that can serve the partition and whose brokers are not shutting down."""
        return self.reachable(partition) - self.shutting_down

    def sound(self, partition: TopicPartition) -> frozenset[int]:
        """Returns the replicas that are online and have no damaged log."""
        return self.online(partition) - self.damaged_replicas(partition)

    def damaged_replicas(self, partition: TopicPartition) -> frozenset[int]:
        """Returns the brokers whose replicas of the partition are damaged: they lead only where no other one can."""
        return frozenset(one for one, keys in self.damaged.items() if keys is None or partition in keys)

    def replica_counts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the number of replicas of those of the partitions that there are."""
        found = {key: self.assignment(key) for key in partitions}
        return {key: len(one.replicas) for key, one in found.items() if one is not None}

    def forget_topic(self, name: str) -> None:
        """Removes a topic that is no longer in ZooKeeper."""
        self.topics.pop(name, None)
        self.deleting.discard(name)
        for key in [key for key in self.leaders if key.topic == name]:
            del self.leaders[key]
        for failed in self.failed_replicas.values():
            failed.difference_update([key for key in failed if key.topic == name])


class ClusterCounts(NamedTuple):
    """The numbers of live brokers, and of the topics and partitions that are not being deleted.

    `offline_partitions` have no leader that can serve them; `imbalanced_partitions` are not led by their first replica.
    """

    brokers: int
    topics: int
    partitions: int
    offline_partitions: int
    imbalanced_partitions: int


def count_cluster(cluster: ClusterState) -> ClusterCounts:
    """Returns the numbers of a cluster's live brokers, topics, and partitions, offline and imbalanced ones too."""
    kept = [(name, tuple(topic.assignments)) for name, topic in tuple(cluster.topics.items())]
    kept = [(name, assignments) for name, assignments in kept if name not in cluster.deleting]
    offline = imbalanced = 0
    for name, assignments in kept:
        for index, assignment in enumerate(assignments):
            key = TopicPartition(name, index)
            state = cluster.leaders.get(key)
            is_led = state is not None and _serves(cluster, state.leader, key)
            offline += not is_led
            imbalanced += state is None or state.leader != assignment.replicas[0]
    partitions = sum(len(assignments) for _, assignments in kept)
    return ClusterCounts(len(cluster.brokers), len(kept), partitions, offline, imbalanced)


def _serves(cluster: ClusterState, broker: int, key: TopicPartition) -> bool:
    return broker in cluster.brokers and key not in cluster.failed_replicas.get(broker, ())
