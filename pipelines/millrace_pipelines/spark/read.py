"""The one door from pipelines to a broker: a topic's id, its logs' ends, a range of offsets as Arrow (spec H1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from millrace.client import Cluster, SimpleConsumer
from millrace.errors import WarehouseError
from millrace.records.arrow import decode_to_arrow
from millrace.records.batch import Buffer, walk

FETCH_MAX_BYTES = 2 << 20
FETCH_MAX_WAIT_MS = 500


class LogOffsets(NamedTuple):
    """A partition's log start offset and the offset after its last readable record."""

    start_offset: int
    end_offset: int


class TopicDescription(NamedTuple):
    """A topic's id and partitions; where the cluster gives no ids (before Kafka 2.8), its name stands for the id."""

    topic_id: str
    partitions: tuple[int, ...]


def describe_topic(bootstrap: str, topic: str) -> TopicDescription:
    """Ask the cluster for a topic; UnknownTopicError where it has none of this name, ClientError where it can't say."""
    with Cluster(bootstrap) as cluster:
        metadata = cluster.metadata([topic]).topic(topic)
        return TopicDescription(str(metadata.topic_id or topic), tuple(sorted(metadata.partitions)))


def log_offsets(bootstrap: str, topic: str, partitions: Iterable[int]) -> dict[int, LogOffsets]:
    """Start and end of each partition's log, as of now."""
    with Cluster(bootstrap) as cluster:
        consumer = SimpleConsumer(cluster)
        return {
            partition: LogOffsets(consumer.earliest(topic, partition), consumer.latest(topic, partition))
            for partition in partitions
        }


def read_range(
    bootstrap: str, topic: str, partition: int, from_offset: int, until_offset: int
) -> Iterator[pa.RecordBatch]:
    """Records with from_offset <= offset < until_offset in order, as `records.arrow.RECORD_SCHEMA`.

    Offsets that hold no record (transaction markers, compacted ones) are passed over.

    Raises:
        OffsetOutOfRangeError: Retention took the range away.
        WarehouseError: The log ends before until_offset.
        RecordError: The broker's bytes are not valid batches.
    """
    with Cluster(bootstrap) as cluster:
        consumer = SimpleConsumer(cluster)
        position = from_offset
        while position < until_offset:
            fetched = consumer.fetch(
                topic, partition, position, max_bytes=FETCH_MAX_BYTES, max_wait_ms=FETCH_MAX_WAIT_MS
            )
            yield from decode_to_arrow(fetched.records, from_offset=position, until_offset=until_offset)
            following = _offset_after(fetched.records, position)
            if following <= position:
                raise WarehouseError(
                    f"topic {topic}, partition {partition}: nothing to read at offset {position}, "
                    f"though the log reached {until_offset} when the load was planned"
                )
            position = following


def _offset_after(batches: Buffer, position: int) -> int:
    """The offset after the last whole batch; `position` where there is none."""
    for _, header in walk(batches):
        position = header.next_offset
    return position
