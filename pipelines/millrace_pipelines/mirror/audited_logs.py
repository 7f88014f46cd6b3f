"""The two logs of a mirrored partition, as the audit reads them, and what the mirror says of its progress there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from millrace.client import Cluster, Groups, LogOffsets, SimpleConsumer, read_log_offsets
from millrace.client.fetched import FetchedBatch, IsolationLevel
from millrace.errors import MillraceError, OffsetOutOfRangeError
from millrace.records.batch import NO_OFFSET, check_crc
from millrace.records.control import is_mirror_end
from millrace_pipelines.mirror.comparison.log_reader import Read
from millrace_pipelines.mirror.offset_map import OffsetMap
from millrace_pipelines.mirror.offset_map_topic import OFFSET_MAP_TOPIC, OffsetMaps

GROUP = "millrace-mirror-{}"

OnRead = Callable[[int], None]
"""Takes the offset up to which a log was read."""


class AuditedLog:
    """One side's log of a partition.

    Args:
        cluster: Where the log is.
        topic: The topic's name there.
        partition: The partition's number.
        isolation: Whether the records of open and aborted transactions, and markers, are compared too.
    """

    def __init__(self, cluster: Cluster, topic: str, partition: int, isolation: IsolationLevel) -> None:
        self.topic, self.partition = topic, partition
        self._cluster, self._isolation = cluster, isolation
        self._consumer = SimpleConsumer(cluster)

    def offsets(self) -> LogOffsets:
        """Returns where the log begins and ends now; raises BrokerError or UnknownTopicError."""
        [found] = read_log_offsets(self._cluster, [(self.topic, self.partition)], self._isolation).values()
        if isinstance(found, MillraceError):
            raise found
        return found

    def read(self, end: int, on_read: OnRead = lambda _: None) -> Read:
        """Returns what yields the log's batches from an offset up to `end`.

        Raises OffsetOutOfRangeError while reading if the log has been cut, RecordError for a damaged batch.
        """

        def batches(offset: int) -> Iterator[FetchedBatch]:
            while offset < end:
                fetched = self._consumer.fetch(self.topic, self.partition, offset, isolation=self._isolation)
                at = offset
                for batch in fetched.batches():
                    check_crc(batch.data, 0, batch.header)
                    if batch.header.base_offset < end:
                        yield self._shown(batch)
                    offset = batch.header.next_offset
                on_read(min(offset, end))
                if offset == at:
                    self._check_end(fetched.end_offset(self._isolation), end)
                    return

        return batches

    def _shown(self, batch: FetchedBatch) -> FetchedBatch:
        """Returns the batch, its markers as records where all of a log is compared."""
        is_passed_over = self._isolation is IsolationLevel.READ_COMMITTED and batch.is_passed_over
        return batch._replace(is_passed_over=is_passed_over)

    def _check_end(self, log_end: int, end: int) -> None:
        """Raises OffsetOutOfRangeError if the log has been cut below `end`; else compaction has left nothing more."""
        if log_end < end:
            raise OffsetOutOfRangeError(f"{self.topic}-{self.partition} ended at {end}, and ends at {log_end} now")


class Progress(NamedTuple):
    """How far the mirror says that it is in a partition, in offsets of the source; None where nothing says it."""

    offset: int | None

    @classmethod
    def of(cls, target: Cluster, mirror: str, topic: str, partition: int) -> Progress:
        """Returns the offset that the mirror's group has committed at the target for the topic there."""
        found = Groups(target).offsets(GROUP.format(mirror), [(topic, partition)])
        committed = found.get((topic, partition))
        return cls(None if committed is None or committed.offset == NO_OFFSET else committed.offset)


def read_offset_map(target: Cluster, mirror: str, topic: str, partition: int) -> OffsetMap | None:
    """Returns the offset map of a partition of the source; None where the target has no map of it."""
    if target.metadata([OFFSET_MAP_TOPIC]).lacks([OFFSET_MAP_TOPIC]):
        return None
    found = OffsetMaps(target, mirror).read([(topic, partition)])[topic, partition]
    return found if len(found) else None


def end_of_mirroring(log: AuditedLog, begin: int, end: int) -> int:
    """Returns where following ended at the target: before the batch that says so, and the markers that came with it.

    The switch-over writes markers for open transactions, and then a control batch without a producer.
    """
    first_marker: int | None = None
    for batch in log.read(end)(begin):
        if is_mirror_end(batch.header):
            return batch.header.base_offset if first_marker is None else first_marker
        if not batch.header.is_control:
            first_marker = None
        elif first_marker is None:
            first_marker = batch.header.base_offset
    return end
