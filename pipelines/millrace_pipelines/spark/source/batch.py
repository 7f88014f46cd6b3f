"""A batch read: its ranges are fixed once, when Spark plans the query.

Filters of the query choose offsets, and only those that they leave of a partition are fetched:

    topic = 'events'            these topics                        done here
    partition in (0, 2)         these partitions                    done here
    offset >= 17                from 17                             done here
    timestamp >= t              from the first offset not older     Spark looks again at the rows
    timestamp < t               nothing: producers' times need not grow with the offsets

An upper bound of time chooses rows, not offsets; the option endingTime ends a read at an offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce
from typing import TypeVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
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

from millrace.times import EPOCH
from millrace_pipelines.spark.brokers import Brokers, LogOffsets
from millrace_pipelines.spark.errors import SourceOptionError
from millrace_pipelines.spark.source.options import (
    Position,
    SourceOptions,
    SourceTopic,
    check_named_partitions,
    chosen_topics,
    resolve,
    within_log,
)
from millrace_pipelines.spark.source.rows import RangePartition, TopicRange, read_offsets, split

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
