"""How far a stream has read, as Spark keeps it in the query's checkpoint.

    {"events": {"id": "<topic id>", "partitions": {"0": {"start": 0, "next": 1500}, "1": {"start": 0, "next": 0}}}}

`next` is the first offset that was not handed out. `start` is where the stream began to read the partition: the first
micro-batch with a partition reads from there, after a restart too, wherever its log starts by then. The id tells if the
topic was deleted and created again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias, TypedDict

from millrace_pipelines.spark.errors import CheckpointError
from millrace_pipelines.spark.source.offset_ranges import TopicPartition, TopicRange


class PartitionEntry(TypedDict):
    """A partition's progress, as Spark keeps it."""

    start: int
    next: int


class TopicEntry(TypedDict):
    """A topic's id and the progress of its partitions, by their numbers."""

    id: str
    partitions: dict[str, PartitionEntry]


Document: TypeAlias = dict[str, TopicEntry]


class Progress(NamedTuple):
    """One partition: the offset at which the stream began, and the next offset to hand out."""

    start: int
    next: int


class StreamOffset(NamedTuple):
    """Ids by topic, progress by topic and partition."""

    ids: Mapping[str, str]
    progress: Mapping[TopicPartition, Progress]

    def to_json(self) -> Document:
        """Returns the document that Spark keeps; the order of its keys is fixed, for Spark compares texts."""
        document: Document = {topic: {"id": topic_id, "partitions": {}} for topic, topic_id in sorted(self.ids.items())}
        for (topic, partition), progress in sorted(self.progress.items()):
            document[topic]["partitions"][str(partition)] = {"start": progress.start, "next": progress.next}
        return document

    @classmethod
    def from_json(cls, document: Document) -> StreamOffset:
        """Returns the offset of a document; raises CheckpointError where another source wrote it."""
        try:
            ids = {topic: str(entry["id"]) for topic, entry in document.items()}
            progress = {
                (topic, int(partition)): Progress(int(offsets["start"]), int(offsets["next"]))
                for topic, entry in document.items()
                for partition, offsets in entry["partitions"].items()
            }
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise CheckpointError(f"the checkpoint's offset is not of this source: {document!r}") from error
        return cls(ids, progress)

    def next_offset(self, topic: str, topic_id: str, partition: int) -> int | None:
        """Returns where the stream goes on in the topic of this id; None where nothing was read of it."""
        known = self.progress.get((topic, partition))
        return None if known is None or self.ids[topic] != topic_id else known.next


def ranges_between(start: StreamOffset, end: StreamOffset) -> list[TopicRange]:
    """Returns what a micro-batch reads: a range for each partition whose progress differs."""
    ranges = []
    for (topic, partition), progress in sorted(end.progress.items()):
        done = start.next_offset(topic, end.ids[topic], partition)
        from_offset = progress.start if done is None else max(done, progress.start)
        if from_offset < progress.next:
            ranges.append(TopicRange(topic, partition, from_offset, progress.next))
    return ranges
