"""A range of offsets as Arrow: what a task fetches from the partition's leader, decoded block by block.

A committed read passes over the batches of aborted transactions, which each answer of the broker names (KIP-98). Every
offset of the range is accounted for by what was read: it is a record's, a marker's or an aborted record's, or absent
(`records.absent`); what of that is right, the reader of the blocks decides.

Where the loss of batches that can't be read is accepted, reading goes on past them. Each answer is then read as a whole
before any of it is given out. Where that fails, what lies before the damage, the damage itself and what follows in the
answer are told apart (`client.damaged_batches`), and reading goes on from there. A gap that compaction does not explain
is asked for, since a damaged base offset or length makes one of good batches.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa

from millrace.client.damaged_batches import Damage, is_damage
from millrace.client.fetched import FetchedData, IsolationLevel
from millrace.errors import CorruptRecordError, MillraceError, RecordError, WarehouseError
from millrace.one_ahead import one_ahead
from millrace.records.absent import NO_INTERVALS, Intervals, absent_offsets, as_intervals, count_of, intervals_of
from millrace.records.arrow import PassedOver, decode_to_arrow
from millrace.records.arrow_columns import RECORD_SCHEMA
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.records.damage import Rules
from millrace.records.intervals import Extent, Interval, extent
from millrace_pipelines.arrow import nulls_of
from millrace_pipelines.spark.brokers import Brokers, TopicSource, brokers_of

NO_RECORDS = pa.RecordBatch.from_arrays([nulls_of(field.type, 0) for field in RECORD_SCHEMA], schema=RECORD_SCHEMA)


class ReadBlock(NamedTuple):
    """A block of records, as `records.arrow.RECORD_SCHEMA`, in the order of their offsets, and what was passed over.

    `control` counts transaction markers, `aborted` offsets of aborted transactions; `absent` has the intervals without
    any batch, each within the range that is read; `leader_epoch` is that of the last batch. Only the last block of a
    fetch response has these, for the whole response.
    """

    records: pa.RecordBatch
    control: int = 0
    aborted: int = 0
    absent: Intervals = NO_INTERVALS
    leader_epoch: int = NO_LEADER_EPOCH
    damage: Damage | None = None


def read_range(source: TopicSource, partition: int, from_offset: int, until_offset: int) -> Iterator[ReadBlock]:
    """Yields the records with from_offset <= offset < until_offset; the next ones are fetched meanwhile.

    Raises:
        OffsetOutOfRangeError: Retention deleted a part of the range.
        WarehouseError: The log ends before until_offset.
        RecordError: The broker's bytes are not valid batches, or not in the order of their offsets.
    """
    for _, blocks in read_answers(source, partition, Interval(from_offset, until_offset)):
        yield from blocks


def read_answers(
    source: TopicSource, partition: int, interval: Interval
) -> Iterator[tuple[Interval, Iterator[ReadBlock]]]:
    """Yields, for each fetch response, the part of the interval that it has, and its blocks of records.

    Raises OffsetOutOfRangeError, WarehouseError or RecordError, as `read_range` does.
    """
    position = interval.from_offset
    for fetched in one_ahead(_fetch_range(source, partition, *interval)):
        wanted = Interval(position, min(fetched.extent.next_offset, interval.until_offset))
        yield wanted, _named_blocks(source, partition, fetched, wanted)
        position = wanted.until_offset


def blocks_of(data: FetchedData, interval: Interval) -> tuple[Interval, list[ReadBlock]]:
    """Returns which part of the interval a fetch response has, and the blocks of that part; raises RecordError."""
    fetched = _Fetched(data, extent(data.records, interval.from_offset))
    wanted = Interval(interval.from_offset, min(fetched.extent.next_offset, interval.until_offset))
    return wanted, list(_blocks(fetched, wanted))


def _named_blocks(source: TopicSource, partition: int, fetched: _Fetched, wanted: Interval) -> Iterator[ReadBlock]:
    with _named(source, partition, wanted.from_offset):
        yield from _blocks(fetched, wanted)


def _blocks(fetched: _Fetched, wanted: Interval) -> Iterator[ReadBlock]:
    """Yields blocks of a fetch response's records, then a block without records, which has its counts and gaps."""
    others, there = PassedOver(), list[Intervals]()
    for records in decode_to_arrow(
        fetched.data.records,
        from_offset=wanted.from_offset,
        until_offset=wanted.until_offset,
        aborted=fetched.data.aborted,
        passed_over=others,
    ):
        there.append(intervals_of(records.column("offset").to_numpy()))
        yield ReadBlock(records)
    yield _account(wanted, there, others, fetched.extent.leader_epoch)


@contextmanager
def _named(source: TopicSource, partition: int, position: int) -> Iterator[None]:
    """Turns a RecordError inside into CorruptRecordError, which names topic, partition and offset."""
    try:
        yield
    except RecordError as error:
        raise CorruptRecordError(
            f"topic {source.topic}, partition {partition}, from offset {position} on: {error}"
        ) from error


def _account(wanted: Interval, there: list[Intervals], others: PassedOver, leader_epoch: int) -> ReadBlock:
    control, aborted = as_intervals(others.control), as_intervals(others.aborted)
    absent = absent_offsets([*there, control, aborted], wanted)
    return ReadBlock(NO_RECORDS, count_of(control), count_of(aborted), absent, leader_epoch)


class _Fetched(NamedTuple):
    """A fetch response, and the offset and leader epoch at its end."""

    data: FetchedData
    extent: Extent


def _fetch_range(
    source: TopicSource, partition: int, from_offset: int, until_offset: int
) -> Generator[_Fetched, None, None]:
    """Yields fetch responses; each begins at the offset behind the whole batches of the one before."""
    with brokers_of(source) as brokers:
        position = from_offset
        while position < until_offset:
            data = brokers.fetch(source.topic, partition, position)
            found = _extent(source, partition, data, until_offset, goes_on=position > from_offset)
            yield _Fetched(data, found)
            position = found.next_offset


def _extent(source: TopicSource, partition: int, data: FetchedData, until_offset: int, *, goes_on: bool) -> Extent:
    """Returns the end of a fetch response; an empty one ends at `until_offset` if the log does not end before.

    Raises WarehouseError where it does. `goes_on` says whether an earlier response ended where this one begins.
    """
    position = data.asked_offset
    with _named(source, partition, position):
        found = extent(data.records, position, goes_on=goes_on)
    if found.next_offset > position:
        return found
    if not data.records and data.end_offset(IsolationLevel[source.isolation.name]) >= until_offset:
        return Extent(until_offset)
    raise WarehouseError(
        f"topic {source.topic}, partition {partition}: nothing to read at offset {position}, "
        f"though the log reached {until_offset} when the load was planned"
    )


def read_range_on(source: TopicSource, partition: int, from_offset: int, until_offset: int) -> Iterator[ReadBlock]:
    """Yields blocks of records as `read_range` does; damaged batches give a block with only `damage`, and are passed.

    Raises:
        CorruptRecordError: Damage that casts doubt on records which were yielded before it.
    """
    position = from_offset
    with brokers_of(source) as brokers:
        while position < until_offset:
            try:
                for wanted, blocks in read_answers(source, partition, Interval(position, until_offset)):
                    yield from _checked(brokers, source.topic, partition, list(blocks))
                    position = wanted.until_offset
            except MillraceError as error:
                if not is_damage(error):
                    raise
                interval = Interval(position, until_offset)
                for part in _parts(brokers, source.topic, partition, interval, error, goes_on=position > from_offset):
                    position = part[0]
                    yield from part[1]


def _checked(brokers: Brokers, topic: str, partition: int, blocks: list[ReadBlock]) -> list[ReadBlock]:
    """Returns a fetch response's blocks; raises MissingOffsetsError where the log has something in their gaps."""
    for gap in _gaps(block.absent for block in blocks):
        brokers.check_gap(topic, partition, gap)
    return blocks


def _gaps(absent: Iterable[Intervals]) -> Iterator[Interval]:
    for intervals in absent:
        for first, end in intervals:
            yield Interval(int(first), int(end))


def _parts(
    brokers: Brokers, topic: str, partition: int, interval: Interval, error: MillraceError, *, goes_on: bool
) -> Iterator[tuple[int, list[ReadBlock]]]:
    """Yields, for each readable or damaged part of an interval, the offset after it and its blocks of records."""
    position = interval.from_offset
    rules = Rules(_decoded, lambda gap: brokers.check_gap(topic, partition, gap))
    for part in brokers.damaged_batches(topic, partition, rules).parts(*interval, error, goes_on=goes_on):
        if isinstance(part, Damage):
            position, blocks = part.interval.until_offset, [ReadBlock(NO_RECORDS, damage=part)]
        else:
            wanted, blocks = blocks_of(part, Interval(position, interval.until_offset))
            position = wanted.until_offset
        yield position, blocks


def _decoded(batch: memoryview) -> None:
    for _ in decode_to_arrow(batch):
        pass
