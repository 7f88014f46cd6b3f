"""The messages of DescribeTopicPartitions, version 0.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict
from uuid import UUID


class DescribeTopicPartitionsRequest(Protocol):
    @property
    def topics(self) -> tuple[TopicRequest, ...]: ...

    @property
    def response_partition_limit(self) -> int: ...

    @property
    def cursor(self) -> Cursor | None: ...


class DescribeTopicPartitionsRequestFields(TypedDict):
    topics: Sequence[TopicRequestFields]
    response_partition_limit: NotRequired[int]
    cursor: NotRequired[CursorFields | None]


class TopicRequest(Protocol):
    @property
    def name(self) -> str: ...


class TopicRequestFields(TypedDict):
    name: str


class Cursor(Protocol):
    @property
    def topic_name(self) -> str: ...

    @property
    def partition_index(self) -> int: ...


class CursorFields(TypedDict):
    topic_name: str
    partition_index: int


class DescribeTopicPartitionsResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def topics(self) -> tuple[DescribeTopicPartitionsResponseTopic, ...]: ...

    @property
    def next_cursor(self) -> Cursor | None: ...


class DescribeTopicPartitionsResponseFields(TypedDict):
    throttle_time: int  # ms
    topics: Sequence[DescribeTopicPartitionsResponseTopicFields]
    next_cursor: NotRequired[CursorFields | None]


class DescribeTopicPartitionsResponseTopic(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def name(self) -> str | None: ...

    @property
    def topic_id(self) -> UUID | None: ...

    @property
    def is_internal(self) -> bool: ...

    @property
    def partitions(self) -> tuple[DescribeTopicPartitionsResponsePartition, ...]: ...

    @property
    def topic_authorized_operations(self) -> int: ...


class DescribeTopicPartitionsResponseTopicFields(TypedDict):
    error_code: int
    name: str | None
    topic_id: UUID | None
    is_internal: NotRequired[bool]
    partitions: Sequence[DescribeTopicPartitionsResponsePartitionFields]
    topic_authorized_operations: NotRequired[int]


class DescribeTopicPartitionsResponsePartition(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def partition_index(self) -> int: ...

    @property
    def leader_id(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def replica_nodes(self) -> tuple[int, ...]: ...

    @property
    def isr_nodes(self) -> tuple[int, ...]: ...

    @property
    def eligible_leader_replicas(self) -> tuple[int, ...] | None: ...

    @property
    def last_known_elr(self) -> tuple[int, ...] | None: ...

    @property
    def offline_replicas(self) -> tuple[int, ...]: ...


class DescribeTopicPartitionsResponsePartitionFields(TypedDict):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: NotRequired[int]
    replica_nodes: NotRequired[Sequence[int]]
    isr_nodes: NotRequired[Sequence[int]]
    eligible_leader_replicas: NotRequired[Sequence[int] | None]
    last_known_elr: NotRequired[Sequence[int] | None]
    offline_replicas: NotRequired[Sequence[int]]
