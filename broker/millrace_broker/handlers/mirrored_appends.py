"""AppendMirrored, version 0: the batches of another cluster, for mirrored partitions (`replication.mirrored_log`).

It is an API of Millrace's own, for mirrors alone: they need the right of a broker, CLUSTER_ACTION on the cluster. It is
not among those that ApiVersions tells.

Each partition is answered by itself, with where its log starts and ends, and the high watermark. An append is answered
once the leader has the batches, as what is lost with the leader comes again; the end of the mirroring only when the
in-sync replicas have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from millrace.errors import AuthorizationError, ErrorCode, MillraceError, UnknownTopicError
from millrace.records.batch import NO_OFFSET
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import APPEND_MIRRORED
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.partitions import led_partition
from millrace_broker.handlers.responses import respond
from millrace_broker.replication.delayed_requests import Appended, when_all_have
from millrace_broker.replication.mirrored_log import MirroredLog
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.append_mirrored import (
        AppendedPartitionFields,
        AppendedTopicFields,
        AppendMirroredRequest,
        AppendMirroredResponseFields,
        MirroredPartition,
    )

GUARD = Guard(ApiKey.APPEND_MIRRORED, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
Failures = Mapping[TopicPartition, MillraceError | ErrorCode]
Sent = tuple[TopicPartition, "MirroredPartition", bytes]


def append_mirrored(services: Services, request: Request) -> Reply:
    """Handles AppendMirrored: appends each partition's batches where its log ends as the mirror expects."""
    message = APPEND_MIRRORED.decode_request(request.version, request.body)
    if not GUARD.permits(services, request.session):
        denied = GUARD.denied()
        return _respond(services, request.version, message, {sent[0]: denied for sent in _sent(message)})
    return later(_append_all(services, request.version, message, _sent(message)))


def _sent(message: AppendMirroredRequest) -> list[Sent]:
    """Returns each partition of a request with a copy of its records, which outlives the request's bytes."""
    return [
        (TopicPartition(topic.name, one.partition_index), one, bytes(one.records or b""))
        for topic in each(message.topics)
        for one in each(topic.partitions)
    ]


async def _append_all(services: Services, version: int, message: AppendMirroredRequest, sent: Sequence[Sent]) -> Parts:
    failed: dict[TopicPartition, MillraceError | ErrorCode] = {}
    ended: dict[TopicPartition, Appended] = {}
    for key, one, records in each(sent):
        log = MirroredLog(services.replicas, partial(led_partition, services, key))
        try:
            if records or not one.ends_mirroring:
                await log.append(records, log_start_offset=one.log_start_offset, log_end_offset=one.log_end_offset)
            if one.ends_mirroring:
                ended[key] = await log.end(NO_OFFSET if records else one.log_end_offset, services.clock.now_ms())
        except MillraceError as error:
            failed[key] = error
    if not ended:
        return _respond(services, version, message, failed)
    reply = when_all_have(
        services.replicas,
        ended,
        message.timeout_ms,
        lambda late: _respond(services, version, message, {**failed, **late}),
    )
    return reply if isinstance(reply, list) else await reply


def _respond(services: Services, version: int, message: AppendMirroredRequest, failed: Failures) -> Parts:
    topics: list[AppendedTopicFields] = [
        {
            "name": topic.name,
            "partitions": [
                _appended(services, TopicPartition(topic.name, one.partition_index), failed)
                for one in each(topic.partitions)
            ],
        }
        for topic in each(message.topics)
    ]
    fields: AppendMirroredResponseFields = {"throttle_time_ms": 0, "topics": topics}
    return respond(services, APPEND_MIRRORED, version, fields)


def _appended(services: Services, key: TopicPartition, failed: Failures) -> AppendedPartitionFields:
    error = failed.get(key)
    partition = services.replicas.partitions.get(key)
    if partition is None and error is None:
        error = UnknownTopicError(f"{key} is not led here any more")
    is_told = partition is not None and not isinstance(error, AuthorizationError)
    log = partition.log if is_told and partition is not None else None
    return {
        "partition_index": key.partition,
        "error_code": error.code if isinstance(error, MillraceError) else error or ErrorCode.NONE,
        "error_message": str(error) if isinstance(error, MillraceError) else None,
        "log_start_offset": NO_OFFSET if log is None else log.log_start_offset,
        "log_end_offset": NO_OFFSET if log is None else log.log_end_offset,
        "high_watermark": NO_OFFSET if log is None or partition is None else partition.high_watermark,
    }


API = Api(
    ApiKey.APPEND_MIRRORED,
    VersionRange(0, 0),
    append_mirrored,
    refuses="topics without `mirror.source` (POLICY_VIOLATION); a log that "
    "ends elsewhere than expected (OFFSET_OUT_OF_RANGE)",
    guards=(GUARD,),
    is_told=False,
)
