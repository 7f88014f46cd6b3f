"""The messages of SyncGroup, versions 0 to 5.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class SyncGroupRequest(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def generation_id(self) -> int: ...

    @property
    def member_id(self) -> str: ...

    @property
    def assignments(self) -> tuple[SyncGroupRequestAssignment, ...]: ...

    @property
    def group_instance_id(self) -> str | None: ...

    @property
    def protocol_type(self) -> str | None: ...

    @property
    def protocol_name(self) -> str | None: ...


class SyncGroupRequestFields(TypedDict):
    group_id: str
    generation_id: int
    member_id: str
    assignments: Sequence[SyncGroupRequestAssignmentFields]
    group_instance_id: NotRequired[str | None]
    protocol_type: NotRequired[str | None]
    protocol_name: NotRequired[str | None]


class SyncGroupRequestAssignment(Protocol):
    @property
    def member_id(self) -> str: ...

    @property
    def assignment(self) -> bytes: ...


class SyncGroupRequestAssignmentFields(TypedDict):
    member_id: str
    assignment: bytes


class SyncGroupResponse(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def assignment(self) -> bytes: ...

    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def protocol_type(self) -> str | None: ...

    @property
    def protocol_name(self) -> str | None: ...


class SyncGroupResponseFields(TypedDict):
    error_code: int
    assignment: bytes
    throttle_time: NotRequired[int]  # ms
    protocol_type: NotRequired[str | None]
    protocol_name: NotRequired[str | None]
