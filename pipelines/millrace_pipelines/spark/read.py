"""The one door from pipelines to a broker: a topic's id, its logs' ends, a range of offsets as Arrow (spec H1).

Of a topic with transactions, a committed read ends at the last stable offset, and passes over the batches of aborted
transactions, which each answer of the broker names (KIP-98).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import pyarrow as pa

from millrace.client import Cluster, SimpleConsumer
from millrace.client.simple_consumer import FetchedData, IsolationLevel
from millrace.errors import WarehouseError
from millrace.records.arrow import RECORD_SCHEMA, PassedOver, decode_to_arrow
from millrace.records.batch import MAGIC_V2, NO_LEADER_EPOCH, walk
from millrace.records.formats import next_offset, runs
from millrace_pipelines.spark.choices import Isolation

FETCH_MAX_BYTES = 8 << 20
FETCH_MAX_WAIT_MS = 500
Item = TypeVar("Item")
NO_RECORDS = pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA)


@dataclass(frozen=True, slots=True)
class TopicSource:
    """A topic of a cluster, and how it is read."""

    bootstrap: str
    topic: str
    isolation: Isolation = Isolation.READ_COMMITTED


class LogOffsets(NamedTuple):
    """A partition's log start offset, the offset after its last readable record, and where the log itself ends.

    The last two differ by open transactions, which a committed read waits for; `high_watermark` None says the same.
    """

    start_offset: int
    end_offset: int
    high_watermark: int | None = None

    @property
    def log_end(self) -> int:
        """The high watermark."""
        return self.end_offset if self.high_watermark is None else self.high_watermark


class TopicDescription(NamedTuple):
    """A topic's id and partitions, and their leaders' epochs; -1 where the cluster tells none (before Kafka 2.1).

    Where it gives no ids (before Kafka 2.8), the topic's name stands for the id.
    """

    topic_id: str
    partitions: tuple[int, ...]
    leader_epochs: Mapping[int, int] = MappingProxyType({})


class ReadBlock(NamedTuple):
    """Records in the order of their offsets, as `records.arrow.RECORD_SCHEMA`, and the offsets passed over for them.

    `control` counts offsets of transaction markers, `aborted` those of aborted transactions, each within the range that
    is read; `leader_epoch` is that of the last batch of an answer, in the answer's last block.
    """

    records: pa.RecordBatch
    control: int = 0
    aborted: int = 0
    leader_epoch: int = NO_LEADER_EPOCH


def describe_topic(source: TopicSource) -> TopicDescription:
    """Ask the cluster for a topic; UnknownTopicError where it has none of this name, ClientError where it can't say."""
    with Cluster(source.bootstrap) as cluster:
        metadata = cluster.metadata([source.topic]).topic(source.topic)
        leader_epochs = {partition: found.leader_epoch for partition, found in metadata.partitions.items()}
        return TopicDescription(str(metadata.topic_id or source.topic), tuple(sorted(leader_epochs)), leader_epochs)


def log_offsets(source: TopicSource, partitions: Iterable[int]) -> dict[int, LogOffsets]:
    """Start and end of each partition's log, as of now; the end is the last stable offset for committed reads."""
    with Cluster(source.bootstrap) as cluster:
        consumer = SimpleConsumer(cluster)
        return {
            partition: LogOffsets(
                consumer.earliest(source.topic, partition),
                consumer.latest(source.topic, partition, IsolationLevel[source.isolation.name]),
                consumer.latest(source.topic, partition),
            )
            for partition in partitions
        }


def epoch_ends(source: TopicSource, leader_epochs: Mapping[int, int]) -> dict[int, int]:
    """Where each partition's log ends in the leader epoch of what was read last of it, where the broker knows."""
    with Cluster(source.bootstrap) as cluster:
        consumer = SimpleConsumer(cluster)
        ends = {
            partition: consumer.epoch_end(source.topic, partition, leader_epoch).end_offset
            for partition, leader_epoch in leader_epochs.items()
        }
        return {partition: end_offset for partition, end_offset in ends.items() if end_offset >= 0}


def read_range(source: TopicSource, partition: int, from_offset: int, until_offset: int) -> Iterator[ReadBlock]:
    """Records with from_offset <= offset < until_offset; while they are used, what follows is already fetched.

    Offsets that hold no record any more, for compaction took it, are passed over without being counted.

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
    """The broker's answers from one offset up to another, each going on where the whole batches of the last one end."""
    with Cluster(source.bootstrap) as cluster:
        consumer = SimpleConsumer(cluster)
        position = from_offset
        while position < until_offset:
            data = consumer.fetch(
                source.topic,
                partition,
                position,
                max_bytes=FETCH_MAX_BYTES,
                max_wait_ms=FETCH_MAX_WAIT_MS,
                isolation=IsolationLevel[source.isolation.name],
            )
            fetched = _Fetched(data, *_end_of(data.records, position))
            if fetched.next_offset <= position:
                raise WarehouseError(
                    f"topic {source.topic}, partition {partition}: nothing to read at offset {position}, "
                    f"though the log reached {until_offset} when the load was planned"
                )
            yield fetched
            position = fetched.next_offset


def _one_ahead(items: Generator[Item, None, None]) -> Iterator[Item]:
    """The items, each made on a thread of its own while the one before it is used."""
    with closing(items), ThreadPoolExecutor(1, "fetch") as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item


def _end_of(records: bytes, position: int) -> tuple[int, int]:
    """The offset after the last whole batch or message, `position` if there is none, and the batch's leader epoch."""
    leader_epoch = NO_LEADER_EPOCH
    for magic, run in runs(records):
        if magic != MAGIC_V2:
            position = next_offset(run, position)
            continue
        for _, header in walk(run):
            position, leader_epoch = header.next_offset, header.partition_leader_epoch
    return position, leader_epoch
