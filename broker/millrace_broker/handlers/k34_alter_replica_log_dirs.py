"""AlterReplicaLogDirs, versions 0 to 2 (KIP-113); v2 flexible.

A partition is not moved between data folders while it is served: where it lies already it may be told to lie, another
folder is refused, a folder that is not this broker's is not found.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Container, Mapping
from typing import Any

from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.legacy_admin import decode_request
from millrace_broker.handlers.answers import answer
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.storage import TopicPartition

logger = logging.getLogger(__name__)


def handle(services: Services, request: Request) -> Reply:
    """Answer for each partition."""
    message = decode_request(ApiKey.ALTER_REPLICA_LOG_DIRS, request.version, request.body)
    directories = services.replicas.logs_by_data_dir()
    codes: defaultdict[str, dict[int, ErrorCode]] = defaultdict(dict)
    for wanted in message.dirs:
        for topic in wanted.topics:
            for index in topic.partitions:
                codes[topic.name][index] = _place(services, directories, wanted.path, TopicPartition(topic.name, index))
    results = [
        {
            "topic_name": name,
            "partitions": [{"partition_index": index, "error_code": code} for index, code in partitions.items()],
        }
        for name, partitions in codes.items()
    ]
    fields: dict[str, Any] = {"throttle_time": 0, "results": results}
    return answer(services, ApiKey.ALTER_REPLICA_LOG_DIRS, request.version, fields)


def _place(
    services: Services,
    directories: Mapping[str, Container[TopicPartition] | None],
    path: str,
    topic_partition: TopicPartition,
) -> ErrorCode:
    wanted = os.path.normpath(path)
    if wanted not in directories:
        return ErrorCode.LOG_DIR_NOT_FOUND
    logs = directories[wanted]
    if logs is None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if topic_partition not in services.replicas.partitions:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    if topic_partition in logs:
        return ErrorCode.NONE
    logger.warning("%s stays where it is: moving to %s while it is served is not possible", topic_partition, wanted)
    return ErrorCode.INVALID_REQUEST


API = Api(ApiKey.ALTER_REPLICA_LOG_DIRS, VersionRange(0, 2), handle)
