"""The messages of AlterPartitionReassignments, versions 0 to 1.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class AlterPartitionReassignmentsRequest(Protocol):
    @property
    def timeout(self) -> timedelta: ...

    @property
    def topics(self) -> tuple[ReassignableTopic, ...]: ...

    @property
    def allow_replication_factor_change(self) -> bool: ...


class AlterPartitionReassignmentsRequestFields(TypedDict):
    timeout: NotRequired[int]  # ms
    topics: Sequence[ReassignableTopicFields]
    allow_replication_factor_change: NotRequired[bool]


class ReassignableTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[ReassignablePartition, ...]: ...


class ReassignableTopicFields(TypedDict):
    name: str
    partitions: Sequence[ReassignablePartitionFields]


class ReassignablePartition(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def replicas(self) -> tuple[int, ...] | None: ...


class ReassignablePartitionFields(TypedDict):
    partition_index: int
    replicas: NotRequired[Sequence[int] | None]


class AlterPartitionReassignmentsResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...

    @property
    def responses(self) -> tuple[ReassignableTopicResponse, ...]: ...

    @property
    def allow_replication_factor_change(self) -> bool: ...


class AlterPartitionReassignmentsResponseFields(TypedDict):
    throttle_time: int  # ms
    error_code: int
    error_message: str | None
    responses: Sequence[ReassignableTopicResponseFields]
    allow_replication_factor_change: NotRequired[bool]


class ReassignableTopicResponse(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[ReassignablePartitionResponse, ...]: ...


class ReassignableTopicResponseFields(TypedDict):
    name: str
    partitions: Sequence[ReassignablePartitionResponseFields]


class ReassignablePartitionResponse(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...


class ReassignablePartitionResponseFields(TypedDict):
    partition_index: int
    error_code: int
    error_message: str | None
