"""The messages of OffsetForLeaderEpoch, versions 2 to 4.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class OffsetForLeaderEpochRequest(Protocol):
    @property
    def topics(self) -> tuple[OffsetForLeaderTopic, ...]: ...

    @property
    def replica_id(self) -> int: ...


class OffsetForLeaderEpochRequestFields(TypedDict):
    topics: Sequence[OffsetForLeaderTopicFields]
    replica_id: NotRequired[int]


class OffsetForLeaderTopic(Protocol):
    @property
    def topic(self) -> str: ...

    @property
    def partitions(self) -> tuple[OffsetForLeaderPartition, ...]: ...


class OffsetForLeaderTopicFields(TypedDict):
    topic: str
    partitions: Sequence[OffsetForLeaderPartitionFields]


class OffsetForLeaderPartition(Protocol):
    @property
    def partition(self) -> int: ...

    @property
    def current_leader_epoch(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...


class OffsetForLeaderPartitionFields(TypedDict):
    partition: int
    current_leader_epoch: NotRequired[int]
    leader_epoch: int


class OffsetForLeaderEpochResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def topics(self) -> tuple[OffsetForLeaderTopicResult, ...]: ...


class OffsetForLeaderEpochResponseFields(TypedDict):
    throttle_time: int  # ms
    topics: Sequence[OffsetForLeaderTopicResultFields]


class OffsetForLeaderTopicResult(Protocol):
    @property
    def topic(self) -> str: ...

    @property
    def partitions(self) -> tuple[EpochEndOffset, ...]: ...


class OffsetForLeaderTopicResultFields(TypedDict):
    topic: str
    partitions: Sequence[EpochEndOffsetFields]


class EpochEndOffset(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def partition(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def end_offset(self) -> int: ...


class EpochEndOffsetFields(TypedDict):
    error_code: int
    partition: int
    leader_epoch: NotRequired[int]
    end_offset: NotRequired[int]
