"""The messages of CreatePartitions, versions 0 to 3.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class CreatePartitionsRequest(Protocol):
    @property
    def topics(self) -> tuple[CreatePartitionsTopic, ...]: ...

    @property
    def timeout(self) -> timedelta: ...

    @property
    def validate_only(self) -> bool: ...


class CreatePartitionsRequestFields(TypedDict):
    topics: Sequence[CreatePartitionsTopicFields]
    timeout: int  # ms
    validate_only: bool


class CreatePartitionsTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def count(self) -> int: ...

    @property
    def assignments(self) -> tuple[CreatePartitionsAssignment, ...] | None: ...


class CreatePartitionsTopicFields(TypedDict):
    name: str
    count: int
    assignments: Sequence[CreatePartitionsAssignmentFields] | None


class CreatePartitionsAssignment(Protocol):
    @property
    def broker_ids(self) -> tuple[int, ...]: ...


class CreatePartitionsAssignmentFields(TypedDict):
    broker_ids: NotRequired[Sequence[int]]


class CreatePartitionsResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def results(self) -> tuple[CreatePartitionsTopicResult, ...]: ...


class CreatePartitionsResponseFields(TypedDict):
    throttle_time: int  # ms
    results: Sequence[CreatePartitionsTopicResultFields]


class CreatePartitionsTopicResult(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...


class CreatePartitionsTopicResultFields(TypedDict):
    name: str
    error_code: int
    error_message: NotRequired[str | None]
