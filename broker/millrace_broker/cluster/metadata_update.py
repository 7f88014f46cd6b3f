"""How the metadata image changes, and what follows from what differs between two images, as pure functions.

A controller tells the brokers of the cluster (UpdateMetadata):

    live brokers   the request names all of them
    partitions     the request names those that have changed; to a broker that has just started it names all
    leader -2      the partition's topic is being deleted: the partition goes out of the image, and the topic with its
                   last one

Partitions of an image are numbered from 0 without a gap. One whose leader has not been told yet, below one that has, is
in the image without a leader and without replicas.

What differs between two images has consequences:

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

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from millrace.leader_states import LEADER_DURING_DELETE, NO_LEADER
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.wire.controller_apis import EPOCH_DURING_DELETE
from millrace_broker.cluster.metadata_image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from millrace_broker.replication.roles import PartitionState, StopState
from millrace_broker.storage import TopicPartition


class TopicUpdate(NamedTuple):
    """One topic in an UpdateMetadata request, with those of its partitions that the request describes."""

    name: str
    topic_id: UUID
    partitions: Sequence[PartitionInfo]


class MetadataUpdate(NamedTuple):
    """The content of an UpdateMetadata request: the controller, the live brokers, and the changed topics."""

    controller_id: int
    brokers: Mapping[int, BrokerInfo]
    topics: Sequence[TopicUpdate]


def updated_image(image: MetadataImage, update: MetadataUpdate) -> MetadataImage:
    """Returns the image after an UpdateMetadata request; a topic that has not changed is the same object in both."""
    topics = dict(image.topics)
    for one in update.topics:
        partitions = _merged(topics.get(one.name), one)
        if partitions:
            config = image.topic_configs.get(one.name, {})
            known, told = topics.get(one.name), TopicInfo(one.name, one.topic_id, partitions, config)
            topics[one.name] = known if known is not None and known == told else told
        else:
            topics.pop(one.name, None)
    return replace(image, controller_id=update.controller_id, brokers=update.brokers, topics=topics)


def configured_image(image: MetadataImage, configs: Mapping[str, Mapping[str, str]]) -> MetadataImage:
    """Returns the image with `configs` as the topics' own properties; unchanged topics stay the same objects."""
    topics = {
        name: topic if topic.config == configs.get(name, {}) else replace(topic, config=configs.get(name, {}))
        for name, topic in image.topics.items()
    }
    return replace(image, topics=topics, topic_configs=configs)


def _merged(known: TopicInfo | None, update: TopicUpdate) -> tuple[PartitionInfo, ...]:
    """Returns a topic's partitions after the update, which replaces some; all of them where the topic's id is new."""
    is_known = known is not None and known.topic_id == update.topic_id
    partitions = {one.index: one for one in known.partitions} if known is not None and is_known else {}
    for one in update.partitions:
        if one.leader == LEADER_DURING_DELETE:
            partitions.pop(one.index, None)
        else:
            partitions[one.index] = one
    told = {index: one for index, one in partitions.items() if one.replicas}
    return tuple(
        told.get(index) or PartitionInfo(index, NO_LEADER, NO_LEADER_EPOCH, (), ())
        for index in range(max(told, default=-1) + 1)
    )


def brokers_by_id(brokers: Iterable[BrokerInfo]) -> dict[int, BrokerInfo]:
    """Returns the brokers by id, in the order of their ids."""
    return {one.id: one for one in sorted(brokers, key=lambda one: one.id)}


class RoleChanges(NamedTuple):
    """The replicas that a standalone broker stops, and the partitions that it then begins to lead."""

    to_stop: tuple[StopState, ...]
    to_lead: tuple[PartitionState, ...]


def new_topic_configs(before: MetadataImage, after: MetadataImage) -> dict[str, Mapping[str, str]]:
    """Returns, by topic, the own properties in `after` that differ from those in `before`."""
    configs = {} if after.topic_configs is before.topic_configs else after.topic_configs
    return {name: config for name, config in configs.items() if before.topic_configs.get(name, {}) != config}


def removed_topics(before: MetadataImage, after: MetadataImage) -> tuple[str, ...]:
    """Returns the names of topics in `before` that `after` does not have, or has with another id."""
    return tuple(topic.name for topic in _removed(before, after))


def standalone_roles(
    before: MetadataImage, after: MetadataImage, broker_id: int, offline: Collection[TopicPartition] = ()
) -> RoleChanges:
    """Returns the replicas that a standalone broker stops and the partitions that it begins to lead in `after`.

    `offline` are the partitions that it should lead already, and whose logs could not be opened.
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
