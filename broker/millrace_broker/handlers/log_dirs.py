"""AlterReplicaLogDirs and DescribeLogDirs: the data folders that have the logs (KIP-113).

    AlterReplicaLogDirs  v0 to v2   v2  flexible
    DescribeLogDirs      v0 to v4   v2  flexible    v3  an error code for the whole response
                                    v4  bytes of the file system (KIP-827)

The response to AlterReplicaLogDirs says that a move has begun, or was dropped, and from then on a start knows; where
the disk refuses that, nothing is moved and the error is KAFKA_STORAGE_ERROR. DescribeLogDirs shows how far a move is.
The rules are Kafka's:

    the partition is in the folder            a move that is under way is dropped
    it is being moved to the folder           the move goes on
    it is being moved to another folder       that move is dropped, and one to this folder begins
    another broker has it                     REPLICA_NOT_AVAILABLE, and this broker would create it in the folder
    it does not exist (yet)                   UNKNOWN_TOPIC_OR_PARTITION, and it will be created in the folder
    a folder is offline                       KAFKA_STORAGE_ERROR
    the broker does not have the folder       LOG_DIR_NOT_FOUND

A partition that is being moved is in two folders; in the one it moves to, `is_future_key` is true and `offset_lag` says
how many offsets are left to copy. A folder that is offline has an error and no partitions. A worker thread asks the
file systems.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from millrace.errors import ErrorCode, MillraceError
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Response, Services
from millrace_broker.handlers.partitions import is_known
from millrace_broker.handlers.responses import count_errors, error_codes, respond
from millrace_broker.storage import LogCopy, TopicPartition
from millrace_broker.storage.filenames import MAX_NAME_BYTES, future_dir_name

if TYPE_CHECKING:
    from millrace.wire.messages.alter_replica_log_dirs import (
        AlterReplicaLogDirsResponseFields,
        AlterReplicaLogDirTopicResultFields,
    )
    from millrace.wire.messages.describe_log_dirs import (
        DescribeLogDirsPartitionFields,
        DescribeLogDirsResponseFields,
        DescribeLogDirsResultFields,
    )

logger = logging.getLogger(__name__)
ALTER_GUARD = Guard(ApiKey.ALTER_REPLICA_LOG_DIRS, AclOperation.ALTER, ResourceType.CLUSTER)
UNKNOWN_BYTES = -1
UNKNOWN_LAG = -1  # of a partition whose log is offline, or which this broker is about to delete
Topics: TypeAlias = "defaultdict[str, list[DescribeLogDirsPartitionFields]]"
Codes: TypeAlias = defaultdict[str, dict[int, ErrorCode]]  # by topic and partition
DESCRIBE_GUARD = Guard(ApiKey.DESCRIBE_LOG_DIRS, AclOperation.DESCRIBE, ResourceType.CLUSTER)


def alter(services: Services, request: Request) -> Reply:
    """Handles AlterReplicaLogDirs: begins to move each log to another data directory, or cancels its move."""
    message = ALTER_REPLICA_LOG_DIRS.decode_request(request.version, request.body)
    permitted = ALTER_GUARD.permits(services, request.session)
    directories = services.replicas.logs.by_data_dir()
    codes: Codes = defaultdict(dict)
    copies: list[LogCopy] = []
    for wanted in each(message.dirs):
        for topic in each(wanted.topics):
            for index in each(topic.partitions):
                key = TopicPartition(topic.name, index)
                code = _place(services, directories, wanted.path, key, copies) if permitted else ALTER_GUARD.error
                codes[topic.name][index] = code
    if services.log_dirs.is_settled:
        return _altered(services, request.version, codes)
    return later(_settled(services, request.version, codes, copies))


async def _settled(services: Services, version: int, codes: Codes, copies: Iterable[LogCopy]) -> Response:
    await services.log_dirs.settle()
    for copy in copies:
        if copy.refusal is not None:
            topic, partition = copy.topic_partition
            codes[topic][partition] = copy.refusal.code
    return _altered(services, version, codes)


def _altered(services: Services, version: int, codes: Codes) -> Response:
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
    """Begins the move of a log to the data directory `path`, or cancels it if the log is there; returns the error code.

    Adds to `copies` the moves whose beginning or end must still be written to disk.
    """
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


def describe(services: Services, request: Request) -> Reply:
    """Responds to DescribeLogDirs with every data directory and its partitions: those in the request, or all."""
    message = DESCRIBE_LOG_DIRS.decode_request(request.version, request.body)
    if not DESCRIBE_GUARD.permits(services, request.session):
        return later(_respond(services, request.version, [], DESCRIBE_GUARD.error))
    asked = None
    if message.topics is not None:
        asked = {
            TopicPartition(topic.topic, index) for topic in each(message.topics) for index in each(topic.partitions)
        }
    partitions = _partitions(services, asked)
    results = [
        _described(path, None if logs is None else partitions[path])
        for path, logs in services.replicas.logs.by_data_dir().items()
    ]
    return later(_respond(services, request.version, results))


async def _respond(
    services: Services, version: int, results: list[DescribeLogDirsResultFields], error: ErrorCode = ErrorCode.NONE
) -> Parts:
    fields: DescribeLogDirsResponseFields = {"throttle_time": 0, "error_code": error, "results": results}
    encoded = await asyncio.to_thread(_measured, version, fields, results)
    count_errors(services, ApiKey.DESCRIBE_LOG_DIRS, error_codes(fields))
    return [encoded]


def _measured(
    version: int, fields: DescribeLogDirsResponseFields, results: Sequence[DescribeLogDirsResultFields]
) -> bytes:
    _measure(results)
    return DESCRIBE_LOG_DIRS.encode_response(version, fields)


def _partitions(services: Services, asked: set[TopicPartition] | None) -> defaultdict[str, Topics]:
    """Returns the partitions in `asked` (None: all), also those under a move, by data directory and topic."""
    found: defaultdict[str, Topics] = defaultdict(lambda: defaultdict(list))

    def add(path: str, key: TopicPartition, size_bytes: int, lag: int | None = None) -> None:
        if asked is None or key in asked:
            found[path][key.topic].append(
                {
                    "partition_index": key.partition,
                    "partition_size": size_bytes,
                    "offset_lag": lag or 0,
                    "is_future_key": lag is not None,
                }
            )

    directories = services.replicas.logs.by_data_dir()
    for path, logs in directories.items():
        found_logs = logs or {}
        for key in each(sorted(found_logs if asked is None else asked.intersection(found_logs))):
            add(path, key, found_logs[key].size_bytes)
    for key, copy in services.log_dirs.copies().items():
        replica = services.replicas.replica(key)
        lag = UNKNOWN_LAG if replica is None else max(replica.log.log_end_offset - copy.end_offset, 0)
        add(copy.parent, key, copy.size_bytes, lag)
    return found


def _described(path: str, topics: Topics | None) -> DescribeLogDirsResultFields:
    return {
        "error_code": ErrorCode.KAFKA_STORAGE_ERROR if topics is None else ErrorCode.NONE,
        "log_dir": path,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in (topics or {}).items()],
        "total_bytes": UNKNOWN_BYTES,
        "usable_bytes": UNKNOWN_BYTES,
    }


def _measure(results: Iterable[DescribeLogDirsResultFields]) -> None:
    for result in results:
        if result["error_code"] == ErrorCode.NONE:
            try:
                usage = shutil.disk_usage(result["log_dir"])
            except OSError:
                result |= {"error_code": ErrorCode.KAFKA_STORAGE_ERROR, "topics": ()}
            else:
                result |= {"total_bytes": usage.total, "usable_bytes": usage.free}


APIS = (
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, VersionRange(0, 2), alter, guards=(ALTER_GUARD,)),
    Api(ApiKey.DESCRIBE_LOG_DIRS, VersionRange(0, 4), describe, guards=(DESCRIBE_GUARD,)),
)
