"""The messages of ConsumerGroupHeartbeat, versions 0 to 1.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict
from uuid import UUID


class ConsumerGroupHeartbeatRequest(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def member_id(self) -> str: ...

    @property
    def member_epoch(self) -> int: ...

    @property
    def instance_id(self) -> str | None: ...

    @property
    def rack_id(self) -> str | None: ...

    @property
    def rebalance_timeout(self) -> timedelta: ...

    @property
    def subscribed_topic_names(self) -> tuple[str, ...] | None: ...

    @property
    def server_assignor(self) -> str | None: ...

    @property
    def topic_partitions(self) -> tuple[TopicPartitions, ...] | None: ...

    @property
    def subscribed_topic_regex(self) -> str | None: ...


class ConsumerGroupHeartbeatRequestFields(TypedDict):
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: NotRequired[str | None]
    rack_id: NotRequired[str | None]
    rebalance_timeout: NotRequired[int]  # ms
    subscribed_topic_names: NotRequired[Sequence[str] | None]
    server_assignor: NotRequired[str | None]
    topic_partitions: Sequence[TopicPartitionsFields] | None
    subscribed_topic_regex: NotRequired[str | None]


class TopicPartitions(Protocol):
    @property
    def topic_id(self) -> UUID | None: ...

    @property
    def partitions(self) -> tuple[int, ...]: ...


class TopicPartitionsFields(TypedDict):
    topic_id: UUID | None
    partitions: NotRequired[Sequence[int]]


class ConsumerGroupHeartbeatResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...

    @property
    def member_id(self) -> str | None: ...

    @property
    def member_epoch(self) -> int: ...

    @property
    def heartbeat_interval(self) -> timedelta: ...

    @property
    def assignment(self) -> Assignment | None: ...


class ConsumerGroupHeartbeatResponseFields(TypedDict):
    throttle_time: int  # ms
    error_code: int
    error_message: NotRequired[str | None]
    member_id: NotRequired[str | None]
    member_epoch: int
    heartbeat_interval: int  # ms
    assignment: NotRequired[AssignmentFields | None]


class Assignment(Protocol):
    @property
    def topic_partitions(self) -> tuple[TopicPartitions, ...]: ...


class AssignmentFields(TypedDict):
    topic_partitions: Sequence[TopicPartitionsFields]
