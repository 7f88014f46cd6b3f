"""The messages of CreateAcls, versions 1 to 3.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class CreateAclsRequest(Protocol):
    @property
    def creations(self) -> tuple[AclCreation, ...]: ...


class CreateAclsRequestFields(TypedDict):
    creations: Sequence[AclCreationFields]


class AclCreation(Protocol):
    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...

    @property
    def resource_pattern_type(self) -> int: ...

    @property
    def principal(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def operation(self) -> int: ...

    @property
    def permission_type(self) -> int: ...


class AclCreationFields(TypedDict):
    resource_type: int
    resource_name: str
    resource_pattern_type: NotRequired[int]
    principal: str
    host: str
    operation: int
    permission_type: int


class CreateAclsResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def results(self) -> tuple[AclCreationResult, ...]: ...


class CreateAclsResponseFields(TypedDict):
    throttle_time: int  # ms
    results: Sequence[AclCreationResultFields]


class AclCreationResult(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...


class AclCreationResultFields(TypedDict):
    error_code: int
    error_message: str | None
