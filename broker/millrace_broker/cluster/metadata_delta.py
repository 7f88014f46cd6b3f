"""Finds what differs between two metadata images, and what a standalone broker does about it (pure functions).

    in the newer image                     what follows
    a topic is gone, or has another id,   the offsets that groups committed to it are forgotten
    as it was created again
    a topic's configuration differs       all logs of the topic take the new one
    a configuration of brokers differs    the broker combines the layers of its own configuration again

In a cluster, the controller says which logs a broker leads, follows and deletes. A standalone broker has no controller,
and derives it from the images (`standalone_roles`):

    a topic is gone, or has another id    its replicas stop, and their logs are deleted
    a topic is new, or has grown          the broker leads the new partitions
    a partition's state differs           the broker leads it in the new epoch

A partition whose log could not be opened is tried again with every image. A log whose topic is in neither image is not
touched: a broker never deletes what it does not know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from millrace.wire.controller_apis import EPOCH_DURING_DELETE
from millrace_broker.cluster.metadata_image import MetadataImage, PartitionInfo, TopicInfo
from millrace_broker.replication.roles import PartitionState, StopState
from millrace_broker.storage import TopicPartition


class RoleChanges(NamedTuple):
    """The replicas that a standalone broker stops, and the partitions that it leads after that."""

    to_stop: tuple[StopState, ...]
    to_lead: tuple[PartitionState, ...]


def new_topic_configs(before: MetadataImage, after: MetadataImage) -> dict[str, Mapping[str, str]]:
    """Returns the configurations of topics that differ, by the topics' names."""
    configs = {} if after.topic_configs is before.topic_configs else after.topic_configs
    return {name: config for name, config in configs.items() if before.topic_configs.get(name, {}) != config}


def removed_topics(before: MetadataImage, after: MetadataImage) -> tuple[str, ...]:
    """Returns the names of the topics that are gone; one that is the same object in both images is there."""
    return tuple(topic.name for topic in _removed(before, after))


def standalone_roles(
    before: MetadataImage, after: MetadataImage, broker_id: int, offline: Collection[TopicPartition] = ()
) -> RoleChanges:
    """Returns what the broker of this id does to its replicas to get from one image to the next.

    `offline` are the partitions that it should lead and whose logs could not be opened.
    """
    offline_topics = {one.topic for one in offline}
    return RoleChanges(
        to_stop=tuple(
            StopState(TopicPartition(topic.name, one.index), EPOCH_DURING_DELETE, deletes=True)
            for topic in _removed(before, after)
            for one in topic.partitions
        ),
        to_lead=tuple(
            _state(topic, one)
            for topic in after.topics.values()
            if topic is not before.topics.get(topic.name) or topic.name in offline_topics
            for one in _changed_partitions(before.topics.get(topic.name), topic, offline)
            if one.leader == broker_id
        ),
    )


def _removed(before: MetadataImage, after: MetadataImage) -> list[TopicInfo]:
    return [topic for topic in before.topics.values() if not _is_same(topic, after.topics.get(topic.name))]


def _changed_partitions(
    before: TopicInfo | None, after: TopicInfo, offline: Collection[TopicPartition]
) -> Iterator[PartitionInfo]:
    unchanged = frozenset(before.partitions) if before is not None and _is_same(before, after) else frozenset()
    for one in after.partitions:
        if one not in unchanged or TopicPartition(after.name, one.index) in offline:
            yield one


def _state(topic: TopicInfo, one: PartitionInfo) -> PartitionState:
    key = TopicPartition(topic.name, one.index)
    return PartitionState(key, topic.topic_id, one.leader, one.leader_epoch, one.isr, one.leader_epoch, one.replicas)


def _is_same(topic: TopicInfo, other: TopicInfo | None) -> bool:
    return other is not None and other.topic_id == topic.topic_id
