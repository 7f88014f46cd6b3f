"""The messages of DeleteGroups, versions 0 to 2.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class DeleteGroupsRequest(Protocol):
    @property
    def groups_names(self) -> tuple[str, ...]: ...


class DeleteGroupsRequestFields(TypedDict):
    groups_names: NotRequired[Sequence[str]]


class DeleteGroupsResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def results(self) -> tuple[DeletableGroupResult, ...]: ...


class DeleteGroupsResponseFields(TypedDict):
    throttle_time: int  # ms
    results: Sequence[DeletableGroupResultFields]


class DeletableGroupResult(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def error_code(self) -> int: ...


class DeletableGroupResultFields(TypedDict):
    group_id: str
    error_code: int
