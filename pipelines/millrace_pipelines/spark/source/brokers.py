"""The data source's one door to a cluster, opened at the first question: to Spark's workers it travels unopened."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from millrace.client import Cluster, SimpleConsumer, TopicMetadata
from millrace.client.simple_consumer import IsolationLevel
from millrace.errors import ErrorCode, UnknownTopicError
from millrace.internal_topics import INTERNAL_TOPICS
from millrace.records.batch import walk
from millrace_pipelines.spark.errors import SourceOptionError
from millrace_pipelines.spark.read import LogOffsets
from millrace_pipelines.spark.source.options import SourceOptions

SAMPLE_BYTES = 64 << 10


class SourceTopic(NamedTuple):
    """A topic's id, its name where the cluster gives none (before Kafka 2.8), and the partitions that are read."""

    topic_id: str
    partitions: tuple[int, ...]


class Brokers:
    """Answers what planning asks; UnknownTopicError, ClientError where the cluster can't."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster: Cluster | None = None

    def close(self) -> None:
        """Close the connections."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def topics(self) -> dict[str, SourceTopic]:
        """The topics that are read now.

        Raises:
            UnknownTopicError: One of those that were named is not there.
            SourceOptionError: A partition that was named is in none of them.
        """
        options = self._options
        metadata = self._open().metadata(None if options.topic_pattern is not None else options.topics)
        names: Iterable[str] = options.topics
        if options.topic_pattern is not None:
            pattern = re.compile(options.topic_pattern)
            names = (name for name in metadata.topics if pattern.fullmatch(name) and name not in INTERNAL_TOPICS)
        found = {name: self._chosen(metadata.topic(name)) for name in sorted(names)}
        self._check_partitions(found)
        return found

    def log(self, topic: str, partitions: Iterable[int]) -> dict[int, LogOffsets]:
        """Start and end of each partition, the last stable offset where only what is committed is read."""
        consumer, isolation = SimpleConsumer(self._open()), IsolationLevel[self._options.isolation.name]
        return {
            partition: LogOffsets(consumer.earliest(topic, partition), consumer.latest(topic, partition, isolation))
            for partition in partitions
        }

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset whose record is not older than the time; None where all are."""
        return SimpleConsumer(self._open()).offset_for_time(topic, partition, timestamp_ms)

    def bytes_per_offset(self, topic: str, partition: int, offset: int) -> float:
        """What an offset takes in the log, by the first batches from here on; 1 where there are none."""
        records = SimpleConsumer(self._open()).fetch(topic, partition, offset, max_bytes=SAMPLE_BYTES).records
        sizes = [(header.size_bytes, header.next_offset - header.base_offset) for _, header in walk(records)]
        return sum(size for size, _ in sizes) / max(sum(offsets for _, offsets in sizes), 1) if sizes else 1.0

    def _open(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options.bootstrap)
        return self._cluster

    def _chosen(self, topic: TopicMetadata) -> SourceTopic:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopicError(f"topic {topic.name} does not exist")
        partitions = tuple(partition for partition in sorted(topic.partitions) if self._options.wants(partition))
        return SourceTopic(str(topic.topic_id or topic.name), partitions)

    def _check_partitions(self, topics: dict[str, SourceTopic]) -> None:
        there = {partition for topic in topics.values() for partition in topic.partitions}
        for span in self._options.partitions or ():
            if topics and not any(partition in span for partition in there):
                raise SourceOptionError(f"partitions: {span.start}-{span.stop - 1}: no topic that is read has them")
