"""What one broker has to do when the cluster goes from one view to the next: a pure difference of the two.

    in the newer view                     what the broker does
    a topic is gone                       deletes its logs and forgets the offsets that groups committed to it
    a topic has another id, as it was     the same, and then leads the partitions of the new topic
    created again
    a topic is new, or has grown          makes the logs of the new partitions that it is to lead, and leads them
    a partition's state differs           leads the partition in the new epoch
    a topic's configuration differs       gives all partitions of the topic that it leads the new one
    a configuration of brokers differs    combines the layers of its own configuration again

A partition whose log could not be opened is tried again with every view. A log whose topic is in neither view is not
touched: a broker never deletes what it does not know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from millrace_broker.cluster.view import ClusterView, TopicInfo
from millrace_broker.storage import TopicPartition


class BecomeLeader(NamedTuple):
    """A partition that this broker is to lead; one that it leads already takes the epoch and the configuration."""

    topic_partition: TopicPartition
    topic_id: UUID
    leader_epoch: int
    replicas: tuple[int, ...]
    topic_config: Mapping[str, str]


class ViewChanges(NamedTuple):
    """What is to be done, in this order.

    `removed_topics` are the names of topics that are gone or were created again, `logs_to_delete` their partitions,
    whether or not this broker has a log of each.
    """

    has_new_configs: bool
    logs_to_delete: tuple[TopicPartition, ...]
    to_lead: tuple[BecomeLeader, ...]
    removed_topics: tuple[str, ...]


def view_changes(
    before: ClusterView, after: ClusterView, broker_id: int, offline: Collection[TopicPartition] = ()
) -> ViewChanges:
    """Returns what the broker of this id does to get from one view to the next.

    `offline` are the partitions that it should lead and whose logs could not be opened. A topic that is the same object
    in both views has not changed, which spares the comparison of its partitions.
    """
    removed = [topic for topic in before.topics.values() if not _is_same(topic, after.topics.get(topic.name))]
    offline_topics = {one.topic for one in offline}
    return ViewChanges(
        has_new_configs=before.broker_configs != after.broker_configs,
        logs_to_delete=tuple(TopicPartition(topic.name, one.index) for topic in removed for one in topic.partitions),
        to_lead=tuple(
            one
            for topic in after.topics.values()
            if topic is not before.topics.get(topic.name) or topic.name in offline_topics
            for one in _to_lead(before.topics.get(topic.name), topic, broker_id, offline)
        ),
        removed_topics=tuple(topic.name for topic in removed),
    )


def _to_lead(
    before: TopicInfo | None, after: TopicInfo, broker_id: int, offline: Collection[TopicPartition]
) -> Iterator[BecomeLeader]:
    is_known = before is not None and _is_same(before, after) and before.config == after.config
    unchanged = frozenset(before.partitions) if before is not None and is_known else frozenset()
    for partition in after.partitions:
        key = TopicPartition(after.name, partition.index)
        if partition.leader == broker_id and (partition not in unchanged or key in offline):
            yield BecomeLeader(key, after.topic_id, partition.leader_epoch, partition.replicas, after.config)


def _is_same(topic: TopicInfo, other: TopicInfo | None) -> bool:
    return other is not None and other.topic_id == topic.topic_id
