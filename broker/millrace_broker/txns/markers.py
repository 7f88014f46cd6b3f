"""Writing markers, which end a producer's transaction in one partition (docs/formats/producers.md).

They come from this broker's coordinator, and over the wire from other brokers and administrators
(`kafka-transactions abort`). A commit marker in a partition of `__consumer_offsets` makes the offsets count.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple, Protocol

from millrace.clock import Clock
from millrace.errors import ErrorCode, MillraceError
from millrace.records.control import ControlType, EndTransactionMarker, encode_marker
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.replicated import Then, when_replicated
from millrace_broker.storage import AppendOrigin, TopicPartition
from millrace_broker.txns.metadata import Producer

REPLICATION_TIMEOUT_MS = 30_000  # Kafka's request.timeout.ms
WAITING_ERRORS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.REQUEST_TIMED_OUT,
}


class Marker(NamedTuple):
    """A marker, the same for every partition of its transaction."""

    producer: Producer
    is_commit: bool
    coordinator_epoch: int

    @property
    def control_type(self) -> ControlType:
        """How the transaction ended."""
        return ControlType.COMMIT if self.is_commit else ControlType.ABORT


class TransactionalOffsetsTopic(Protocol):
    """The topic of committed offsets."""

    def is_loading(self, topic_partition: TopicPartition) -> bool:
        """Returns whether a partition can't take a marker now."""
        ...

    def transaction_ended(self, topic_partition: TopicPartition, producer_id: int, *, is_commit: bool) -> None:
        """Acts upon a marker that a partition has."""
        ...


class MarkerWriter:
    """Writes markers to the partitions that this broker leads."""

    def __init__(self, replicas: ReplicaManager, offsets: TransactionalOffsetsTopic, clock: Clock) -> None:
        self._replicas = replicas
        self._clock = clock
        self._offsets = offsets
        self.written: Counter[str] = Counter()  # that the in-sync replicas have, by kind

    def leads(self, topic_partition: TopicPartition) -> bool:
        """Returns whether this broker leads the partition."""
        return topic_partition in self._replicas.partitions

    def write(self, topic_partition: TopicPartition, marker: Marker, then: Then) -> None:
        """Appends a marker; `then` gets NONE once the in-sync replicas have it, or the error."""
        if self._offsets.is_loading(topic_partition):
            then(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        try:
            self._replicas.partition(topic_partition).check_in_sync_replicas()
            _, info = self._replicas.append(topic_partition, self._encoded(marker), AppendOrigin.COORDINATOR)
        except MillraceError as error:
            then(error.code)
            return

        def replicated(error: ErrorCode) -> None:
            if not error:
                self.written[marker.control_type.name.lower()] += 1
                self._offsets.transaction_ended(
                    topic_partition, marker.producer.producer_id, is_commit=marker.is_commit
                )
            then(WAITING_ERRORS.get(error, error))

        when_replicated(self._replicas, topic_partition, info.last_offset, REPLICATION_TIMEOUT_MS, replicated)

    def _encoded(self, marker: Marker) -> bytes:
        producer_id, producer_epoch = marker.producer
        return encode_marker(
            EndTransactionMarker(marker.control_type, marker.coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=self._clock.now_ms(),
        )
