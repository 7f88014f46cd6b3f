"""What a topic's log at its former source has that the mirror, which was switched over, lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from millrace.client import Cluster, SimpleConsumer
from millrace.client.fetched import FetchedData, IsolationLevel
from millrace.client.log_offsets import LogOffsets, read_log_offsets
from millrace.client.metadata import Partition
from millrace.errors import MillraceError, OffsetOutOfRangeError
from millrace_pipelines.mirror.clusters import ClusterLooks
from millrace_pipelines.mirror.fetching import ONE_BATCH, Fetcher
from millrace_pipelines.mirror.rights import TARGET
from millrace_pipelines.mirror.same_records import Sameness, compared
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.states import TopicState

UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
SOURCE = "the source"


class Unshared(NamedTuple):
    """Offsets of a partition at the former source that are not in its mirror, and how many records they have."""

    topic: str
    partition: int
    begin: int
    end: int
    records: int

    def __str__(self) -> str:
        many = f"{self.records} record{'' if self.records == 1 else 's'}"
        return f"{self.topic}-{self.partition} has {many} at offsets {self.begin} to {self.end - 1}"


def unshared(here: Cluster, there: Cluster, over: TopicState) -> Iterator[Unshared]:
    """Yields what the former source, `here`, has beyond what was mirrored, or instead of it.

    Raises MillraceError for a log that can't be looked at.
    """
    partitions = [(over.topic, one) for one in here.metadata([over.topic]).topic(over.topic).partitions]
    for (topic, partition), log in read_log_offsets(here, partitions, UNCOMMITTED).items():
        if isinstance(log, MillraceError):
            raise log
        begin = max(over.source_ends.get(partition, log.start_offset), log.start_offset)
        if log.log_end > begin:
            yield _unshared(here, topic, partition, begin, log.log_end)
        elif over.way is Way.FOLLOW and not _is_beginning(here, there, over, partition, log):
            yield _unshared(here, topic, partition, log.log_end - 1, log.log_end)


def _unshared(cluster: Cluster, topic: str, partition: int, begin: int, end: int) -> Unshared:
    records = SimpleConsumer(cluster).messages(topic, partition, begin, until_offset=end)
    return Unshared(topic, partition, begin, end, sum(1 for _ in records))


def _is_beginning(here: Cluster, there: Cluster, over: TopicState, partition: int, log: LogOffsets) -> bool:
    """Returns whether the last batch of a log is also in the mirror, at its offset."""
    if log.log_end == log.start_offset:
        return True
    at = log.log_end - 1
    ours = _batch(here, TARGET, (over.topic, partition), at)
    theirs = _batch(there, SOURCE, (over.target_topic, partition), at)
    if ours is None or theirs is None:  # deleted by retention, there or meanwhile here
        return True
    is_compacted = ClusterLooks(there, UNCOMMITTED, SOURCE).is_compacted(over.target_topic)
    return compared(ours.records, theirs.records, at, is_compacted=is_compacted) is Sameness.SAME


def _batch(cluster: Cluster, side: str, place: Partition, offset: int) -> FetchedData | None:
    found = Fetcher(cluster, UNCOMMITTED, side).fetch({place: offset}, ONE_BATCH)[place]
    if isinstance(found, OffsetOutOfRangeError):
        return None
    if isinstance(found, MillraceError):
        raise found
    return found
