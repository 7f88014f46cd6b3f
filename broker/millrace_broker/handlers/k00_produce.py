"""Produce, versions 0 to 13 (spec A5, C3).

    v0-v2  message sets of format v0 and v1, which become batches; v2 adds the log append time to the answer
    v3-v8  one batch for each partition; v5 adds log start offset, v7 takes zstd, v8 adds record errors and a message
    v9     flexible
    v10    the answer tells who leads (KIP-951)
    v13    topics by id (KIP-516)

acks=0 has no answer: an error closes the connection, which is how its producer learns of it. acks=1 and
acks=all are answered once the high watermark covers the records, which with one replica is at once; acks=all is
refused where min.insync.replicas is above one.
A batch that an idempotent producer repeats is answered as it was the first time. Transactional produce is refused, and
so are transactional batches that come without a transactional id: nothing would ever end their transaction.
A batch that the log refuses is answered with the log start offset, one that does not get so far with -1.
"""

from __future__ import annotations

from uuid import UUID

from millrace.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidRequiredAcksError,
    InvalidTopicError,
    MillraceError,
    NotLeaderError,
    RecordTooLargeError,
    RejectedRecordsError,
    StorageError,
    TransactionalIdError,
    UnknownTopicIdError,
    WireError,
)
from millrace.records.batch import Buffer, is_transactional
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.leader import NO_TOPIC_ID
from millrace.wire.produce import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    PartitionProduced,
    ProduceRequest,
    TopicProduced,
    TopicToProduce,
    decode_produce_request,
    encode_produce_response,
)
from millrace_broker.cluster.topics import INTERNAL_TOPICS
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.handlers.partitions import endpoints, leader_hint, led_partition
from millrace_broker.replication.produced import batches_of, check_base_offset
from millrace_broker.storage import TopicPartition

FIRST_VERSION_WITH_LEADERS = 10
ALL_IN_SYNC = -1
NO_LOG_START = (CorruptRecordError, RecordTooLargeError, StorageError)


def handle(services: Services, request: Request) -> Reply:
    """Append each partition's batches; a failure of one leaves the others alone."""
    message = decode_produce_request(request.version, request.body)
    topics = [_produce_topic(services, request.version, message, topic) for topic in message.topic_data]
    if message.acks == 0:
        _raise_first_error(topics)
        return None
    if request.version < FIRST_VERSION_WITH_LEADERS:
        return encode_produce_response(request.version, topics)
    hints = [one.current_leader for topic in topics for one in topic.partitions if one.current_leader is not None]
    return encode_produce_response(request.version, topics, endpoints(services, hints) if hints else ())


def _produce_topic(services: Services, version: int, message: ProduceRequest, topic: TopicToProduce) -> TopicProduced:
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        name, topic_id = topic.name, NO_TOPIC_ID
    else:
        topic_id = topic.topic_id or NO_TOPIC_ID
        name = services.metadata.topic_name(topic_id) or ""
    if message.transactional_id is not None:
        return _refused(topic, name, topic_id, ErrorCode.INVALID_REQUEST, "transactions are not served")
    if not name and version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return _refused(topic, name, topic_id, UnknownTopicIdError.code, f"no topic has id {topic_id}")
    produced = [
        _produce_partition(services, version, message.acks, TopicPartition(name, one.index), one.records or b"")
        for one in topic.partition_data
    ]
    return TopicProduced(name, topic_id, produced)


def _refused(topic: TopicToProduce, name: str, topic_id: UUID, code: ErrorCode, message: str) -> TopicProduced:
    failed = [PartitionProduced(one.index, code, -1, -1, -1, message) for one in topic.partition_data]
    return TopicProduced(name, topic_id, failed)


def _produce_partition(
    services: Services, version: int, acks: int, key: TopicPartition, records: Buffer
) -> PartitionProduced:
    log_start_offset = -1
    try:
        if key.topic in INTERNAL_TOPICS:
            raise InvalidTopicError(f"{key.topic} is written by its coordinator alone")
        partition = led_partition(services, key)
        batches = batches_of(version, records, partition.log.config)
        if acks not in (ALL_IN_SYNC, 0, 1):
            raise InvalidRequiredAcksError(f"acks={acks}: expected -1, 0 or 1")
        if not batches:
            return PartitionProduced(key.partition, 0, -1, -1, partition.log.log_start_offset)
        if is_transactional(batches):
            raise TransactionalIdError("a batch of a transaction without a transactional id")
        log_start_offset = partition.log.log_start_offset
        check_base_offset(version, batches)
        if acks == ALL_IN_SYNC:
            partition.check_in_sync_replicas()
        _, info = services.replicas.append(key, batches)
    except MillraceError as error:
        return _failed(services, version, key, error, log_start_offset)
    return PartitionProduced(key.partition, 0, info.first_offset, info.log_append_time_ms, log_start_offset)


def _failed(
    services: Services, version: int, key: TopicPartition, error: MillraceError, log_start_offset: int
) -> PartitionProduced:
    record_errors = error.record_errors if isinstance(error, RejectedRecordsError) else ()
    tells_leader = version >= FIRST_VERSION_WITH_LEADERS and isinstance(error, NotLeaderError)
    hint = leader_hint(services, key) if tells_leader else None
    start = -1 if isinstance(error, NO_LOG_START) else log_start_offset
    return PartitionProduced(key.partition, error.code, -1, -1, start, str(error), record_errors, hint)


def _raise_first_error(topics: list[TopicProduced]) -> None:
    for topic in topics:
        for partition in topic.partitions:
            if partition.error_code:
                raise WireError(
                    f"produce to {topic.name}-{partition.partition_index} with acks=0 failed: {partition.error_message}"
                )


API = Api(
    ApiKey.PRODUCE,
    VersionRange(0, 13),
    handle,
    refuses="a transactional id (INVALID_REQUEST), batches of a transaction (TRANSACTIONAL_ID_AUTHORIZATION_FAILED)",
)
