"""A batch read: its ranges are fixed once, when Spark plans the query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from millrace_pipelines.spark.brokers import Brokers, LogOffsets
from millrace_pipelines.spark.errors import SourceOptionError
from millrace_pipelines.spark.source.filters import OffsetFilter, narrow
from millrace_pipelines.spark.source.offset_ranges import RangePartition, TopicRange, split
from millrace_pipelines.spark.source.options import SourceOptions
from millrace_pipelines.spark.source.positions import Position, check_named_partitions, resolve, within_log
from millrace_pipelines.spark.source.rows import read_offsets
from millrace_pipelines.spark.source.topics import SourceTopic, chosen_topics


class BatchReader(DataSourceReader):
    """Reads from the starting position to the ending one."""

    def __init__(self, options: SourceOptions, columns: pa.Schema) -> None:
        self._options = options
        self._columns = columns
        self._bounds = OffsetFilter()

    def partitions(self) -> Sequence[InputPartition]:
        """Returns a range for each task."""
        with self._options.brokers() as brokers:
            topics = chosen_topics(self._options, brokers)
            self._check(topics)
            ranges = [part for name, topic in topics.items() for part in self._ranges(brokers, name, topic)]
        return [RangePartition(piece) for part in ranges for piece in split(part, self._options.max_records_per_task)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one range; none for the partition that Spark makes where a query has no range."""
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
    """A batch read where Spark is set up to hand over filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Narrows the ranges, and returns the filters that Spark has to apply itself."""
        self._bounds, left = narrow(self._bounds, filters)
        return left
