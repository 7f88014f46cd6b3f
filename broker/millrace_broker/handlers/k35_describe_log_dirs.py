"""DescribeLogDirs, versions 0 to 4 (KIP-113).

v2  flexible      v3  an error code for the whole response      v4  bytes of the file system (KIP-827)

A partition that is being moved is in two folders; in the one it moves to, `is_future_key` is true and `offset_lag` says
how many offsets are left to copy. A folder that is offline has an error and no partitions. A worker thread asks the
file systems.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from millrace.errors import ErrorCode
from millrace.security.acls import AclOperation, ResourceType
from millrace.turns import each, later
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.messages import DESCRIBE_LOG_DIRS
from millrace_broker.handlers.api import Api, Guard, Reply, Request, Services
from millrace_broker.handlers.responses import count_errors, error_codes
from millrace_broker.storage import TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.describe_log_dirs import (
        DescribeLogDirsPartitionFields,
        DescribeLogDirsResponseFields,
        DescribeLogDirsResultFields,
    )

UNKNOWN_BYTES = -1
UNKNOWN_LAG = -1  # of a partition whose log is offline, or which this broker is about to delete

Topics: TypeAlias = "defaultdict[str, list[DescribeLogDirsPartitionFields]]"

GUARD = Guard(ApiKey.DESCRIBE_LOG_DIRS, AclOperation.DESCRIBE, ResourceType.CLUSTER)


def handle(services: Services, request: Request) -> Reply:
    """Describes every data folder, with the partitions that are asked for, or all."""
    message = DESCRIBE_LOG_DIRS.decode_request(request.version, request.body)
    if not GUARD.permits(services, request.session):
        return later(_respond(services, request.version, [], GUARD.error))
    asked = None
    if message.topics is not None:
        asked = {
            TopicPartition(topic.topic, index) for topic in each(message.topics) for index in each(topic.partitions)
        }
    partitions = _partitions(services, asked)
    results = [
        _described(path, None if logs is None else partitions[path])
        for path, logs in services.replicas.logs_by_data_dir().items()
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
    """Returns the partitions that are asked for, by folder and topic."""
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

    directories = services.replicas.logs_by_data_dir()
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


API = Api(ApiKey.DESCRIBE_LOG_DIRS, VersionRange(0, 4), handle, guards=(GUARD,))
