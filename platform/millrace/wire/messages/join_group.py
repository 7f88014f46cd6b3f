"""The messages of JoinGroup, versions 0 to 9.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class JoinGroupRequest(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def session_timeout(self) -> timedelta: ...

    @property
    def member_id(self) -> str: ...

    @property
    def protocol_type(self) -> str: ...

    @property
    def protocols(self) -> tuple[JoinGroupRequestProtocol, ...]: ...

    @property
    def rebalance_timeout(self) -> timedelta: ...

    @property
    def group_instance_id(self) -> str | None: ...

    @property
    def reason(self) -> str | None: ...


class JoinGroupRequestFields(TypedDict):
    group_id: str
    session_timeout: int  # ms
    member_id: str
    protocol_type: str
    protocols: Sequence[JoinGroupRequestProtocolFields]
    rebalance_timeout: NotRequired[int]  # ms
    group_instance_id: NotRequired[str | None]
    reason: NotRequired[str | None]


class JoinGroupRequestProtocol(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def metadata(self) -> bytes: ...


class JoinGroupRequestProtocolFields(TypedDict):
    name: str
    metadata: bytes


class JoinGroupResponse(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def generation_id(self) -> int: ...

    @property
    def protocol_name(self) -> str | None: ...

    @property
    def leader(self) -> str: ...

    @property
    def member_id(self) -> str: ...

    @property
    def members(self) -> tuple[JoinGroupResponseMember, ...]: ...

    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def protocol_type(self) -> str | None: ...

    @property
    def skip_assignment(self) -> bool: ...


class JoinGroupResponseFields(TypedDict):
    error_code: int
    generation_id: NotRequired[int]
    protocol_name: str | None
    leader: str
    member_id: str
    members: Sequence[JoinGroupResponseMemberFields]
    throttle_time: NotRequired[int]  # ms
    protocol_type: NotRequired[str | None]
    skip_assignment: NotRequired[bool]


class JoinGroupResponseMember(Protocol):
    @property
    def member_id(self) -> str: ...

    @property
    def metadata(self) -> bytes: ...

    @property
    def group_instance_id(self) -> str | None: ...


class JoinGroupResponseMemberFields(TypedDict):
    member_id: str
    metadata: bytes
    group_instance_id: NotRequired[str | None]
