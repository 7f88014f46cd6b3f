"""What a client knows of a cluster: brokers, topics, and who leads each partition."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from millrace.addresses import Address
from millrace.client.answers import check
from millrace.errors import BrokerError, ErrorCode, UnknownTopicError
from millrace.uuids import NO_TOPIC_ID

if TYPE_CHECKING:
    from millrace.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

Partition: TypeAlias = tuple[str, int]
"""A topic and the index of one of its partitions."""


def indexes_by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """Returns the partition indexes of (topic, index) pairs by topic, in the order given."""
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found


class AbsentTopicError(UnknownTopicError, retriable=False):
    """The whole cluster, not only one broker, has no such topic or partition, so that a retry does not help."""


@dataclass(frozen=True, slots=True)
class BrokerMetadata:
    """A live broker and where it listens."""

    id: int
    host: str
    port: int
    rack: str | None

    @property
    def address(self) -> Address:
        """The address at which this broker listens."""
        return Address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """The leader and the replicas of a partition; the leader is -1 while there is none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic's partitions, or the error code with which the broker answered instead."""

    name: str
    topic_id: UUID | None
    error_code: int
    partitions: Mapping[int, PartitionMetadata]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """One broker's response to a Metadata request: brokers by id, topics by name."""

    cluster_id: str | None
    controller_id: int
    brokers: Mapping[int, BrokerMetadata]
    topics: Mapping[str, TopicMetadata]

    def lacks(self, topics: Collection[str]) -> bool:
        """Returns whether the broker that sent this metadata does not know one of the topics."""
        return any(
            name not in self.topics or self.topics[name].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for name in topics
        )

    def topic(self, name: str) -> TopicMetadata:
        """Returns a topic's metadata; raises AbsentTopicError, InvalidTopicError or the error of its error code."""
        if self.lacks([name]):
            raise AbsentTopicError(f"topic {name} does not exist")
        topic = self.topics[name]
        check(topic.error_code, f"topic {name}")
        return topic

    def leader(self, topic: str, partition: int) -> BrokerMetadata:
        """Returns a partition's leader; raises AbsentTopicError without the partition, BrokerError without a leader."""
        partitions = self.topic(topic).partitions
        if partition not in partitions:
            raise AbsentTopicError(f"topic {topic} has no partition {partition}; it has {len(partitions)}")
        broker = self.brokers.get(partitions[partition].leader)
        if broker is None:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader at present")
        return broker


def metadata_of(answer: MetadataResponse) -> ClusterMetadata:
    """Returns a decoded Metadata response as a ClusterMetadata."""
    brokers = {one.node_id: BrokerMetadata(int(one.node_id), one.host, one.port, one.rack) for one in answer.brokers}
    topics = {topic.name: _topic(topic.name, topic) for topic in answer.topics if topic.name is not None}
    return ClusterMetadata(answer.cluster_id, int(answer.controller_id), brokers, topics)


def newest_of(answers: Sequence[ClusterMetadata]) -> ClusterMetadata:
    """Merges several brokers' answers: each partition is taken from the one with its highest leader epoch.

    A broker that is cut off from the others goes on naming outdated leaders, perhaps itself. For all else, the first
    answer counts.
    """
    brokers = {number: broker for answer in reversed(answers) for number, broker in answer.brokers.items()}
    told: dict[str, list[TopicMetadata]] = {}
    for topic in (topic for answer in answers for topic in answer.topics.values()):
        told.setdefault(topic.name, []).append(topic)
    return replace(answers[0], brokers=brokers, topics={name: _newest_topic(some) for name, some in told.items()})


def _newest_topic(told: Sequence[TopicMetadata]) -> TopicMetadata:
    first = next((topic for topic in told if topic.error_code == ErrorCode.NONE), told[0])
    partitions = dict(first.partitions)
    for topic in (topic for topic in told if topic.topic_id == first.topic_id):
        for index, found in topic.partitions.items():
            if index not in partitions or found.leader_epoch > partitions[index].leader_epoch:
                partitions[index] = found
    return replace(first, partitions=partitions)


def _topic(name: str, topic: MetadataResponseTopic) -> TopicMetadata:
    partitions = {
        int(one.partition_index): PartitionMetadata(
            leader=int(one.leader_id),
            leader_epoch=int(one.leader_epoch),
            replicas=tuple(map(int, one.replica_nodes)),
            isr=tuple(map(int, one.isr_nodes)),
        )
        for one in sorted(topic.partitions, key=lambda one: one.partition_index)
    }
    topic_id = None if topic.topic_id == NO_TOPIC_ID else topic.topic_id
    return TopicMetadata(name, topic_id, int(topic.error_code), partitions)
