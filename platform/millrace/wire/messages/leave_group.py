"""The messages of LeaveGroup, versions 0 to 5.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class LeaveGroupRequest(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def member_id(self) -> str: ...

    @property
    def members(self) -> tuple[MemberIdentity, ...]: ...


class LeaveGroupRequestFields(TypedDict):
    group_id: str
    member_id: NotRequired[str]
    members: NotRequired[Sequence[MemberIdentityFields]]


class MemberIdentity(Protocol):
    @property
    def member_id(self) -> str: ...

    @property
    def group_instance_id(self) -> str | None: ...

    @property
    def reason(self) -> str | None: ...


class MemberIdentityFields(TypedDict):
    member_id: str
    group_instance_id: NotRequired[str | None]
    reason: NotRequired[str | None]


class LeaveGroupResponse(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def members(self) -> tuple[MemberResponse, ...]: ...


class LeaveGroupResponseFields(TypedDict):
    error_code: int
    throttle_time: NotRequired[int]  # ms
    members: NotRequired[Sequence[MemberResponseFields]]


class MemberResponse(Protocol):
    @property
    def member_id(self) -> str: ...

    @property
    def group_instance_id(self) -> str | None: ...

    @property
    def error_code(self) -> int: ...


class MemberResponseFields(TypedDict):
    member_id: str
    group_instance_id: str | None
    error_code: int
