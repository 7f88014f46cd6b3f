"""AlterReplicaLogDirs, versions 0 to 2 (KIP-113); v2 flexible.

The response says that a move has begun, or was dropped, and from then on a start knows; where the disk refuses that,
nothing is moved and the error is KAFKA_STORAGE_ERROR. DescribeLogDirs shows how far a move is. The rules are Kafka's:

    the partition is in the folder            a move that is under way is dropped
    it is being moved to the folder           the move goes on
    it is being moved to another folder       that move is dropped, and one to this folder begins
    another broker has it                     REPLICA_NOT_AVAILABLE, and this broker would create it in the folder
    it does not exist (yet)                   UNKNOWN_TOPIC_OR_PARTITION, and it will be created in the folder
    a folder is offline                       KAFKA_STORAGE_ERROR
    the broker does not have the folder       LOG_DIR_NOT_FOUND
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from millrace.errors import ErrorCode, MillraceError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.messages import ALTER_REPLICA_LOG_DIRS
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Response, Services
from millrace_broker.handlers.partitions import is_known
from millrace_broker.handlers.responses import respond
from millrace_broker.storage import LogCopy, TopicPartition
from millrace_broker.storage.filenames import MAX_NAME_BYTES, future_dir_name

if TYPE_CHECKING:
    from millrace.wire.messages.alter_replica_log_dirs import (
        AlterReplicaLogDirsResponseFields,
        AlterReplicaLogDirTopicResultFields,
    )

logger = logging.getLogger(__name__)

GUARD = Guard(ApiKey.ALTER_REPLICA_LOG_DIRS, AclOperation.ALTER, ResourceType.CLUSTER)

_Codes = defaultdict[str, dict[int, ErrorCode]]  # by topic and partition


def handle(services: Services, request: Request) -> Reply:
    """Begins or drops the move of each partition."""
    message = ALTER_REPLICA_LOG_DIRS.decode_request(request.version, request.body)
    permitted = GUARD.permits(services, request.session)
    directories = services.replicas.logs_by_data_dir()
    codes: _Codes = defaultdict(dict)
    copies: list[LogCopy] = []
    for wanted in each(message.dirs):
        for topic in each(wanted.topics):
            for index in each(topic.partitions):
                key = TopicPartition(topic.name, index)
                code = _place(services, directories, wanted.path, key, copies) if permitted else GUARD.error
                codes[topic.name][index] = code
    if services.log_dirs.is_settled:
        return _respond(services, request.version, codes)
    return later(_settled(services, request.version, codes, copies))


async def _settled(services: Services, version: int, codes: _Codes, copies: Iterable[LogCopy]) -> Response:
    await services.log_dirs.settle()
    for copy in copies:
        if copy.refusal is not None:
            topic, partition = copy.topic_partition
            codes[topic][partition] = copy.refusal.code
    return _respond(services, version, codes)


def _respond(services: Services, version: int, codes: _Codes) -> Response:
    results: list[AlterReplicaLogDirTopicResultFields] = [
        {
            "topic_name": name,
            "partitions": [{"partition_index": index, "error_code": code} for index, code in each(partitions.items())],
        }
        for name, partitions in each(codes.items())
    ]
    fields: AlterReplicaLogDirsResponseFields = {"throttle_time": 0, "results": results}
    return respond(services, ALTER_REPLICA_LOG_DIRS, version, fields)


def _place(
    services: Services,
    directories: Mapping[str, Container[TopicPartition] | None],
    path: str,
    topic_partition: TopicPartition,
    copies: list[LogCopy],
) -> ErrorCode:
    """Begins or drops one move, and adds the copies of which the disk has to learn to `copies`."""
    wanted = os.path.normpath(path)
    if len(future_dir_name(topic_partition, UUID(int=0))) > MAX_NAME_BYTES:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if wanted not in directories:
        return ErrorCode.LOG_DIR_NOT_FOUND
    logs = directories[wanted]
    if logs is None or topic_partition in services.replicas.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    try:
        replicas = services.replicas
        if topic_partition not in replicas.partitions and topic_partition not in replicas.followed:
            services.log_dirs.prefer(topic_partition, wanted)
            known = is_known(services, topic_partition)
            return ErrorCode.REPLICA_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic_partition in logs:
            copies += services.log_dirs.drop(topic_partition)
        else:
            copies += services.log_dirs.move(topic_partition, wanted)
    except MillraceError as error:
        logger.warning("%s is not moved to %s: %s", topic_partition, wanted, error)
        return error.code
    return ErrorCode.NONE


API = Api(ApiKey.ALTER_REPLICA_LOG_DIRS, VersionRange(0, 2), handle, guards=(GUARD,))
