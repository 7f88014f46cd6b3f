"""What a controller tells the brokers of the cluster (UpdateMetadata), and how that changes an image.

    live brokers   the request names all of them
    partitions     the request names those that have changed; to a broker that has just started it names all
    leader -2      the partition's topic is being deleted: the partition goes out of the image, and the topic with its
                   last one

Partitions of an image are numbered from 0 without a gap. One whose leader has not been told yet, below one that has, is
in the image without a leader and without replicas.

The functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from millrace.leader_states import LEADER_DURING_DELETE, NO_LEADER
from millrace.records.batch import NO_LEADER_EPOCH
from millrace_broker.cluster.metadata_image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo


class TopicUpdate(NamedTuple):
    """The partitions of one topic that a request names."""

    name: str
    topic_id: UUID
    partitions: Sequence[PartitionInfo]


class MetadataUpdate(NamedTuple):
    """One UpdateMetadata request, whatever its version."""

    controller_id: int
    brokers: Mapping[int, BrokerInfo]
    topics: Sequence[TopicUpdate]


def updated_image(image: MetadataImage, update: MetadataUpdate) -> MetadataImage:
    """Returns the image as it is after an update; a topic that has not changed is the same object in both."""
    topics = dict(image.topics)
    for one in update.topics:
        partitions = _merged(topics.get(one.name), one)
        if partitions:
            config = image.topic_configs.get(one.name, {})
            topics[one.name] = _unless_same(topics.get(one.name), TopicInfo(one.name, one.topic_id, partitions, config))
        else:
            topics.pop(one.name, None)
    return replace(image, controller_id=update.controller_id, brokers=update.brokers, topics=topics)


def configured_image(image: MetadataImage, configs: Mapping[str, Mapping[str, str]]) -> MetadataImage:
    """Returns the image with other configurations of topics; a topic whose own has not changed is the same object."""
    topics = {
        name: topic if topic.config == configs.get(name, {}) else replace(topic, config=configs.get(name, {}))
        for name, topic in image.topics.items()
    }
    return replace(image, topics=topics, topic_configs=configs)


def _merged(known: TopicInfo | None, update: TopicUpdate) -> tuple[PartitionInfo, ...]:
    """Returns all partitions that a topic has now; another id makes it another topic, of which nothing is known."""
    is_known = known is not None and known.topic_id == update.topic_id
    partitions = {one.index: one for one in known.partitions} if known is not None and is_known else {}
    for one in update.partitions:
        if one.leader == LEADER_DURING_DELETE:
            partitions.pop(one.index, None)
        else:
            partitions[one.index] = one
    told = {index: one for index, one in partitions.items() if one.replicas}
    return tuple(told.get(index) or _untold(index) for index in range(max(told, default=-1) + 1))


def _untold(index: int) -> PartitionInfo:
    return PartitionInfo(index, NO_LEADER, NO_LEADER_EPOCH, (), ())


def _unless_same(known: TopicInfo | None, topic: TopicInfo) -> TopicInfo:
    return known if known is not None and known == topic else topic


def brokers_by_id(brokers: Iterable[BrokerInfo]) -> dict[int, BrokerInfo]:
    """Returns the brokers by id, in the order of their ids."""
    return {one.id: one for one in sorted(brokers, key=lambda one: one.id)}
