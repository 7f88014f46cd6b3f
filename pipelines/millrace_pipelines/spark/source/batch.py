"""A batch read: its spans are fixed once, when Spark plans the query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from millrace_pipelines.spark.brokers import Brokers, LogOffsets
from millrace_pipelines.spark.errors import SourceOptionError
from millrace_pipelines.spark.source.filters import Bounds, narrow
from millrace_pipelines.spark.source.options import SourceOptions
from millrace_pipelines.spark.source.positions import Position, check_named_partitions, resolve, within_log
from millrace_pipelines.spark.source.rows import read_span
from millrace_pipelines.spark.source.spans import Span, SpanPartition, split
from millrace_pipelines.spark.source.topics import SourceTopic, chosen_topics


class BatchReader(DataSourceReader):
    """Reads from the starting position to the ending one."""

    def __init__(self, options: SourceOptions, columns: pa.Schema) -> None:
        self._options = options
        self._columns = columns
        self._bounds = Bounds()

    def partitions(self) -> Sequence[InputPartition]:
        """Returns a span for each task."""
        with self._options.brokers() as brokers:
            topics = chosen_topics(self._options, brokers)
            self._check(topics)
            spans = [span for name, topic in topics.items() for span in self._spans(brokers, name, topic)]
        return [SpanPartition(piece) for span in spans for piece in split(span, self._options.max_records_per_task)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one span; none for the partition that Spark makes where a query has no span."""
        if isinstance(partition, SpanPartition):
            yield from read_span(Span(*partition.value), self._options, self._columns)

    def _check(self, topics: dict[str, SourceTopic]) -> None:
        partitions = {name: topic.partitions for name, topic in topics.items()}
        for option, position in (("startingOffsets", self._options.starting), ("endingOffsets", self._options.ending)):
            if position is not None:
                check_named_partitions(option, position, partitions)

    def _spans(self, brokers: Brokers, name: str, topic: SourceTopic) -> Iterator[Span]:
        partitions = [partition for partition in topic.partitions if self._bounds.allows(name, partition)]
        for partition, log in brokers.log_offsets(name, partitions).items():
            yield self._span(brokers, name, partition, log)

    def _span(self, brokers: Brokers, name: str, partition: int, log: LogOffsets) -> Span:
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
        return Span(name, partition, low, max(low, high))


class PushingBatchReader(BatchReader):
    """A batch read where Spark is set up to hand over filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Narrows the spans, and returns the filters that Spark has to apply itself."""
        self._bounds, left = narrow(self._bounds, filters)
        return left
