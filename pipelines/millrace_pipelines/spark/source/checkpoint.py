"""How far a stream has come, as Spark keeps it in the query's checkpoint.

    {"events": {"id": "<topic id>", "partitions": {"0": {"start": 0, "next": 1500}, "1": {"start": 0, "next": 0}}}}

`next` is the first offset that was not handed out. `start` is where the stream began to read the partition: a
micro-batch that is the first one for a partition reads from there, after a restart too, whatever the log's start is
by then. The id tells a topic that was deleted and made anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from millrace_pipelines.spark.errors import CheckpointError
from millrace_pipelines.spark.source.spans import Span, TopicPartition


class Progress(NamedTuple):
    """One partition: where the stream began it, and the first offset that was not handed out."""

    start: int
    next: int


class StreamOffset(NamedTuple):
    """Ids by topic, progress by topic and partition."""

    ids: Mapping[str, str]
    progress: Mapping[TopicPartition, Progress]

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it; the order of its keys is fixed, for Spark compares texts."""
        document: dict[str, Any] = {
            topic: {"id": topic_id, "partitions": {}} for topic, topic_id in sorted(self.ids.items())
        }
        for (topic, partition), progress in sorted(self.progress.items()):
            document[topic]["partitions"][str(partition)] = progress._asdict()
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> StreamOffset:
        """As it was; CheckpointError where another source wrote it."""
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
        """Where to go on in this very topic; None where nothing was read of it."""
        known = self.progress.get((topic, partition))
        return None if known is None or self.ids[topic] != topic_id else known.next


def spans_between(start: StreamOffset, end: StreamOffset) -> list[Span]:
    """What a micro-batch reads: a span for each partition that went on."""
    spans = []
    for (topic, partition), progress in sorted(end.progress.items()):
        done = start.next_offset(topic, end.ids[topic], partition)
        from_offset = progress.start if done is None else max(done, progress.start)
        if from_offset < progress.next:
            spans.append(Span(topic, partition, from_offset, progress.next))
    return spans
