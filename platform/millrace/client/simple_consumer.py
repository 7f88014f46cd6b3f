"""Reads by offset, without a group and without state (spec E1): the caller keeps the offsets.

An answer holds whole batches as they lie in the log, the first of which may begin below the asked offset, the last
of which may be cut short. Brokers return the first batch whole even above the limit (KIP-74); for one that does
not, the limit is doubled until the batch is whole.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from millrace.client.answers import check
from millrace.client.cluster import Cluster
from millrace.client.connection import MAX_RESPONSE_BYTES, Connection
from millrace.errors import RecordTooLargeError
from millrace.records.batch import LOG_OVERHEAD_BYTES
from millrace.wire.api import ApiKey
from millrace.wire.cold import field

LATEST = -1
EARLIEST = -2
FETCH_MAX_BYTES = 4 << 20
LARGEST_FETCH_BYTES = MAX_RESPONSE_BYTES // 2
NO_OFFSET = -1
CONSUMER = -1


class FetchedData(NamedTuple):
    """Batches of one partition, and where its log ends and begins."""

    records: bytes
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class SimpleConsumer:
    """Reads from the leaders of a cluster.

    Every call may raise UnknownTopicError, BrokerError or BrokerUnreachableError after the cluster's retries.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = FETCH_MAX_BYTES,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
    ) -> FetchedData:
        """Batches from `offset` on, up to `max_bytes` but at least one if there is any.

        The broker holds the request up to `max_wait_ms` until it has `min_bytes`. Raises OffsetOutOfRangeError for an
        offset that the log does not have, RecordTooLargeError for a batch above 512 MiB.
        """
        while True:
            fetched = self._fetch(
                topic, partition, offset, max_bytes=max_bytes, max_wait_ms=max_wait_ms, min_bytes=min_bytes
            )
            if not starts_with_cut_batch(fetched.records):
                return fetched
            if max_bytes >= LARGEST_FETCH_BYTES:
                raise RecordTooLargeError(f"{topic}-{partition}: the batch at {offset} is above {max_bytes} bytes")
            max_bytes = min(2 * max_bytes, LARGEST_FETCH_BYTES)

    def earliest(self, topic: str, partition: int) -> int:
        """The log start offset."""
        return self._offset(topic, partition, EARLIEST)

    def latest(self, topic: str, partition: int) -> int:
        """The offset that the next readable record will get: the high watermark."""
        return self._offset(topic, partition, LATEST)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset whose record is not older than the time; None where all are."""
        offset = self._offset(topic, partition, timestamp_ms)
        return None if offset == NO_OFFSET else offset

    def _fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int, max_wait_ms: int, min_bytes: int
    ) -> FetchedData:
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes}
        fields: dict[str, Any] = {
            "replica_id": CONSUMER,
            "max_wait": max_wait_ms,
            "min_bytes": min_bytes,
            "max_bytes": max_bytes,
            "topics": [{"topic": topic, "partitions": [wanted]}],
            "forgotten_topics_data": (),
        }
        subject = f"fetch of {topic}-{partition} at offset {offset}"

        def action(connection: Connection) -> FetchedData:
            answer = connection.request(ApiKey.FETCH, fields, wait_s=max_wait_ms / 1000)
            check(field(answer, "error_code", 0), subject)
            return _fetched(answer.responses[0].partitions[0], subject)

        return self._cluster.on_leader(topic, partition, action)

    def _offset(self, topic: str, partition: int, timestamp_ms: int) -> int:
        wanted = {"partition_index": partition, "timestamp": timestamp_ms}
        fields: dict[str, Any] = {
            "replica_id": CONSUMER,
            "isolation_level": 0,
            "topics": [{"name": topic, "partitions": [wanted]}],
        }

        def action(connection: Connection) -> int:
            answer = connection.request(ApiKey.LIST_OFFSETS, fields).topics[0].partitions[0]
            check(answer.error_code, f"offsets of {topic}-{partition}")
            return int(answer.offset)

        return self._cluster.on_leader(topic, partition, action)


def starts_with_cut_batch(records: bytes) -> bool:
    """Whether there is a first batch and not all of it."""
    if len(records) < LOG_OVERHEAD_BYTES:
        return bool(records)
    return len(records) < LOG_OVERHEAD_BYTES + int.from_bytes(records[8:LOG_OVERHEAD_BYTES], "big")


def _fetched(partition: Any, subject: str) -> FetchedData:
    check(partition.error_code, subject)
    return FetchedData(
        partition.records or b"",
        int(partition.high_watermark),
        int(partition.last_stable_offset),
        int(field(partition, "log_start_offset", NO_OFFSET)),
    )
