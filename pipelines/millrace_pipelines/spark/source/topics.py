"""Which topics and partitions a query reads, by its options and what the cluster has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from millrace.client import TopicMetadata
from millrace.errors import ErrorCode, UnknownTopicError
from millrace.internal_topics import INTERNAL_TOPICS
from millrace_pipelines.spark.brokers import Brokers
from millrace_pipelines.spark.errors import SourceOptionError
from millrace_pipelines.spark.source.options import SourceOptions


class SourceTopic(NamedTuple):
    """A topic's id, its name where the cluster gives none (before Kafka 2.8), and the partitions that are read."""

    topic_id: str
    partitions: tuple[int, ...]


def chosen_topics(options: SourceOptions, brokers: Brokers) -> dict[str, SourceTopic]:
    """Returns the topics that are read now, by name.

    Raises:
        UnknownTopicError: A topic that the options name does not exist.
        SourceOptionError: A partition that they name is in none of the topics.
    """
    metadata = brokers.metadata(None if options.topic_pattern is not None else options.topics)
    names: Iterable[str] = options.topics
    if options.topic_pattern is not None:
        pattern = re.compile(options.topic_pattern)
        names = (name for name in metadata.topics if pattern.fullmatch(name) and name not in INTERNAL_TOPICS)
    found = {name: _chosen(options, metadata.topic(name)) for name in sorted(names)}
    _check_partitions(options, found)
    return found


def _chosen(options: SourceOptions, topic: TopicMetadata) -> SourceTopic:
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopicError(f"topic {topic.name} does not exist")
    partitions = tuple(partition for partition in sorted(topic.partitions) if options.wants(partition))
    return SourceTopic(str(topic.topic_id or topic.name), partitions)


def _check_partitions(options: SourceOptions, topics: Mapping[str, SourceTopic]) -> None:
    there = {partition for topic in topics.values() for partition in topic.partitions}
    for chosen in options.partitions or ():
        if topics and not any(partition in chosen for partition in there):
            raise SourceOptionError(f"partitions: {chosen.start}-{chosen.stop - 1}: no topic that is read has them")
