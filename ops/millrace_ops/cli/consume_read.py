"""Reads the partitions of one topic for the command line: finds begin and end, and fetches what lies between.

Each partition ends where its log ended when the command began. For committed records that is the last stable offset:
what follows it belongs to a transaction that is still open and may never be committed.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from millrace.config import MAX_LONG, whole_number
from millrace.errors import MalformedValueError, MillraceError, OffsetOutOfRangeError
from millrace.times import epoch_ms, parse_time

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace.client.fetched import IsolationLevel
    from millrace.records.record import Record

FOLLOW_WAIT_MS = 500
CHUNK_RECORDS = 50_000  # as Python's objects they may take far more memory than the answer
Start = str | int | datetime


class Chunk(NamedTuple):
    """Records of one fetch, and the offset at which the next fetch begins."""

    partition: int
    records: Sequence[Record]
    next_offset: int


def parse_start(text: str, option: str = "--from") -> Start:
    """Parses `earliest`, `latest`, an offset, or a time, UTC unless it says otherwise; raises MalformedValueError."""
    if text in {"earliest", "latest"}:
        return text
    if text.isascii() and text.isdecimal():
        if (offset := whole_number(text, MAX_LONG)) is None:
            raise MalformedValueError(f"{option} {text}: an offset is at most {MAX_LONG}")
        return offset
    try:
        return parse_time(text)
    except ValueError:
        raise MalformedValueError(
            f"{option} {text}: expected earliest, latest, an offset or an ISO 8601 time"
        ) from None


class TopicReader:
    """Reads a topic at an isolation level.

    Its methods raise UnknownTopicError, BrokerError or BrokerUnreachableError, and RecordError for damaged batches.
    """

    def __init__(
        self, cluster: Cluster, topic: str, isolation: IsolationLevel, *, accept_missing_offsets: bool = False
    ) -> None:
        from millrace.client import SimpleConsumer

        self._cluster = cluster
        self._consumer = SimpleConsumer(cluster, accept_missing_offsets=accept_missing_offsets)
        self._topic = topic
        self._isolation = isolation

    def partitions(self) -> list[int]:
        """Returns the numbers of the topic's partitions; raises UnknownTopicError if the topic doesn't exist."""
        return list(self._cluster.metadata([self._topic]).topic(self._topic).partitions)

    def end(self, partition: int) -> int:
        """Returns where reading ends: at the high watermark, or at the last stable offset for committed records."""
        return self._consumer.latest(self._topic, partition, self._isolation)

    def first_offset(self, partition: int, start: Start) -> int:
        """Returns the offset that a start means in a partition; the end if no record is as late as the time."""
        if isinstance(start, int):
            return start
        if start == "earliest":
            return self._consumer.earliest(self._topic, partition)
        if isinstance(start, datetime):
            found = self._consumer.offset_for_time(self._topic, partition, epoch_ms(start))
            if found is not None:
                return found
        return self.end(partition)

    def first_offsets(self, partitions: Iterable[int], start: Start, tell: Callable[[str], None]) -> dict[int, int]:
        """Returns, by partition, the offset that a start means; one outside of the log is moved, and `tell` called.

        Raises:
            OffsetOutOfRangeError: All the partitions end before the offset.
        """
        offsets = {one: self.first_offset(one, start) for one in partitions}
        if not isinstance(start, int):
            return offsets
        ends = {one: self.last_end(one) for one in offsets}
        if all(start > end for end in ends.values()):
            raise OffsetOutOfRangeError(f"{self._topic} has no offset {start}: it ends at {max(ends.values())}")
        return self.inside_log(offsets, tell)

    def inside_log(self, offsets: Mapping[int, int], tell: Callable[[str], None]) -> dict[int, int]:
        """Returns the offsets, moved into their logs where they lie outside; calls `tell` with a sentence for each."""
        inside: dict[int, int] = {}
        for partition, offset in offsets.items():
            first, end = self._consumer.earliest(self._topic, partition), self.last_end(partition)
            inside[partition] = max(first, min(offset, end))
            if inside[partition] != offset:
                bound = f"ends at {end}" if offset > end else f"begins at {first}"
                tell(f"{self._topic}-{partition} has no offset {offset}: it {bound}, and is read from there")
        return inside

    def last_end(self, partition: int) -> int:
        """Returns the high watermark: where the log ends, including open transactions."""
        return self._consumer.latest(self._topic, partition)

    def offset_of_last(self, partition: int, count: int) -> int:
        """Returns the offset of the first of a partition's last `count` records, or of all its records if it has fewer.

        Offsets without a record (markers, aborted or compacted records) don't count, so the search goes back step by
        step.
        """
        earliest, end = self._consumer.earliest(self._topic, partition), self.end(partition)
        span = count
        while True:
            begin = max(end - span, earliest)
            found: deque[int] = deque(maxlen=count)
            for chunk in self.chunks({partition: begin}, {partition: end}):
                found.extend(record.offset for record in chunk.records)
            if len(found) == count or begin == earliest:
                return found[0] if found else end
            span *= 2

    def chunks(self, offsets: Mapping[int, int], ends: Mapping[int, int] | None) -> Iterator[Chunk]:
        """Yields the records of each fetch, up to the offsets in `ends`, or without end where that is None."""
        positions = {one: offset for one, offset in offsets.items() if ends is None or offset < ends[one]}
        wait_ms = 0
        while positions:
            found = False
            for partition, offset in list(positions.items()):
                limit = sys.maxsize if ends is None else ends[partition]
                for chunk in self._chunks(partition, offset, limit, wait_ms, goes_on=offset > offsets[partition]):
                    positions[partition] = chunk.next_offset
                    found = found or chunk.next_offset > offset
                    yield chunk
                if positions[partition] >= limit:
                    del positions[partition]
            wait_ms = 0 if found else FOLLOW_WAIT_MS // max(len(positions), 1)

    def _chunks(self, partition: int, offset: int, limit: int, wait_ms: int, *, goes_on: bool) -> Iterator[Chunk]:
        """Yields the records of one fetch below `limit`; goes on behind damaged batches where that is accepted.

        Where it is accepted, all records are read before the first is yielded, since records before the damage may be
        wrong, too. `goes_on` says whether an earlier fetch of the partition ended at `offset`.
        """
        from millrace.records.intervals import Interval

        position = offset
        chunks = self._fetched(partition, offset, limit, wait_ms, goes_on=goes_on)
        try:
            for chunk in list(chunks) if self._consumer.accepts_missing_offsets else chunks:
                position = chunk.next_offset
                yield chunk
        except MillraceError as error:
            span = Interval(position, min(limit, self.end(partition)))
            goes_on = goes_on or position > offset
            found = self._consumer.read_on(
                self._topic, partition, span, error, isolation=self._isolation, goes_on=goes_on
            )
            yield Chunk(partition, found.records, found.next_offset)

    def _fetched(self, partition: int, offset: int, limit: int, wait_ms: int, *, goes_on: bool) -> Iterator[Chunk]:
        """Yields the records of one fetch from `offset` to below `limit` in one or more chunks; one may be empty."""
        fetched = self._consumer.fetch(self._topic, partition, offset, max_wait_ms=wait_ms, isolation=self._isolation)
        records: list[Record] = []
        next_offset = offset
        for batch in self._consumer.batches(self._topic, partition, fetched, limit, goes_on=goes_on):
            for some in batch.record_lists():
                records += [one for one in some if offset <= one.offset < limit]
                if len(records) >= CHUNK_RECORDS:
                    yield Chunk(partition, records, records[-1].offset + 1)
                    records = []
            next_offset = batch.header.next_offset
        if self._consumer.reaches(self._topic, partition, fetched, limit, self._isolation):
            next_offset = limit
        yield Chunk(partition, records, min(next_offset, limit))
