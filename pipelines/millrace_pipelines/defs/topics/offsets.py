"""What the cluster says of its topics at one moment: their ids, and where the log of each partition starts and ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import dagster as dg

from millrace.client import Cluster, LogOffsets, TopicMetadata, read_log_offsets
from millrace.client.answers import check
from millrace.client.fetched import IsolationLevel
from millrace.errors import MillraceError
from millrace.internal_topics import INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """A topic's partitions at one moment; they end where a reader of the look's isolation level ends."""

    topic: str
    topic_id: str
    partitions: Mapping[int, LogOffsets]

    @property
    def records(self) -> int:
        """The number of readable offsets in all partitions."""
        return self.lag({})

    @property
    def version(self) -> str:
        """A text that changes when a record is appended, and when the topic is deleted and created again."""
        return f"{self.topic_id}/{sum(log.log_end for log in self.partitions.values())}"

    def lag(self, next_offsets: Mapping[int, int]) -> int:
        """Returns how many readable offsets lie at or after those that a table expects next."""
        return sum(
            max(0, log.end_offset - max(next_offsets.get(partition, 0), log.start_offset))
            for partition, log in self.partitions.items()
        )

    def is_ahead_of(self, next_offsets: Mapping[int, int]) -> bool:
        """Returns whether any log goes on after the offset that a table expects next, be it with deleted offsets."""
        return any(
            log.end_offset > next_offsets.get(partition, log.start_offset) for partition, log in self.partitions.items()
        )

    def is_behind(self, next_offsets: Mapping[int, int]) -> bool:
        """Returns whether any log ends below the offset that a table expects next, or is gone."""
        return any(
            partition not in self.partitions or self.partitions[partition].log_end < next_offset
            for partition, next_offset in next_offsets.items()
        )

    def table(self) -> dg.TableMetadataValue:
        """Shows the offsets as a table of the UI."""
        columns = ("partition", "log start offset", "end offset", "records")
        rows = [
            (partition, log.start_offset, log.end_offset, log.end_offset - log.start_offset)
            for partition, log in sorted(self.partitions.items())
        ]
        return integer_table(columns, rows)


class Look(NamedTuple):
    """What a look at all topics found, by name: the offsets of each topic, or the sentence why they can't be told."""

    topics: Mapping[str, TopicOffsets]
    failed: Mapping[str, str]


def integer_table(columns: Sequence[str], rows: Sequence[Sequence[int]]) -> dg.TableMetadataValue:
    """Returns rows of integers as Dagster's table metadata."""
    return dg.MetadataValue.table(
        records=[dg.TableRecord(dict(zip(columns, row, strict=True))) for row in rows],
        schema=dg.TableSchema(columns=[dg.TableColumn(name, "int") for name in columns]),
    )


def read_topic_offsets(cluster: Cluster, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> Look:
    """Returns the offsets of each topic that is not internal; raises ClientError where no broker answers."""
    metadata = cluster.metadata(None)
    topics = {name: topic for name, topic in sorted(metadata.topics.items()) if name not in INTERNAL_TOPICS}
    partitions = [(name, partition) for name, topic in topics.items() for partition in topic.partitions]
    logs = read_log_offsets(cluster, partitions, isolation, metadata=metadata)
    found: dict[str, TopicOffsets] = {}
    failed: dict[str, str] = {}
    for name, topic in topics.items():
        try:
            found[name] = _topic_offsets(topic, logs)
        except MillraceError as error:
            failed[name] = str(error)
    return Look(found, failed)


def _topic_offsets(topic: TopicMetadata, logs: Mapping[tuple[str, int], LogOffsets | MillraceError]) -> TopicOffsets:
    """Returns a topic's offsets; raises the error of the topic, or else the first error of a partition."""
    check(topic.error_code, f"topic {topic.name}")
    offsets: dict[int, LogOffsets] = {}
    for partition in topic.partitions:
        log = logs[topic.name, partition]
        if isinstance(log, MillraceError):
            raise log
        offsets[partition] = log
    return TopicOffsets(topic.name, str(topic.topic_id or ""), offsets)
