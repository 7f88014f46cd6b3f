"""DescribeLogDirs, versions 0 to 4 (KIP-113).

v2  flexible      v3  an error code of its own      v4  bytes of the file system (KIP-827)

A partition that is being moved is in two folders; where it is going, `is_future_key` is true and `offset_lag` says how
many offsets are left to copy. A folder that is offline has an error and no partitions. File systems are asked in a
worker thread.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import defaultdict
from typing import Any

from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.encoder import Parts
from millrace.wire.legacy_admin import decode_request, encode_response
from millrace_broker.handlers.answers import count_errors, error_codes
from millrace_broker.handlers.api import Api, Reply, Request, Services
from millrace_broker.storage import TopicPartition

Topics = defaultdict[str, list[dict[str, Any]]]

UNKNOWN_BYTES = -1


def handle(services: Services, request: Request) -> Reply:
    """Describe every data folder, with the partitions that are asked for, or all."""
    message = decode_request(ApiKey.DESCRIBE_LOG_DIRS, request.version, request.body)
    asked = None
    if message.topics is not None:
        asked = {TopicPartition(topic.topic, index) for topic in message.topics for index in topic.partitions}
    partitions = _partitions(services, asked)
    results = [
        _described(path, None if logs is None else partitions[path])
        for path, logs in services.replicas.logs_by_data_dir().items()
    ]
    return asyncio.ensure_future(_answer(services, request.version, results))


async def _answer(services: Services, version: int, results: list[dict[str, Any]]) -> Parts:
    fields = {"throttle_time": 0, "error_code": ErrorCode.NONE, "results": results}
    encoded = await asyncio.to_thread(_measured, version, fields)
    count_errors(services, ApiKey.DESCRIBE_LOG_DIRS, error_codes(fields))
    return [encoded]


def _measured(version: int, fields: dict[str, Any]) -> bytes:
    _measure(fields["results"])
    return encode_response(ApiKey.DESCRIBE_LOG_DIRS, version, fields)


def _partitions(services: Services, asked: set[TopicPartition] | None) -> defaultdict[str, Topics]:
    """What is asked for, by folder and topic."""
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
        for key, log in sorted((logs or {}).items()):
            add(path, key, log.size_bytes)
    for key, copy in services.log_dirs.copies().items():
        log = services.replicas.partition(key).log
        add(copy.parent, key, copy.size_bytes, max(log.log_end_offset - copy.end_offset, 0))
    return found


def _described(path: str, topics: Topics | None) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.KAFKA_STORAGE_ERROR if topics is None else ErrorCode.NONE,
        "log_dir": path,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in (topics or {}).items()],
        "total_bytes": UNKNOWN_BYTES,
        "usable_bytes": UNKNOWN_BYTES,
    }


def _measure(results: list[dict[str, Any]]) -> None:
    for result in results:
        if result["error_code"] == ErrorCode.NONE:
            try:
                usage = shutil.disk_usage(result["log_dir"])
            except OSError:
                result |= {"error_code": ErrorCode.KAFKA_STORAGE_ERROR, "topics": ()}
            else:
                result |= {"total_bytes": usage.total, "usable_bytes": usage.free}


API = Api(ApiKey.DESCRIBE_LOG_DIRS, VersionRange(0, 4), handle)
