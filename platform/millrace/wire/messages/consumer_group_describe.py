"""The messages of ConsumerGroupDescribe, versions 0 to 1.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict
from uuid import UUID


class ConsumerGroupDescribeRequest(Protocol):
    @property
    def group_ids(self) -> tuple[str, ...]: ...

    @property
    def include_authorized_operations(self) -> bool: ...


class ConsumerGroupDescribeRequestFields(TypedDict):
    group_ids: NotRequired[Sequence[str]]
    include_authorized_operations: bool


class ConsumerGroupDescribeResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def groups(self) -> tuple[DescribedGroup, ...]: ...


class ConsumerGroupDescribeResponseFields(TypedDict):
    throttle_time: int  # ms
    groups: Sequence[DescribedGroupFields]


class DescribedGroup(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...

    @property
    def group_id(self) -> str: ...

    @property
    def group_state(self) -> str: ...

    @property
    def group_epoch(self) -> int: ...

    @property
    def assignment_epoch(self) -> int: ...

    @property
    def assignor_name(self) -> str: ...

    @property
    def members(self) -> tuple[Member, ...]: ...

    @property
    def authorized_operations(self) -> int: ...


class DescribedGroupFields(TypedDict):
    error_code: int
    error_message: NotRequired[str | None]
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: Sequence[MemberFields]
    authorized_operations: NotRequired[int]


class Member(Protocol):
    @property
    def member_id(self) -> str: ...

    @property
    def instance_id(self) -> str | None: ...

    @property
    def rack_id(self) -> str | None: ...

    @property
    def member_epoch(self) -> int: ...

    @property
    def client_id(self) -> str: ...

    @property
    def client_host(self) -> str: ...

    @property
    def subscribed_topic_names(self) -> tuple[str, ...]: ...

    @property
    def subscribed_topic_regex(self) -> str | None: ...

    @property
    def assignment(self) -> Assignment: ...

    @property
    def target_assignment(self) -> Assignment: ...

    @property
    def member_type(self) -> int: ...


class MemberFields(TypedDict):
    member_id: str
    instance_id: NotRequired[str | None]
    rack_id: NotRequired[str | None]
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: NotRequired[Sequence[str]]
    subscribed_topic_regex: NotRequired[str | None]
    assignment: AssignmentFields
    target_assignment: AssignmentFields
    member_type: NotRequired[int]


class Assignment(Protocol):
    @property
    def topic_partitions(self) -> tuple[TopicPartitions, ...]: ...


class AssignmentFields(TypedDict):
    topic_partitions: Sequence[TopicPartitionsFields]


class TopicPartitions(Protocol):
    @property
    def topic_id(self) -> UUID | None: ...

    @property
    def topic_name(self) -> str: ...

    @property
    def partitions(self) -> tuple[int, ...]: ...


class TopicPartitionsFields(TypedDict):
    topic_id: UUID | None
    topic_name: str
    partitions: NotRequired[Sequence[int]]
