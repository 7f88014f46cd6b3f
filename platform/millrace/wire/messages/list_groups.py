"""The messages of ListGroups, versions 0 to 5.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class ListGroupsRequest(Protocol):
    @property
    def states_filter(self) -> tuple[str, ...]: ...

    @property
    def types_filter(self) -> tuple[str, ...]: ...


class ListGroupsRequestFields(TypedDict):
    states_filter: NotRequired[Sequence[str]]
    types_filter: NotRequired[Sequence[str]]


class ListGroupsResponse(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def groups(self) -> tuple[ListedGroup, ...]: ...

    @property
    def throttle_time(self) -> timedelta: ...


class ListGroupsResponseFields(TypedDict):
    error_code: int
    groups: Sequence[ListedGroupFields]
    throttle_time: NotRequired[int]  # ms


class ListedGroup(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def protocol_type(self) -> str: ...

    @property
    def group_state(self) -> str: ...

    @property
    def group_type(self) -> str: ...


class ListedGroupFields(TypedDict):
    group_id: str
    protocol_type: str
    group_state: NotRequired[str]
    group_type: NotRequired[str]
