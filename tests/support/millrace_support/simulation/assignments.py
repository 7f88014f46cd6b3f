"""The topics of a simulation and the replicas of their partitions, as ZooKeeper has them at the moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import UUID

from millrace.zk import codec, paths
from millrace_broker.storage import TopicPartition
from millrace_support.model_zookeeper import ModelZooKeeper


class Assignments(Mapping[TopicPartition, tuple[int, ...]]):
    """The replicas of all partitions; while one is reassigned, those that it has and those that it gets."""

    def __init__(self, zookeeper: ModelZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._decoded: dict[str, tuple[int, codec.TopicAssignment]] = {}

    def topic(self, name: str) -> codec.TopicAssignment | None:
        """Returns the assignment of a topic; None where there is no topic of this name."""
        node = self._zookeeper.nodes.get(paths.topic(name))
        if node is None:
            return None
        known = self._decoded.get(name)
        if known is None or known[0] != node.modified_zxid:
            known = self._decoded[name] = node.modified_zxid, codec.decode_topic(node.data)
        return known[1]

    def factor(self, key: TopicPartition) -> int:
        """Returns how many replicas a partition has, without those that a reassignment adds."""
        topic = self.topic(key.topic)
        return len(self[key]) - (0 if topic is None else len(topic.adding_replicas.get(key.partition, ())))

    def is_deleted(self, name: str) -> bool:
        """Returns whether a topic is to be deleted."""
        return paths.delete_topic(name) in self._zookeeper.nodes

    @property
    def are_changing(self) -> bool:
        """Whether a partition is being reassigned, or a topic deleted."""
        return bool(self._zookeeper.children(paths.DELETE_TOPICS)) or any(
            topic.adding_replicas or topic.removing_replicas for topic in map(self.topic, self.names()) if topic
        )

    def names(self) -> list[str]:
        """Returns the names of all topics, of those that are being deleted, too."""
        return sorted({*self._zookeeper.children(paths.TOPICS), *self._zookeeper.children(paths.DELETE_TOPICS)})

    def __getitem__(self, key: TopicPartition) -> tuple[int, ...]:
        topic = self.topic(key.topic)
        if topic is None or key.partition >= len(topic.replicas):
            raise KeyError(key)
        return topic.replicas[key.partition]

    def __iter__(self) -> Iterator[TopicPartition]:
        for name in self.names():
            topic = self.topic(name)
            yield from (TopicPartition(name, index) for index in range(len(topic.replicas) if topic else 0))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class TopicIds(Mapping[str, UUID]):
    """The ids of the topics that are not being deleted, by their names."""

    def __init__(self, zookeeper: ModelZooKeeper, assignments: Assignments) -> None:
        self._zookeeper = zookeeper
        self._assignments = assignments

    def __getitem__(self, name: str) -> UUID:
        topic = self._assignments.topic(name)
        if topic is None or self._assignments.is_deleted(name):
            raise KeyError(name)
        return topic.topic_id

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._zookeeper.children(paths.TOPICS) if not self._assignments.is_deleted(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)
