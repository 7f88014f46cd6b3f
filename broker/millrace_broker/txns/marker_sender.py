"""Sends markers to the leaders of their partitions: this broker's own are written, the others go by WriteTxnMarkers.

    shard ──► MarkerSender ──► MarkerWriter                                 partitions that this broker leads
                        └────► RequestBatcher ──► WriteTxnMarkers v1        one request in flight for each other leader

The leader is looked up for each attempt, so that a marker follows a partition that moves. A marker that is sent twice
does no harm. It carries the coordinator's epoch, by which a partition refuses those of a former coordinator.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from millrace.error_codes import known_error_code
from millrace.errors import ErrorCode, MillraceError
from millrace.wire.messages import WRITE_TXN_MARKERS
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.replication.broker_link import BrokerLink
from millrace_broker.replication.replicated import Then
from millrace_broker.replication.request_batcher import RequestBatcher, in_rounds
from millrace_broker.storage import TopicPartition, by_topic
from millrace_broker.txns.markers import Marker, MarkerWriter

if TYPE_CHECKING:
    from millrace.wire.messages.write_txn_markers import (
        WritableTxnMarkerFields,
        WriteTxnMarkersRequestFields,
        WriteTxnMarkersResponse,
    )

VERSION = 1


class MarkerToSend(NamedTuple):
    """A marker and the partition that is to have it."""

    topic_partition: TopicPartition
    marker: Marker


MarkerRequests = RequestBatcher[MarkerToSend, ErrorCode]


class MarkerSender:
    """Has markers written by the leaders of their partitions; `local` writes those of the partitions led here."""

    def __init__(
        self, local: MarkerWriter, metadata: MetadataCache, requests: MarkerRequests, *, broker_id: int
    ) -> None:
        self.local = local
        self._metadata = metadata
        self._requests = requests
        self._broker_id = broker_id

    def send(self, topic_partition: TopicPartition, marker: Marker, then: Then) -> None:
        """Has the marker written; `then` gets NONE once the in-sync replicas have it, or the error of this attempt."""
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
    """Has one broker write the markers, and returns the error of each, or NONE.

    Raises what `BrokerLink.request` raises.

    A response names producers by their ids alone, so a request has one marker of each.
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
