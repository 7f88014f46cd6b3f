"""Produce, versions 3 to 13 (spec C3).

    v3-v8  plain; v5 adds log start offset, v8 record errors and a message to the answer
    v9     flexible
    v13    topics by id (KIP-516)

acks=0 has no answer: an error closes the connection, which is how its producer learns of it. acks=1 and
acks=all are answered once the high watermark covers the records, which with one replica is at once.
A batch that an idempotent producer repeats is answered as it was the first time. Transactional produce is refused, and
so are transactional batches that come without a transactional id: nothing would ever end their transaction.
"""

from __future__ import annotations

from typing import Any

from millrace.errors import ErrorCode, MillraceError, UnknownTopicIdError, WireError
from millrace.records.batch import is_transactional
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import ZERO_UUID, Direction, decode
from millrace.wire.produce import PartitionProduced, TopicProduced, encode_produce_response
from millrace_broker.groups.offsets_topic import OFFSETS_TOPIC
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.storage import TopicPartition

FIRST_VERSION_WITH_TOPIC_IDS = 13


def handle(services: Services, request: Request) -> Reply:
    """Append each partition's batches; a failure of one leaves the others alone."""
    message = decode(ApiKey.PRODUCE, request.version, Direction.REQUEST, request.body)
    refusal = _refusal(message)
    topics = [_produce_topic(services, request.version, topic, refusal) for topic in message.topic_data]
    if message.acks == 0:
        _raise_first_error(topics)
        return None
    return encode_produce_response(request.version, topics)


def _refusal(message: Any) -> tuple[ErrorCode, str] | None:
    if message.acks not in (-1, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS, f"acks={message.acks}: expected -1, 0 or 1"
    if message.transactional_id is not None:
        return ErrorCode.INVALID_REQUEST, "transactions are not served"
    return None


def _produce_topic(
    services: Services, version: int, topic: Any, refusal: tuple[ErrorCode, str] | None
) -> TopicProduced:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        topic_id = topic.topic_id or ZERO_UUID
        name = services.metadata.topic_name(topic_id)
        if name is None:
            refusal = UnknownTopicIdError.code, f"no topic has id {topic_id}"
    else:
        name, topic_id = topic.name, ZERO_UUID
    partitions = [
        _produce_partition(services, name or "", partition)
        if refusal is None
        else PartitionProduced(partition.index, refusal[0], -1, -1, -1, refusal[1])
        for partition in topic.partition_data
    ]
    return TopicProduced(name or "", topic_id, partitions)


def _produce_partition(services: Services, topic: str, data: Any) -> PartitionProduced:
    records = data.records or b""
    if topic == OFFSETS_TOPIC:
        message = f"{OFFSETS_TOPIC} is written by the group coordinator alone"
        return PartitionProduced(data.index, ErrorCode.INVALID_TOPIC_EXCEPTION, -1, -1, -1, message)
    if is_transactional(records):
        return PartitionProduced(data.index, ErrorCode.INVALID_TXN_STATE, -1, -1, -1, "transactions are not served")
    try:
        partition, info = services.replicas.append(TopicPartition(topic, data.index), records)
    except MillraceError as error:
        return PartitionProduced(data.index, error.code, -1, -1, -1, str(error))
    return PartitionProduced(data.index, 0, info.first_offset, info.log_append_time_ms, partition.log.log_start_offset)


def _raise_first_error(topics: list[TopicProduced]) -> None:
    for topic in topics:
        for partition in topic.partitions:
            if partition.error_code:
                raise WireError(
                    f"produce to {topic.name}-{partition.partition_index} with acks=0 failed: {partition.error_message}"
                )


API = Api(ApiKey.PRODUCE, VersionRange(3, 13), handle)
