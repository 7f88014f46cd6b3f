"""The messages of ListPartitionReassignments, version 0.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class ListPartitionReassignmentsRequest(Protocol):
    @property
    def timeout(self) -> timedelta: ...

    @property
    def topics(self) -> tuple[ListPartitionReassignmentsTopics, ...] | None: ...


class ListPartitionReassignmentsRequestFields(TypedDict):
    timeout: NotRequired[int]  # ms
    topics: Sequence[ListPartitionReassignmentsTopicsFields] | None


class ListPartitionReassignmentsTopics(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partition_indexes(self) -> tuple[int, ...]: ...


class ListPartitionReassignmentsTopicsFields(TypedDict):
    name: str
    partition_indexes: NotRequired[Sequence[int]]


class ListPartitionReassignmentsResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...

    @property
    def topics(self) -> tuple[OngoingTopicReassignment, ...]: ...


class ListPartitionReassignmentsResponseFields(TypedDict):
    throttle_time: int  # ms
    error_code: int
    error_message: str | None
    topics: Sequence[OngoingTopicReassignmentFields]


class OngoingTopicReassignment(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[OngoingPartitionReassignment, ...]: ...


class OngoingTopicReassignmentFields(TypedDict):
    name: str
    partitions: Sequence[OngoingPartitionReassignmentFields]


class OngoingPartitionReassignment(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def replicas(self) -> tuple[int, ...]: ...

    @property
    def adding_replicas(self) -> tuple[int, ...]: ...

    @property
    def removing_replicas(self) -> tuple[int, ...]: ...


class OngoingPartitionReassignmentFields(TypedDict):
    partition_index: int
    replicas: NotRequired[Sequence[int]]
    adding_replicas: NotRequired[Sequence[int]]
    removing_replicas: NotRequired[Sequence[int]]
