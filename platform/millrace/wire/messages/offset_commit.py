"""The messages of OffsetCommit, versions 2 to 9.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class OffsetCommitRequest(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def generation_id_or_member_epoch(self) -> int: ...

    @property
    def member_id(self) -> str: ...

    @property
    def retention_time(self) -> timedelta: ...

    @property
    def topics(self) -> tuple[OffsetCommitRequestTopic, ...]: ...

    @property
    def group_instance_id(self) -> str | None: ...


class OffsetCommitRequestFields(TypedDict):
    group_id: str
    generation_id_or_member_epoch: NotRequired[int]
    member_id: str
    retention_time: NotRequired[int]  # ms
    topics: Sequence[OffsetCommitRequestTopicFields]
    group_instance_id: NotRequired[str | None]


class OffsetCommitRequestTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[OffsetCommitRequestPartition, ...]: ...


class OffsetCommitRequestTopicFields(TypedDict):
    name: str
    partitions: Sequence[OffsetCommitRequestPartitionFields]


class OffsetCommitRequestPartition(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def committed_offset(self) -> int: ...

    @property
    def committed_metadata(self) -> str | None: ...

    @property
    def committed_leader_epoch(self) -> int: ...


class OffsetCommitRequestPartitionFields(TypedDict):
    partition_index: int
    committed_offset: int
    committed_metadata: str | None
    committed_leader_epoch: NotRequired[int]


class OffsetCommitResponse(Protocol):
    @property
    def topics(self) -> tuple[OffsetCommitResponseTopic, ...]: ...

    @property
    def throttle_time(self) -> timedelta: ...


class OffsetCommitResponseFields(TypedDict):
    topics: Sequence[OffsetCommitResponseTopicFields]
    throttle_time: NotRequired[int]  # ms


class OffsetCommitResponseTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[OffsetCommitResponsePartition, ...]: ...


class OffsetCommitResponseTopicFields(TypedDict):
    name: str
    partitions: Sequence[OffsetCommitResponsePartitionFields]


class OffsetCommitResponsePartition(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def error_code(self) -> int: ...


class OffsetCommitResponsePartitionFields(TypedDict):
    partition_index: int
    error_code: int
