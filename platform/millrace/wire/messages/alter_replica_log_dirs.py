"""The messages of AlterReplicaLogDirs, versions 1 to 2.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class AlterReplicaLogDirsRequest(Protocol):
    @property
    def dirs(self) -> tuple[AlterReplicaLogDir, ...]: ...


class AlterReplicaLogDirsRequestFields(TypedDict):
    dirs: Sequence[AlterReplicaLogDirFields]


class AlterReplicaLogDir(Protocol):
    @property
    def path(self) -> str: ...

    @property
    def topics(self) -> tuple[AlterReplicaLogDirTopic, ...]: ...


class AlterReplicaLogDirFields(TypedDict):
    path: str
    topics: Sequence[AlterReplicaLogDirTopicFields]


class AlterReplicaLogDirTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[int, ...]: ...


class AlterReplicaLogDirTopicFields(TypedDict):
    name: str
    partitions: NotRequired[Sequence[int]]


class AlterReplicaLogDirsResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def results(self) -> tuple[AlterReplicaLogDirTopicResult, ...]: ...


class AlterReplicaLogDirsResponseFields(TypedDict):
    throttle_time: int  # ms
    results: Sequence[AlterReplicaLogDirTopicResultFields]


class AlterReplicaLogDirTopicResult(Protocol):
    @property
    def topic_name(self) -> str: ...

    @property
    def partitions(self) -> tuple[AlterReplicaLogDirPartitionResult, ...]: ...


class AlterReplicaLogDirTopicResultFields(TypedDict):
    topic_name: str
    partitions: Sequence[AlterReplicaLogDirPartitionResultFields]


class AlterReplicaLogDirPartitionResult(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def error_code(self) -> int: ...


class AlterReplicaLogDirPartitionResultFields(TypedDict):
    partition_index: int
    error_code: int
