"""The messages of DescribeLogDirs, versions 1 to 4.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class DescribeLogDirsRequest(Protocol):
    @property
    def topics(self) -> tuple[DescribableLogDirTopic, ...] | None: ...


class DescribeLogDirsRequestFields(TypedDict):
    topics: Sequence[DescribableLogDirTopicFields] | None


class DescribableLogDirTopic(Protocol):
    @property
    def topic(self) -> str: ...

    @property
    def partitions(self) -> tuple[int, ...]: ...


class DescribableLogDirTopicFields(TypedDict):
    topic: str
    partitions: NotRequired[Sequence[int]]


class DescribeLogDirsResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def results(self) -> tuple[DescribeLogDirsResult, ...]: ...

    @property
    def error_code(self) -> int: ...


class DescribeLogDirsResponseFields(TypedDict):
    throttle_time: int  # ms
    results: Sequence[DescribeLogDirsResultFields]
    error_code: NotRequired[int]


class DescribeLogDirsResult(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def log_dir(self) -> str: ...

    @property
    def topics(self) -> tuple[DescribeLogDirsTopic, ...]: ...

    @property
    def total_bytes(self) -> int: ...

    @property
    def usable_bytes(self) -> int: ...


class DescribeLogDirsResultFields(TypedDict):
    error_code: int
    log_dir: str
    topics: Sequence[DescribeLogDirsTopicFields]
    total_bytes: NotRequired[int]
    usable_bytes: NotRequired[int]


class DescribeLogDirsTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[DescribeLogDirsPartition, ...]: ...


class DescribeLogDirsTopicFields(TypedDict):
    name: str
    partitions: Sequence[DescribeLogDirsPartitionFields]


class DescribeLogDirsPartition(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def partition_size(self) -> int: ...

    @property
    def offset_lag(self) -> int: ...

    @property
    def is_future_key(self) -> bool: ...


class DescribeLogDirsPartitionFields(TypedDict):
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool
