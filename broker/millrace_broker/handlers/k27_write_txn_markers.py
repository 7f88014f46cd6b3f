"""WriteTxnMarkers, versions 0 and 1: ends transactions in partitions that this broker leads (KIP-98).

It comes from the transaction's coordinator on another broker, or from an administrator who ends a hanging transaction
(KIP-664). Markers of an older epoch of the producer or of its coordinator are refused.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from millrace.errors import ErrorCode
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import WRITE_TXN_MARKERS
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import TopicPartition
from millrace_broker.txns.markers import Marker
from millrace_broker.txns.metadata import Producer

if TYPE_CHECKING:
    from millrace.wire.messages.write_txn_markers import (
        WritableTxnMarkerPartitionResultFields,
        WritableTxnMarkerResultFields,
        WritableTxnMarkerTopicResultFields,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponseFields,
    )

GUARD = Guard(ApiKey.WRITE_TXN_MARKERS, AclOperation.ALTER, ResourceType.CLUSTER, is_silent=True)
BROKER_GUARD = Guard(ApiKey.WRITE_TXN_MARKERS, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Writes all markers, and answers once the in-sync replicas have each of them."""
    message = WRITE_TXN_MARKERS.decode_request(request.version, request.body)
    permitted = GUARD.permits(services, request.session) or BROKER_GUARD.permits(services, request.session)
    return later(_respond(services, request.version, message, permitted=permitted))


async def _respond(services: Services, version: int, message: WriteTxnMarkersRequest, *, permitted: bool) -> Parts:
    written: dict[int, dict[TopicPartition, asyncio.Future[ErrorCode]]] = {}
    for one in each(message.markers):
        marker = Marker(Producer(one.producer_id, one.producer_epoch), one.transaction_result, one.coordinator_epoch)
        for topic in each(one.topics):
            for index in each(topic.partition_indexes):
                key = TopicPartition(topic.name, index)
                writing = _written(services, key, marker) if permitted else _denied()
                written.setdefault(one.producer_id, {})[key] = writing
    markers = [
        _result(producer_id, {key: await error for key, error in each(errors.items())})
        for producer_id, errors in each(written.items())
    ]
    fields: WriteTxnMarkersResponseFields = {"markers": markers}
    return respond(services, WRITE_TXN_MARKERS, version, fields)


def _written(services: Services, key: TopicPartition, marker: Marker) -> asyncio.Future[ErrorCode]:
    ticket: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def then(error: ErrorCode) -> None:
        if not ticket.done():
            ticket.set_result(error)

    services.txns.markers.local.write(key, marker, then)
    return ticket


def _denied() -> asyncio.Future[ErrorCode]:
    denied: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    denied.set_result(BROKER_GUARD.error)
    return denied


def _result(producer_id: int, errors: dict[TopicPartition, ErrorCode]) -> WritableTxnMarkerResultFields:
    topics: dict[str, list[WritableTxnMarkerPartitionResultFields]] = {}
    for key, error in each(errors.items()):
        topics.setdefault(key.topic, []).append({"partition_index": key.partition, "error_code": error})
    named: list[WritableTxnMarkerTopicResultFields] = [
        {"name": name, "partitions": partitions} for name, partitions in each(topics.items())
    ]
    return {"producer_id": producer_id, "topics": named}


API = Api(ApiKey.WRITE_TXN_MARKERS, VersionRange(0, 1), handle, guards=(GUARD, BROKER_GUARD))
