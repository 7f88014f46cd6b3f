"""Writing and sending markers, which end a producer's transaction in one partition (docs/formats/producers.md).

    shard ──► MarkerSender ──► MarkerWriter                                 partitions that this broker leads
                        └────► RequestBatcher ──► WriteTxnMarkers v1        one request in flight for each other leader

They come from this broker's coordinator, and over the wire from other brokers and administrators
(`kafka-transactions abort`). A commit marker in a partition of `__consumer_offsets` makes the offsets count.

The leader is looked up for each attempt, so that a marker follows a partition that moves. A marker that is sent twice
does no harm. It carries the coordinator's epoch, by which a partition refuses those of a former coordinator.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from millrace.clock import Clock
from millrace.error_codes import known_error_code
from millrace.errors import ErrorCode, MillraceError
from millrace.records.control import ControlType, EndTransactionMarker, encode_marker
from millrace.wire.messages import WRITE_TXN_MARKERS
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.replication.broker_link import BrokerLink, RequestBatcher, in_rounds
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.shards import Then, when_replicated
from millrace_broker.storage import AppendOrigin, TopicPartition, by_topic
from millrace_broker.txns.state import Producer

if TYPE_CHECKING:
    from millrace.wire.messages.write_txn_markers import (
        WritableTxnMarkerFields,
        WriteTxnMarkersRequestFields,
        WriteTxnMarkersResponse,
    )


REPLICATION_TIMEOUT_MS = 30_000  # Kafka's request.timeout.ms

WAITING_ERRORS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.REQUEST_TIMED_OUT,
}


class Marker(NamedTuple):
    """The content of a transaction's markers, the same for each of its partitions."""

    producer: Producer
    is_commit: bool
    coordinator_epoch: int

    @property
    def control_type(self) -> ControlType:
        """COMMIT or ABORT."""
        return ControlType.COMMIT if self.is_commit else ControlType.ABORT


class TransactionalOffsetsTopic(Protocol):
    """The group coordinator, as the writer of markers in `__consumer_offsets` uses it."""

    def is_loading(self, topic_partition: TopicPartition) -> bool:
        """Returns whether a partition of committed offsets is being loaded, and so can't take a marker yet."""
        ...

    def transaction_ended(self, topic_partition: TopicPartition, producer_id: int, *, is_commit: bool) -> None:
        """Makes offsets that a transaction has committed valid, or drops them, once a partition has its marker."""
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
        """Appends a marker; calls `then` with NONE once the in-sync replicas have it, or with the error."""
        if self._offsets.is_loading(topic_partition):
            then(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        try:
            partition = self._replicas.partition(topic_partition)
            if partition.mirror:
                then(ErrorCode.NONE)  # as if written: the marker of the source comes along with its batches
                return
            partition.check_in_sync_replicas()
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


VERSION = 1


class MarkerToSend(NamedTuple):
    """A transaction marker and the partition that it is to be written to."""

    topic_partition: TopicPartition
    marker: Marker


MarkerRequests = RequestBatcher[MarkerToSend, ErrorCode]


class MarkerSender:
    """Has each partition's leader write a marker; `local` writes those of the partitions that this broker leads."""

    def __init__(
        self, local: MarkerWriter, metadata: MetadataCache, requests: MarkerRequests, *, broker_id: int
    ) -> None:
        self.local = local
        self._metadata = metadata
        self._requests = requests
        self._broker_id = broker_id

    def send(self, topic_partition: TopicPartition, marker: Marker, then: Then) -> None:
        """Has the leader write a marker; calls `then` with NONE once the in-sync replicas have it, or the error."""
        leader = self._metadata.leader_of(topic_partition)
        if leader is None or leader == self._broker_id or self.local.leads(topic_partition):
            self.local.write(topic_partition, marker, then)
            return

        def answered(outcome: asyncio.Future[ErrorCode]) -> None:
            if outcome.cancelled():
                return
            error = outcome.exception()
            if error is not None and not isinstance(error, MillraceError):
                raise error
            then(outcome.result() if error is None else error.code)

        self._requests.ask(leader, MarkerToSend(topic_partition, marker)).add_done_callback(answered)


async def write_markers(link: BrokerLink, markers: Sequence[MarkerToSend]) -> list[ErrorCode]:
    """Sends markers to one broker, which writes them; returns for each its error, or NONE.

    Raises BrokerUnreachableError or AnswerLostError. A response names producers by their ids alone, so two markers of
    one producer go into separate requests.
    """
    errors: dict[MarkerToSend, ErrorCode] = {}
    markers_of: defaultdict[Marker, list[TopicPartition]] = defaultdict(list)
    for topic_partition, marker in markers:
        markers_of[marker].append(topic_partition)
    for one_round in in_rounds(markers_of, lambda marker: marker.producer.producer_id):
        of_producer = {marker.producer.producer_id: marker for marker in one_round}
        fields: WriteTxnMarkersRequestFields = {
            "markers": [_fields(marker, markers_of[marker]) for marker in one_round]
        }
        response = await link.request(WRITE_TXN_MARKERS, VERSION, fields)
        for producer_id, topic_partition, error in _errors(response):
            if producer_id in of_producer:
                errors[MarkerToSend(topic_partition, of_producer[producer_id])] = error
    return [errors.get(one, ErrorCode.UNKNOWN_SERVER_ERROR) for one in markers]


def _fields(marker: Marker, topic_partitions: Sequence[TopicPartition]) -> WritableTxnMarkerFields:
    return {
        "producer_id": marker.producer.producer_id,
        "producer_epoch": marker.producer.epoch,
        "transaction_result": marker.is_commit,
        "topics": [
            {"name": name, "partition_indexes": indexes} for name, indexes in by_topic(topic_partitions).items()
        ],
        "coordinator_epoch": marker.coordinator_epoch,
    }


def _errors(response: WriteTxnMarkersResponse) -> Iterator[tuple[int, TopicPartition, ErrorCode]]:
    for one in response.markers:
        for topic in one.topics:
            for partition in topic.partitions:
                key = TopicPartition(topic.name, partition.partition_index)
                yield one.producer_id, key, known_error_code(partition.error_code)
