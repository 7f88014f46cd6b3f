"""The ranges of offsets that tasks of the data source read, and how a task reads its range as rows of the raw envelope.

A repeated task reads the same offsets again, and Spark takes the rows of one attempt only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from millrace.errors import OffsetOutOfRangeError, RecordError
from millrace.records.absent import Intervals
from millrace_pipelines.arrow import Column
from millrace_pipelines.spark.brokers import is_topic_compacted, log_offsets
from millrace_pipelines.spark.errors import OffsetsLostError
from millrace_pipelines.spark.read import read_range, read_range_on
from millrace_pipelines.spark.source.options import SourceOptions

TopicPartition = tuple[str, int]


class TopicRange(NamedTuple):
    """Offsets of one partition: from_offset up to, not including, until_offset."""

    topic: str
    partition: int
    from_offset: int
    until_offset: int


class RangePartition(InputPartition):
    """A range of offsets in the form in which Spark hands it to a task."""

    def __init__(self, part: TopicRange) -> None:
        super().__init__(tuple(part))


def split(part: TopicRange, max_records_per_task: int | None) -> list[TopicRange]:
    """Splits a range into equal pieces of at most `max_records_per_task` offsets; none where it is empty."""
    offsets = part.until_offset - part.from_offset
    if offsets <= 0:
        return []
    pieces = 1 if max_records_per_task is None else -(-offsets // max_records_per_task)
    bounds = [part.from_offset + offsets * piece // pieces for piece in range(pieces + 1)]
    return [TopicRange(part.topic, part.partition, low, high) for low, high in pairwise(bounds)]


def admit(backlog: Mapping[TopicPartition, int], max_records: int) -> dict[TopicPartition, int]:
    """Shares `max_records` out among the partitions, in proportion to their backlogs, and returns each one's share.

    The offsets that rounding leaves go to the partitions with the largest remainders, so a limit of 1 makes progress.
    """
    total = sum(backlog.values())
    if total <= max_records:
        return dict(backlog)
    shares = {partition: waiting * max_records // total for partition, waiting in backlog.items()}
    left = max_records - sum(shares.values())
    by_remainder = sorted(backlog, key=lambda partition: (-(backlog[partition] * max_records % total), partition))
    for partition in by_remainder[:left]:
        shares[partition] += 1
    return shares


def read_offsets(part: TopicRange, options: SourceOptions, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the records of a range as rows with the given columns of the envelope, in the order of their offsets.

    Raises:
        OffsetsLostError: Retention took offsets away after the query was planned, or the log has lost some, and
            `fail_on_data_loss` is on.
    """
    position, read = part.from_offset, read_range if options.fail_on_data_loss else read_range_on
    while position < part.until_offset:
        try:
            for block in read(options.source(part.topic), part.partition, position, part.until_offset):
                _check_absent(part, block.absent, options)
                if block.records.num_rows:
                    position = int(block.records.column("offset")[-1].as_py()) + 1
                    yield envelope(block.records, part, columns)
        except OffsetOutOfRangeError:
            position = _after_loss(part, position, options)
        except RecordError as error:
            if not options.fail_on_data_loss:
                raise
            raise OffsetsLostError(f"{error}; failOnDataLoss=false goes on behind it") from error
        else:
            return


def envelope(records: pa.RecordBatch, part: TopicRange, columns: pa.Schema) -> pa.RecordBatch:
    """Returns records with topic and partition added, as the given columns."""
    constants: dict[str, Column] = {
        "topic": pa.repeat(pa.scalar(part.topic, pa.string()), records.num_rows),
        "partition": pa.repeat(pa.scalar(part.partition, pa.int32()), records.num_rows),
    }
    arrays = [constants[name] if name in constants else records.column(name) for name in columns.names]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _check_absent(part: TopicRange, absent: Intervals, options: SourceOptions) -> None:
    if not len(absent) or is_topic_compacted(options.source(part.topic)):
        return
    message = (
        f"topic {part.topic}, partition {part.partition}: the log has no record at offsets among "
        f"{absent[0][0]}-{absent[-1][1] - 1}, and the topic is not compacted: batches are lost or damaged"
    )
    if options.fail_on_data_loss:
        raise OffsetsLostError(f"{message}; failOnDataLoss=false goes on without them")
    with options.brokers() as brokers:
        if any(brokers.serves(part.topic, part.partition, int(first), int(end)) for first, end in absent):
            raise OffsetsLostError(f"{message}; the log has some of them, so that a batch's base offset is wrong")


def _after_loss(part: TopicRange, position: int, options: SourceOptions) -> int:
    start_offset = log_offsets(options.source(part.topic), [part.partition])[part.partition].start_offset
    if options.fail_on_data_loss or start_offset <= position:
        raise OffsetsLostError(
            f"topic {part.topic}, partition {part.partition}: offset {position} was deleted since the query was "
            f"planned, the log begins at {start_offset} now; failOnDataLoss=false goes on without the deleted offsets"
        ) from None
    return start_offset
