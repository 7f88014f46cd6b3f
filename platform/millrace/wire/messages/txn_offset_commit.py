"""The messages of TxnOffsetCommit, versions 0 to 5.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class TxnOffsetCommitRequest(Protocol):
    @property
    def transactional_id(self) -> str: ...

    @property
    def group_id(self) -> str: ...

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...

    @property
    def topics(self) -> tuple[TxnOffsetCommitRequestTopic, ...]: ...

    @property
    def generation_id(self) -> int: ...

    @property
    def member_id(self) -> str: ...

    @property
    def group_instance_id(self) -> str | None: ...


class TxnOffsetCommitRequestFields(TypedDict):
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    topics: Sequence[TxnOffsetCommitRequestTopicFields]
    generation_id: NotRequired[int]
    member_id: NotRequired[str]
    group_instance_id: NotRequired[str | None]


class TxnOffsetCommitRequestTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[TxnOffsetCommitRequestPartition, ...]: ...


class TxnOffsetCommitRequestTopicFields(TypedDict):
    name: str
    partitions: Sequence[TxnOffsetCommitRequestPartitionFields]


class TxnOffsetCommitRequestPartition(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def committed_offset(self) -> int: ...

    @property
    def committed_metadata(self) -> str | None: ...

    @property
    def committed_leader_epoch(self) -> int: ...


class TxnOffsetCommitRequestPartitionFields(TypedDict):
    partition_index: int
    committed_offset: int
    committed_metadata: str | None
    committed_leader_epoch: NotRequired[int]


class TxnOffsetCommitResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def topics(self) -> tuple[TxnOffsetCommitResponseTopic, ...]: ...


class TxnOffsetCommitResponseFields(TypedDict):
    throttle_time: int  # ms
    topics: Sequence[TxnOffsetCommitResponseTopicFields]


class TxnOffsetCommitResponseTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[TxnOffsetCommitResponsePartition, ...]: ...


class TxnOffsetCommitResponseTopicFields(TypedDict):
    name: str
    partitions: Sequence[TxnOffsetCommitResponsePartitionFields]


class TxnOffsetCommitResponsePartition(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def error_code(self) -> int: ...


class TxnOffsetCommitResponsePartitionFields(TypedDict):
    partition_index: int
    error_code: int
