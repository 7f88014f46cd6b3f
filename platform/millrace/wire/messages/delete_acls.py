"""The messages of DeleteAcls, versions 1 to 3.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class DeleteAclsRequest(Protocol):
    @property
    def filters(self) -> tuple[DeleteAclsFilter, ...]: ...


class DeleteAclsRequestFields(TypedDict):
    filters: Sequence[DeleteAclsFilterFields]


class DeleteAclsFilter(Protocol):
    @property
    def resource_type_filter(self) -> int: ...

    @property
    def resource_name_filter(self) -> str | None: ...

    @property
    def pattern_type_filter(self) -> int: ...

    @property
    def principal_filter(self) -> str | None: ...

    @property
    def host_filter(self) -> str | None: ...

    @property
    def operation(self) -> int: ...

    @property
    def permission_type(self) -> int: ...


class DeleteAclsFilterFields(TypedDict):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: NotRequired[int]
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class DeleteAclsResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def filter_results(self) -> tuple[DeleteAclsFilterResult, ...]: ...


class DeleteAclsResponseFields(TypedDict):
    throttle_time: int  # ms
    filter_results: Sequence[DeleteAclsFilterResultFields]


class DeleteAclsFilterResult(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...

    @property
    def matching_acls(self) -> tuple[DeleteAclsMatchingAcl, ...]: ...


class DeleteAclsFilterResultFields(TypedDict):
    error_code: int
    error_message: str | None
    matching_acls: Sequence[DeleteAclsMatchingAclFields]


class DeleteAclsMatchingAcl(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...

    @property
    def pattern_type(self) -> int: ...

    @property
    def principal(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def operation(self) -> int: ...

    @property
    def permission_type(self) -> int: ...


class DeleteAclsMatchingAclFields(TypedDict):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: NotRequired[int]
    principal: str
    host: str
    operation: int
    permission_type: int
