"""The messages of DescribeGroups, versions 0 to 6.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class DescribeGroupsRequest(Protocol):
    @property
    def groups(self) -> tuple[str, ...]: ...

    @property
    def include_authorized_operations(self) -> bool: ...


class DescribeGroupsRequestFields(TypedDict):
    groups: NotRequired[Sequence[str]]
    include_authorized_operations: NotRequired[bool]


class DescribeGroupsResponse(Protocol):
    @property
    def groups(self) -> tuple[DescribedGroup, ...]: ...

    @property
    def throttle_time(self) -> timedelta: ...


class DescribeGroupsResponseFields(TypedDict):
    groups: Sequence[DescribedGroupFields]
    throttle_time: NotRequired[int]  # ms


class DescribedGroup(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def group_id(self) -> str: ...

    @property
    def group_state(self) -> str: ...

    @property
    def protocol_type(self) -> str: ...

    @property
    def protocol_data(self) -> str: ...

    @property
    def members(self) -> tuple[DescribedGroupMember, ...]: ...

    @property
    def authorized_operations(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...


class DescribedGroupFields(TypedDict):
    error_code: int
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: Sequence[DescribedGroupMemberFields]
    authorized_operations: NotRequired[int]
    error_message: NotRequired[str | None]


class DescribedGroupMember(Protocol):
    @property
    def member_id(self) -> str: ...

    @property
    def client_id(self) -> str: ...

    @property
    def client_host(self) -> str: ...

    @property
    def member_metadata(self) -> bytes: ...

    @property
    def member_assignment(self) -> bytes: ...

    @property
    def group_instance_id(self) -> str | None: ...


class DescribedGroupMemberFields(TypedDict):
    member_id: str
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes
    group_instance_id: NotRequired[str | None]
