"""Sends records for `millrace produce` in batches by partition, and waits until the broker has acknowledged each batch.

A record goes to the partition that it names, or else where Kafka's default partitioner puts its key. Records with
neither change the partition with each chunk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from millrace.errors import BrokerError, ErrorCode, InvalidRecordError, RecordTooLargeError
from millrace_ops.cli.produce_lines import Placed

if TYPE_CHECKING:
    from millrace.client import Cluster
    from millrace.records.record import NewRecord

BATCH_BYTES = 512 << 10
RECORD_OVERHEAD_BYTES = 32

CodecName = Literal["none", "gzip", "snappy", "lz4", "zstd"]


def batches_of(records: Iterable[NewRecord], max_bytes: int = BATCH_BYTES) -> Iterator[list[NewRecord]]:
    """Yields the records in batches of about `max_bytes`; a larger record makes its own batch."""
    batch: list[NewRecord] = []
    size_bytes = 0
    for record in records:
        record_bytes = _size_bytes(record)
        if batch and size_bytes + record_bytes > max_bytes:
            yield batch
            batch, size_bytes = [], 0
        batch.append(record)
        size_bytes += record_bytes
    if batch:
        yield batch


class Sender:
    """Spreads records over a topic's partitions and counts those that the broker has acknowledged.

    Args:
        cluster: The cluster that has the topic, or creates it.
        topic: The topic's name.
        partition: The partition of all records, whatever they name; None leaves the choice to each record.
        codec: The compression of batches.
    """

    def __init__(self, cluster: Cluster, topic: str, partition: int | None, codec: CodecName) -> None:
        from millrace.client import SyncProducer
        from millrace.records.compression import Codec

        self.acknowledged = 0
        self._producer = SyncProducer(cluster)
        self._topic = topic
        self._partition = partition
        self._codec = Codec[codec.upper()]
        self._partition_count = cluster.partition_count(topic, create_missing=True)
        self._keyless_partition = 0

    def send(self, records: Iterable[Placed]) -> None:
        """Sends all records and waits for the acknowledgements.

        Raises:
            InvalidRecordError: A record names a partition that doesn't exist, and none of these records is sent; or the
                broker refuses a batch.
        """
        for partition, chosen in self._by_partition(records).items():
            sent = 0
            for batch in batches_of([one.record for one in chosen]):
                self._send_batch(partition, batch, chosen[sent].line, chosen[sent + len(batch) - 1].line)
                sent += len(batch)

    def _send_batch(self, partition: int, batch: Sequence[NewRecord], first_line: int, last_line: int) -> None:
        try:
            self._producer.send(self._topic, partition, batch, codec=self._codec)
        except (InvalidRecordError, RecordTooLargeError, BrokerError) as error:
            if isinstance(error, BrokerError) and error.broker_code != ErrorCode.INVALID_TIMESTAMP:
                raise
            lines = f"a record of the lines {first_line} to {last_line}"
            place = f"line {first_line}" if first_line == last_line else lines
            raise InvalidRecordError(f"{place}: {error}") from error
        self.acknowledged += len(batch)

    def _by_partition(self, records: Iterable[Placed]) -> Mapping[int, Sequence[Placed]]:
        self._keyless_partition = (self._keyless_partition + 1) % self._partition_count
        chosen: dict[int, list[Placed]] = defaultdict(list)
        for one in records:
            chosen[self._partition_of(one)].append(one)
        return chosen

    def _partition_of(self, one: Placed) -> int:
        from millrace.client.producer.plugins import partition_for_key

        if self._partition is not None:
            return self._partition
        if one.partition is not None:
            if one.partition >= self._partition_count:
                last = self._partition_count - 1
                raise InvalidRecordError(
                    f"line {one.line}: {self._topic} has no partition {one.partition}, its last one is {last}"
                )
            return one.partition
        key = one.record.key
        return self._keyless_partition if key is None else partition_for_key(key, self._partition_count)


def _size_bytes(record: NewRecord) -> int:
    headers = sum(len(name) + len(value or b"") + RECORD_OVERHEAD_BYTES for name, value in record.headers)
    return len(record.value or b"") + len(record.key or b"") + headers + RECORD_OVERHEAD_BYTES
