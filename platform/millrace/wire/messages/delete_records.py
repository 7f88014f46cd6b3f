"""The messages of DeleteRecords, versions 0 to 2.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, TypedDict


class DeleteRecordsRequest(Protocol):
    @property
    def topics(self) -> tuple[DeleteRecordsTopic, ...]: ...

    @property
    def timeout(self) -> timedelta: ...


class DeleteRecordsRequestFields(TypedDict):
    topics: Sequence[DeleteRecordsTopicFields]
    timeout: int  # ms


class DeleteRecordsTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[DeleteRecordsPartition, ...]: ...


class DeleteRecordsTopicFields(TypedDict):
    name: str
    partitions: Sequence[DeleteRecordsPartitionFields]


class DeleteRecordsPartition(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def offset(self) -> int: ...


class DeleteRecordsPartitionFields(TypedDict):
    partition_index: int
    offset: int


class DeleteRecordsResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def topics(self) -> tuple[DeleteRecordsTopicResult, ...]: ...


class DeleteRecordsResponseFields(TypedDict):
    throttle_time: int  # ms
    topics: Sequence[DeleteRecordsTopicResultFields]


class DeleteRecordsTopicResult(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[DeleteRecordsPartitionResult, ...]: ...


class DeleteRecordsTopicResultFields(TypedDict):
    name: str
    partitions: Sequence[DeleteRecordsPartitionResultFields]


class DeleteRecordsPartitionResult(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def low_watermark(self) -> int: ...

    @property
    def error_code(self) -> int: ...


class DeleteRecordsPartitionResultFields(TypedDict):
    partition_index: int
    low_watermark: int
    error_code: int
