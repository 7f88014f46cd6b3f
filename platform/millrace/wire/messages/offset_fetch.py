"""The messages of OffsetFetch, versions 1 to 9.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class OffsetFetchRequest(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def topics(self) -> tuple[OffsetFetchRequestTopic, ...] | None: ...

    @property
    def require_stable(self) -> bool: ...

    @property
    def groups(self) -> tuple[OffsetFetchRequestGroup, ...]: ...


class OffsetFetchRequestFields(TypedDict):
    group_id: NotRequired[str]
    topics: NotRequired[Sequence[OffsetFetchRequestTopicFields] | None]
    require_stable: NotRequired[bool]
    groups: NotRequired[Sequence[OffsetFetchRequestGroupFields]]


class OffsetFetchRequestTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partition_indexes(self) -> tuple[int, ...]: ...


class OffsetFetchRequestTopicFields(TypedDict):
    name: str
    partition_indexes: NotRequired[Sequence[int]]


class OffsetFetchRequestGroup(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def topics(self) -> tuple[OffsetFetchRequestTopics, ...] | None: ...

    @property
    def member_id(self) -> str | None: ...

    @property
    def member_epoch(self) -> int: ...


class OffsetFetchRequestGroupFields(TypedDict):
    group_id: str
    topics: Sequence[OffsetFetchRequestTopicsFields] | None
    member_id: NotRequired[str | None]
    member_epoch: NotRequired[int]


class OffsetFetchRequestTopics(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partition_indexes(self) -> tuple[int, ...]: ...


class OffsetFetchRequestTopicsFields(TypedDict):
    name: str
    partition_indexes: NotRequired[Sequence[int]]


class OffsetFetchResponse(Protocol):
    @property
    def topics(self) -> tuple[OffsetFetchResponseTopic, ...]: ...

    @property
    def error_code(self) -> int: ...

    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def groups(self) -> tuple[OffsetFetchResponseGroup, ...]: ...


class OffsetFetchResponseFields(TypedDict):
    topics: NotRequired[Sequence[OffsetFetchResponseTopicFields]]
    error_code: NotRequired[int]
    throttle_time: NotRequired[int]  # ms
    groups: NotRequired[Sequence[OffsetFetchResponseGroupFields]]


class OffsetFetchResponseTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[OffsetFetchResponsePartition, ...]: ...


class OffsetFetchResponseTopicFields(TypedDict):
    name: str
    partitions: Sequence[OffsetFetchResponsePartitionFields]


class OffsetFetchResponsePartition(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def committed_offset(self) -> int: ...

    @property
    def metadata(self) -> str | None: ...

    @property
    def error_code(self) -> int: ...

    @property
    def committed_leader_epoch(self) -> int: ...


class OffsetFetchResponsePartitionFields(TypedDict):
    partition_index: int
    committed_offset: int
    metadata: str | None
    error_code: int
    committed_leader_epoch: NotRequired[int]


class OffsetFetchResponseGroup(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def topics(self) -> tuple[OffsetFetchResponseTopics, ...]: ...

    @property
    def error_code(self) -> int: ...


class OffsetFetchResponseGroupFields(TypedDict):
    group_id: str
    topics: Sequence[OffsetFetchResponseTopicsFields]
    error_code: NotRequired[int]


class OffsetFetchResponseTopics(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[OffsetFetchResponsePartitions, ...]: ...


class OffsetFetchResponseTopicsFields(TypedDict):
    name: str
    partitions: Sequence[OffsetFetchResponsePartitionsFields]


class OffsetFetchResponsePartitions(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def committed_offset(self) -> int: ...

    @property
    def committed_leader_epoch(self) -> int: ...

    @property
    def metadata(self) -> str | None: ...

    @property
    def error_code(self) -> int: ...


class OffsetFetchResponsePartitionsFields(TypedDict):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: NotRequired[int]
    metadata: str | None
    error_code: int
