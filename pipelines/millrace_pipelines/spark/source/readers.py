"""The readers of batches and of streams, as Spark asks them for ranges of offsets, and has them read.

The ranges of a batch read are fixed once, when Spark plans the query. Filters of the query choose offsets, and only
those that they leave of a partition are fetched:

    topic = 'events'            these topics                        done here
    partition in (0, 2)         these partitions                    done here
    offset >= 17                from 17                             done here
    timestamp >= t              from the first offset not older     Spark looks again at the rows
    timestamp < t               nothing: producers' times need not grow with the offsets

An upper bound of time chooses rows, not offsets; the option endingTime ends a read at an offset.

Of a stream of micro-batches, Spark asks how far the next one goes, keeps that in its checkpoint, and has it read:

    latestOffset(start, limit)    the logs' ends, cut to the limit   ─► checkpoint
    partitions(start, end)        ranges between two of them          ─► tasks

The same two offsets always give the same ranges, so a sink that knows its batches' numbers gets each record once,
across restarts too. Spark's trigger AvailableNow reads up to the ends that the logs have when it starts.

How far it has read, Spark keeps in the query's checkpoint:

    {"events": {"id": "<topic id>", "partitions": {"0": {"start": 0, "next": 1500}, "1": {"start": 0, "next": 0}}}}

`next` is the first offset that was not handed out. `start` is where the stream began to read the partition: the first
micro-batch with a partition reads from there, after a restart too, wherever its log starts by then. The id tells if the
topic was deleted and created again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce
from typing import NamedTuple, TypeAlias, TypedDict, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from millrace.errors import UnknownTopicError
from millrace.times import EPOCH
from millrace_pipelines.spark.brokers import Brokers, LogOffsets
from millrace_pipelines.spark.errors import CheckpointError, LogTruncatedError, SourceOptionError, TopicRecreatedError
from millrace_pipelines.spark.source.options import (
    LATEST,
    Position,
    SourceOptions,
    SourceTopic,
    check_named_partitions,
    chosen_topics,
    resolve,
    within_log,
)
from millrace_pipelines.spark.source.rows import RangePartition, TopicPartition, TopicRange, admit, read_offsets, split

MAX_OFFSET = 2**63 - 1
NEVER_NULL = frozenset({"topic", "partition", "offset"})
Kept = TypeVar("Kept", str, int)


@dataclass(frozen=True, slots=True)
class OffsetFilter:
    """The topics, partitions and offsets to which filters restrict a read; None means all of them.

    `from_offset` is included, `until_offset` is not.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    from_offset: int = 0
    until_offset: int = MAX_OFFSET
    from_timestamp_ms: int | None = None

    def allows(self, topic: str, partition: int) -> bool:
        """Returns whether the bounds leave anything of a partition to be read."""
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )


def narrow(bounds: OffsetFilter, filters: Iterable[Filter]) -> tuple[OffsetFilter, list[Filter]]:
    """Returns the bounds, narrowed by filters, and those filters that bounds can't express, which are left to Spark."""
    left: list[Filter] = []
    for one in filters:
        narrowed = list(_narrowed(one))
        bounds = reduce(_both, narrowed, bounds)
        if not narrowed or getattr(one, "attribute", ()) == ("timestamp",):
            left.append(one)
    return bounds, left


def _narrowed(one: Filter) -> Iterator[OffsetFilter]:
    """Yields a filter as bounds; nothing where it does not restrict topic, partition or offset."""
    match one:
        case IsNotNull((name,)) if name in NEVER_NULL:
            yield OffsetFilter()
        case EqualTo((name,), value) | EqualNullSafe((name,), value):
            yield from _equal(name, [value])
        case In((name,), values):
            yield from _equal(name, list(values))
        case GreaterThan(("offset",), int(value)):
            yield OffsetFilter(from_offset=value + 1)
        case GreaterThanOrEqual(("offset",), int(value)):
            yield OffsetFilter(from_offset=value)
        case LessThan(("offset",), int(value)):
            yield OffsetFilter(until_offset=value)
        case LessThanOrEqual(("offset",), int(value)):
            yield OffsetFilter(until_offset=value + 1)
        case GreaterThan(("timestamp",), datetime() as value) | GreaterThanOrEqual(("timestamp",), datetime() as value):
            yield from _since(value)


def _equal(name: str, values: Sequence[object]) -> Iterator[OffsetFilter]:
    texts = frozenset(value for value in values if isinstance(value, str))
    numbers = frozenset(value for value in values if isinstance(value, int))
    if name == "topic" and texts.issuperset(values):
        yield OffsetFilter(topics=texts)
    elif name == "partition" and numbers.issuperset(values):
        yield OffsetFilter(partitions=numbers)
    elif name == "offset" and len(values) == 1 and isinstance(values[0], int):
        yield OffsetFilter(from_offset=values[0], until_offset=values[0] + 1)
    elif name == "timestamp" and len(values) == 1 and isinstance(values[0], datetime):
        yield from _since(values[0])


def _since(moment: datetime) -> Iterator[OffsetFilter]:
    if moment.tzinfo is not None:
        yield OffsetFilter(from_timestamp_ms=(moment - EPOCH) // timedelta(milliseconds=1))


def _both(one: OffsetFilter, other: OffsetFilter) -> OffsetFilter:
    times = [time for time in (one.from_timestamp_ms, other.from_timestamp_ms) if time is not None]
    return replace(
        one,
        topics=_intersection(one.topics, other.topics),
        partitions=_intersection(one.partitions, other.partitions),
        from_offset=max(one.from_offset, other.from_offset),
        until_offset=min(one.until_offset, other.until_offset),
        from_timestamp_ms=max(times, default=None),
    )


def _intersection(one: frozenset[Kept] | None, other: frozenset[Kept] | None) -> frozenset[Kept] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


class BatchReader(DataSourceReader):
    """Reads topics from the starting offsets up to the ending offsets."""

    def __init__(self, options: SourceOptions, columns: pa.Schema) -> None:
        self._options = options
        self._columns = columns
        self._bounds = OffsetFilter()

    def partitions(self) -> Sequence[InputPartition]:
        """Returns a range of offsets for each task."""
        with self._options.brokers() as brokers:
            topics = chosen_topics(self._options, brokers)
            self._check(topics)
            ranges = [part for name, topic in topics.items() for part in self._ranges(brokers, name, topic)]
        return [RangePartition(piece) for part in ranges for piece in split(part, self._options.max_records_per_task)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one range; none for the dummy partition that Spark makes where a query has no range."""
        if isinstance(partition, RangePartition):
            yield from read_offsets(TopicRange(*partition.value), self._options, self._columns)

    def _check(self, topics: dict[str, SourceTopic]) -> None:
        partitions = {name: topic.partitions for name, topic in topics.items()}
        for option, position in (("startingOffsets", self._options.starting), ("endingOffsets", self._options.ending)):
            if position is not None:
                check_named_partitions(option, position, partitions)

    def _ranges(self, brokers: Brokers, name: str, topic: SourceTopic) -> Iterator[TopicRange]:
        partitions = [partition for partition in topic.partitions if self._bounds.allows(name, partition)]
        for partition, log in brokers.log_offsets(name, partitions).items():
            yield self._range(brokers, name, partition, log)

    def _range(self, brokers: Brokers, name: str, partition: int, log: LogOffsets) -> TopicRange:
        def offset_of(position: Position) -> int:
            offset = resolve(position, name, partition, log, brokers.offset_for_time)
            return within_log(offset, name, partition, log, fail_on_data_loss=self._options.fail_on_data_loss)

        low, high = offset_of(self._options.starting or Position()), offset_of(self._options.ending)
        if low > high and self._options.starting is not None and self._options.ending.timestamp_ms is None:
            raise SourceOptionError(f"topic {name}, partition {partition}: starts at {low}, after its end at {high}")
        low, high = max(low, self._bounds.from_offset), min(high, self._bounds.until_offset)
        if low < high and self._bounds.from_timestamp_ms is not None:
            since = brokers.offset_for_time(name, partition, self._bounds.from_timestamp_ms)
            low = high if since is None else max(low, since)
        return TopicRange(name, partition, low, max(low, high))


class PushingBatchReader(BatchReader):
    """A batch reader to which Spark hands the query's filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Narrows the ranges by the filters, and returns those that Spark has to apply itself."""
        self._bounds, left = narrow(self._bounds, filters)
        return left


class PartitionEntry(TypedDict):
    """A partition's progress in Spark's checkpoint."""

    start: int
    next: int


class TopicEntry(TypedDict):
    """A topic in Spark's checkpoint: its id, and the progress of its partitions by number."""

    id: str
    partitions: dict[str, PartitionEntry]


Document: TypeAlias = dict[str, TopicEntry]


class Progress(NamedTuple):
    """One partition: the offset at which the stream began, and the next offset to hand out."""

    start: int
    next: int


class StreamOffset(NamedTuple):
    """The position of a stream: the ids of its topics, and the progress of each partition."""

    ids: Mapping[str, str]
    progress: Mapping[TopicPartition, Progress]

    def to_json(self) -> Document:
        """Returns the JSON for Spark's checkpoint; its keys are in a fixed order, because Spark compares the texts."""
        document: Document = {topic: {"id": topic_id, "partitions": {}} for topic, topic_id in sorted(self.ids.items())}
        for (topic, partition), progress in sorted(self.progress.items()):
            document[topic]["partitions"][str(partition)] = {"start": progress.start, "next": progress.next}
        return document

    @classmethod
    def from_json(cls, document: Document) -> StreamOffset:
        """Returns the progress in a document of `to_json`; raises CheckpointError where another source wrote it."""
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
        """Returns the offset at which to go on in a topic of this id; None where nothing of it was read."""
        known = self.progress.get((topic, partition))
        return None if known is None or self.ids[topic] != topic_id else known.next


def ranges_between(start: StreamOffset, end: StreamOffset) -> list[TopicRange]:
    """Returns what a micro-batch reads: a range for each partition whose next offset differs."""
    ranges = []
    for (topic, partition), progress in sorted(end.progress.items()):
        done = start.next_offset(topic, end.ids[topic], partition)
        from_offset = progress.start if done is None else max(done, progress.start)
        if from_offset < progress.next:
            ranges.append(TopicRange(topic, partition, from_offset, progress.next))
    return ranges


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows topics; new partitions, and new topics that match the pattern, are read from their start."""

    def __init__(self, options: SourceOptions, columns: pa.Schema) -> None:
        self._options = options
        self._columns = columns
        self._brokers = options.brokers()
        self._target: StreamOffset | None = None

    def initialOffset(self) -> Document:  # noqa: N802
        """Returns, as JSON for the checkpoint, the offsets at which a new query begins."""
        topics = chosen_topics(self._options, self._brokers)
        starting = self._options.starting or Position(LATEST)
        check_named_partitions("startingOffsets", starting, {name: topic.partitions for name, topic in topics.items()})
        progress: dict[TopicPartition, Progress] = {}
        for name, topic in topics.items():
            for partition, log in self._brokers.log_offsets(name, topic.partitions).items():
                offset = resolve(starting, name, partition, log, self._brokers.offset_for_time)
                offset = within_log(offset, name, partition, log, fail_on_data_loss=self._options.fail_on_data_loss)
                progress[name, partition] = Progress(offset, offset)
        return StreamOffset(_ids(topics), progress).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Returns the limit of a micro-batch in records, else in bytes; where both are set, `_admitted` adds bytes."""
        if self._options.max_records_per_trigger is not None:
            return ReadMaxRows(self._options.max_records_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Document, limit: ReadLimit) -> Document:  # noqa: N802
        """Returns the offsets up to which the micro-batch after `start` reads; `start` itself where nothing is new.

        Raises:
            TopicRecreatedError, OffsetsLostError, LogTruncatedError: Offsets are gone, and `failOnDataLoss` is on.
        """
        before = StreamOffset.from_json(start)
        available = self._available(before)
        ranges = ranges_between(before, available)
        if not ranges:
            return start
        admitted = self._admitted(ranges, limit)
        progress = dict(available.progress)
        for part in ranges:
            partition = part.topic, part.partition
            progress[partition] = progress[partition]._replace(next=part.from_offset + admitted[partition])
        return StreamOffset(available.ids, progress).to_json()

    def reportLatestOffset(self) -> Document:  # noqa: N802
        """Returns the ends of the logs, which Spark shows in a query's progress."""
        return self._ends(StreamOffset({}, {}), chosen_topics(self._options, self._brokers)).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Reads the present ends of the logs, up to which this run of AvailableNow reads."""
        self._target = self._ends(StreamOffset({}, {}), chosen_topics(self._options, self._brokers))

    def partitions(self, start: Document, end: Document) -> Sequence[InputPartition]:
        """Returns a range of offsets for each task."""
        ranges = ranges_between(StreamOffset.from_json(start), StreamOffset.from_json(end))
        return [RangePartition(piece) for part in ranges for piece in split(part, self._options.max_records_per_task)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one range."""
        return read_offsets(TopicRange(*partition.value), self._options, self._columns)

    def stop(self) -> None:
        """Closes the connections."""
        self._brokers.close()

    def _available(self, before: StreamOffset) -> StreamOffset:
        """Returns the progress up to the logs' ends, or to the target of AvailableNow where that is lower."""
        topics = chosen_topics(self._options, self._brokers)
        self._check_topics(before, topics)
        ends = self._ends(before, topics)
        if self._target is None:
            return ends
        progress = {
            partition: found._replace(next=min(found.next, self._target.progress[partition].next))
            for partition, found in ends.progress.items()
            if partition in self._target.progress
        }
        return StreamOffset(ends.ids, progress)

    def _check_topics(self, before: StreamOffset, topics: Mapping[str, SourceTopic]) -> None:
        """Raises an error where a topic or a partition in the checkpoint is gone, or was created again."""
        if not self._options.fail_on_data_loss:
            return
        for topic, partition in before.progress:
            if topic not in topics:
                raise UnknownTopicError(f"topic {topic}, which this stream reads, does not exist")
            if before.ids[topic] != topics[topic].topic_id:
                raise TopicRecreatedError(
                    f"topic {topic} was deleted and created again since this stream read it: its id is "
                    f"{topics[topic].topic_id}, the checkpoint's {before.ids[topic]}; "
                    "failOnDataLoss=false goes on with the new one from its start"
                )
            if partition not in topics[topic].partitions:
                raise LogTruncatedError(f"topic {topic}: partition {partition}, which this stream reads, is gone")

    def _ends(self, before: StreamOffset, topics: Mapping[str, SourceTopic]) -> StreamOffset:
        progress = {
            (name, partition): self._end(before, name, topic.topic_id, partition, log)
            for name, topic in topics.items()
            for partition, log in self._brokers.log_offsets(name, topic.partitions).items()
        }
        return StreamOffset(_ids(topics), progress)

    def _end(self, before: StreamOffset, name: str, topic_id: str, partition: int, log: LogOffsets) -> Progress:
        """Returns a partition's progress up to its log's end; its start is new where offsets are new or gone."""
        done = before.next_offset(name, topic_id, partition)
        if done is None:
            return Progress(log.start_offset, log.end_offset)
        going_on = within_log(done, name, partition, log, fail_on_data_loss=self._options.fail_on_data_loss)
        start = before.progress[name, partition].start if going_on == done else going_on
        return Progress(start, log.end_offset)

    def _admitted(self, ranges: Sequence[TopicRange], limit: ReadLimit) -> dict[TopicPartition, int]:
        """Returns how many offsets of each range a micro-batch with this limit reads."""
        backlog = {(part.topic, part.partition): part.until_offset - part.from_offset for part in ranges}
        match limit:
            case ReadAllAvailable():
                return backlog
            case ReadMaxRows(max_rows):
                by_bytes = self._options.max_bytes_per_trigger
                records = max_rows if by_bytes is None else min(max_rows, self._records_in(ranges, by_bytes))
            case ReadMaxBytes(max_bytes):
                records = self._records_in(ranges, max_bytes)
            case _:
                raise SourceOptionError(f"{type(limit).__name__}: a limit that a log of records does not know")
        return admit(backlog, records)

    def _records_in(self, ranges: Sequence[TopicRange], max_bytes: int) -> int:
        """Returns how many offsets of these ranges take about `max_bytes` in the log; at least one."""
        offsets = sum(part.until_offset - part.from_offset for part in ranges)
        size_bytes = sum(
            (part.until_offset - part.from_offset)
            * self._brokers.bytes_per_offset(part.topic, part.partition, part.from_offset)
            for part in ranges
        )
        return max(1, int(offsets * max_bytes / max(size_bytes, 1)))


def _ids(topics: Mapping[str, SourceTopic]) -> dict[str, str]:
    return {name: topic.topic_id for name, topic in topics.items()}
