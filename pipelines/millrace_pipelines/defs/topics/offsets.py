"""What the broker says of a topic at one moment: its id, and the log start and end offset of each partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import dagster as dg

from millrace.client import Cluster, SimpleConsumer
from millrace.internal_topics import INTERNAL_TOPICS


class OffsetBounds(NamedTuple):
    """The offsets that a partition holds: from the log start offset up to the end offset, which is not included."""

    log_start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """A topic's partitions at one moment."""

    topic: str
    topic_id: str
    partitions: Mapping[int, OffsetBounds]

    @property
    def records(self) -> int:
        """The number of offsets in all partitions."""
        return sum(bounds.end_offset - bounds.log_start_offset for bounds in self.partitions.values())

    @property
    def version(self) -> str:
        """A text that changes when a record is appended, and when the topic is deleted and created again."""
        return f"{self.topic_id}/{sum(bounds.end_offset for bounds in self.partitions.values())}"

    def is_ahead_of(self, next_offsets: Mapping[int, int]) -> bool:
        """Returns whether any partition holds records at or after the offset that a table expects next."""
        return any(
            bounds.end_offset > next_offsets.get(partition, bounds.log_start_offset)
            for partition, bounds in self.partitions.items()
        )

    def is_behind(self, next_offsets: Mapping[int, int]) -> bool:
        """Returns whether any partition ends below the offset that a table expects next, or is gone."""
        return any(
            partition not in self.partitions or self.partitions[partition].end_offset < next_offset
            for partition, next_offset in next_offsets.items()
        )

    def table(self) -> dg.TableMetadataValue:
        """Shows the bounds as a table of the UI."""
        columns = ("partition", "log start offset", "end offset", "records")
        rows = [
            (partition, bounds.log_start_offset, bounds.end_offset, bounds.end_offset - bounds.log_start_offset)
            for partition, bounds in sorted(self.partitions.items())
        ]
        return integer_table(columns, rows)


def integer_table(columns: Sequence[str], rows: Sequence[Sequence[int]]) -> dg.TableMetadataValue:
    """Returns rows of integers as Dagster's table metadata."""
    return dg.MetadataValue.table(
        records=[dg.TableRecord(dict(zip(columns, row, strict=True))) for row in rows],
        schema=dg.TableSchema(columns=[dg.TableColumn(name, "int") for name in columns]),
    )


def read_topic_offsets(cluster: Cluster) -> dict[str, TopicOffsets]:
    """Returns the offsets of each topic that is not internal, by name; raises the errors of `millrace.client`."""
    consumer = SimpleConsumer(cluster)
    topics = cluster.metadata(None).topics
    return {
        name: TopicOffsets(
            topic=name,
            topic_id=str(topic.topic_id or ""),
            partitions={
                partition: OffsetBounds(consumer.earliest(name, partition), consumer.latest(name, partition))
                for partition in topic.partitions
            },
        )
        for name, topic in sorted(topics.items())
        if name not in INTERNAL_TOPICS
    }
