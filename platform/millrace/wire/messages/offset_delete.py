"""The messages of OffsetDelete, version 0.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, TypedDict


class OffsetDeleteRequest(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def topics(self) -> tuple[OffsetDeleteRequestTopic, ...]: ...


class OffsetDeleteRequestFields(TypedDict):
    group_id: str
    topics: Sequence[OffsetDeleteRequestTopicFields]


class OffsetDeleteRequestTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[OffsetDeleteRequestPartition, ...]: ...


class OffsetDeleteRequestTopicFields(TypedDict):
    name: str
    partitions: Sequence[OffsetDeleteRequestPartitionFields]


class OffsetDeleteRequestPartition(Protocol):
    @property
    def partition_index(self) -> int: ...


class OffsetDeleteRequestPartitionFields(TypedDict):
    partition_index: int


class OffsetDeleteResponse(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def topics(self) -> tuple[OffsetDeleteResponseTopic, ...]: ...


class OffsetDeleteResponseFields(TypedDict):
    error_code: int
    throttle_time: int  # ms
    topics: Sequence[OffsetDeleteResponseTopicFields]


class OffsetDeleteResponseTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[OffsetDeleteResponsePartition, ...]: ...


class OffsetDeleteResponseTopicFields(TypedDict):
    name: str
    partitions: Sequence[OffsetDeleteResponsePartitionFields]


class OffsetDeleteResponsePartition(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def error_code(self) -> int: ...


class OffsetDeleteResponsePartitionFields(TypedDict):
    partition_index: int
    error_code: int
