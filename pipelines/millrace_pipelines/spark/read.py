"""A range of offsets as Arrow: what a task fetches from the partition's leader, decoded block by block.

A committed read passes over the batches of aborted transactions, which each answer of the broker names (KIP-98).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import NamedTuple, TypeVar

import pyarrow as pa

from millrace.client.fetched import FetchedData
from millrace.errors import WarehouseError
from millrace.records.arrow import RECORD_SCHEMA, PassedOver, decode_to_arrow
from millrace.records.batch import MAGIC_V2, NO_LEADER_EPOCH, walk
from millrace.records.formats import next_offset, runs
from millrace_pipelines.arrow import nulls_of
from millrace_pipelines.spark.brokers import TopicSource, brokers_of

Item = TypeVar("Item")
NO_RECORDS = pa.RecordBatch.from_arrays([nulls_of(field.type, 0) for field in RECORD_SCHEMA], schema=RECORD_SCHEMA)


class ReadBlock(NamedTuple):
    """Records in the order of their offsets, as `records.arrow.RECORD_SCHEMA`, and the offsets passed over for them.

    `control` counts offsets of transaction markers, `aborted` those of aborted transactions, each within the range that
    is read; `leader_epoch` is that of the last batch of an answer, in the answer's last block.
    """

    records: pa.RecordBatch
    control: int = 0
    aborted: int = 0
    leader_epoch: int = NO_LEADER_EPOCH


def read_range(source: TopicSource, partition: int, from_offset: int, until_offset: int) -> Iterator[ReadBlock]:
    """Yields the records with from_offset <= offset < until_offset; while they are used, the next are fetched.

    Offsets that no longer hold a record, because compaction removed it, are passed over without being counted.

    Raises:
        OffsetOutOfRangeError: Retention took the range away.
        WarehouseError: The log ends before until_offset.
        RecordError: The broker's bytes are not valid batches.
    """
    position = from_offset
    for fetched in _one_ahead(_fetch_range(source, partition, from_offset, until_offset)):
        counts = PassedOver()
        for records in decode_to_arrow(
            fetched.data.records,
            from_offset=position,
            until_offset=until_offset,
            aborted=fetched.data.aborted,
            passed_over=counts,
        ):
            yield ReadBlock(records)
        yield ReadBlock(NO_RECORDS, counts.control, counts.aborted, fetched.leader_epoch)
        position = fetched.next_offset


class _Fetched(NamedTuple):
    """An answer, the offset after its last whole batch, and that batch's leader epoch."""

    data: FetchedData
    next_offset: int
    leader_epoch: int


def _fetch_range(
    source: TopicSource, partition: int, from_offset: int, until_offset: int
) -> Generator[_Fetched, None, None]:
    """Yields the broker's answers, each of which begins where the whole batches of the one before end."""
    with brokers_of(source) as brokers:
        position = from_offset
        while position < until_offset:
            data = brokers.fetch(source.topic, partition, position)
            fetched = _Fetched(data, *_end_of(data.records, position))
            if fetched.next_offset <= position:
                raise WarehouseError(
                    f"topic {source.topic}, partition {partition}: nothing to read at offset {position}, "
                    f"though the log reached {until_offset} when the load was planned"
                )
            yield fetched
            position = fetched.next_offset


def _one_ahead(items: Generator[Item, None, None]) -> Iterator[Item]:
    """Yields the items, each of which is made on another thread while the one before it is used."""
    with closing(items), ThreadPoolExecutor(1, "fetch") as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item


def _end_of(records: bytes, position: int) -> tuple[int, int]:
    """Returns the offset after the last whole batch or message, `position` for none, and the batch's leader epoch."""
    leader_epoch = NO_LEADER_EPOCH
    for magic, run in runs(records):
        if magic != MAGIC_V2:
            position = next_offset(run, position)
            continue
        for _, header in walk(run):
            position, leader_epoch = header.next_offset, header.partition_leader_epoch
    return position, leader_epoch
