"""The messages of ListOffsets, versions 1 to 10.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class ListOffsetsRequest(Protocol):
    @property
    def replica_id(self) -> int: ...

    @property
    def topics(self) -> tuple[ListOffsetsTopic, ...]: ...

    @property
    def isolation_level(self) -> int: ...

    @property
    def timeout(self) -> timedelta: ...


class ListOffsetsRequestFields(TypedDict):
    replica_id: int
    topics: Sequence[ListOffsetsTopicFields]
    isolation_level: NotRequired[int]
    timeout: NotRequired[int]  # ms


class ListOffsetsTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[ListOffsetsPartition, ...]: ...


class ListOffsetsTopicFields(TypedDict):
    name: str
    partitions: Sequence[ListOffsetsPartitionFields]


class ListOffsetsPartition(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def timestamp(self) -> int: ...

    @property
    def current_leader_epoch(self) -> int: ...


class ListOffsetsPartitionFields(TypedDict):
    partition_index: int
    timestamp: int
    current_leader_epoch: NotRequired[int]


class ListOffsetsResponse(Protocol):
    @property
    def topics(self) -> tuple[ListOffsetsTopicResponse, ...]: ...

    @property
    def throttle_time(self) -> timedelta: ...


class ListOffsetsResponseFields(TypedDict):
    topics: Sequence[ListOffsetsTopicResponseFields]
    throttle_time: NotRequired[int]  # ms


class ListOffsetsTopicResponse(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[ListOffsetsPartitionResponse, ...]: ...


class ListOffsetsTopicResponseFields(TypedDict):
    name: str
    partitions: Sequence[ListOffsetsPartitionResponseFields]


class ListOffsetsPartitionResponse(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def error_code(self) -> int: ...

    @property
    def timestamp(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...


class ListOffsetsPartitionResponseFields(TypedDict):
    partition_index: int
    error_code: int
    timestamp: NotRequired[int]
    offset: NotRequired[int]
    leader_epoch: NotRequired[int]
