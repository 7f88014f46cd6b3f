"""The topics that a benchmark loads: each broker has the same batches, byte for byte.

    100 B, 1 KB    cuts of text of a small vocabulary, 500 records a batch, plain and lz4
    flights        a year of flights as JSON, 253 B on average, 500 records a batch, twice

Two partitions, so that every reader can use two cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from typing import TYPE_CHECKING, NamedTuple

from millrace.client.admin import Admin
from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.connection import Connection
from millrace.records.compression import Codec
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.messages import PRODUCE

if TYPE_CHECKING:
    from millrace.wire.messages.produce import ProduceRequestFields
from millrace_benchmarks.payloads import text
from millrace_ops.demo.flights import events, read_flights

RECORDS_PER_BATCH = 500
DISTINCT_BATCHES = 64
FIRST_TIMESTAMP_MS = 1_767_225_600_000
PARTITIONS = 2
PRODUCE_TIMEOUT_MS = 30_000
KEPT = {"retention.ms": "-1"}  # the events are years old


class Topic(NamedTuple):
    """A topic's name and content; `size_bytes` is that of a value, None for flights."""

    name: str
    title: str
    size_bytes: int | None
    batches: int
    codec: Codec = Codec.NONE

    @property
    def records(self) -> int:
        """The number of its records."""
        return self.batches * RECORDS_PER_BATCH


def fill(bootstrap: str, topic: Topic, batches: Iterable[bytes]) -> None:
    """Creates the topic and appends its batches, in turn to each partition."""
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(topic.name, PARTITIONS, config=KEPT)
        for number, batch in enumerate(islice(cycle(batches), topic.batches)):
            append(cluster, topic.name, number % PARTITIONS, batch)


def batches_of(topic: Topic) -> list[bytes]:
    """Returns the distinct batches of a topic."""
    records = _flights() if topic.size_bytes is None else _texts(topic.size_bytes)
    groups = iter(lambda: list(islice(records, RECORDS_PER_BATCH)), [])
    return [encode_batch(group, codec=topic.codec) for group in groups]


def _texts(size_bytes: int) -> Iterator[NewRecord]:
    count = RECORDS_PER_BATCH * DISTINCT_BATCHES
    values = text(size_bytes * count)
    for number in range(count):
        value = values[number * size_bytes : (number + 1) * size_bytes]
        yield NewRecord(value, timestamp_ms=FIRST_TIMESTAMP_MS + number)


def _flights() -> Iterator[NewRecord]:
    flights = read_flights()
    whole = flights.num_rows // RECORDS_PER_BATCH * RECORDS_PER_BATCH
    for timestamp_ms, key, value in events(flights.slice(0, whole)):
        yield NewRecord(value, key=key, timestamp_ms=timestamp_ms)


def append(cluster: Cluster, topic: str, partition: int, batch: bytes) -> None:
    """Appends one batch to a partition; raises ClientError where the broker does not take it."""
    fields: ProduceRequestFields = {
        "transactional_id": None,
        "acks": -1,
        "timeout": PRODUCE_TIMEOUT_MS,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
    }

    def action(connection: Connection) -> None:
        answer = connection.request(PRODUCE, fields)
        check(answer.responses[0].partition_responses[0].error_code, f"{topic}-{partition}")

    cluster.on_leader(topic, partition, action)
