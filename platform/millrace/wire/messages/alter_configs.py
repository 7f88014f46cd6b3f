"""The messages of AlterConfigs, versions 0 to 2.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, TypedDict


class AlterConfigsRequest(Protocol):
    @property
    def resources(self) -> tuple[AlterConfigsResource, ...]: ...

    @property
    def validate_only(self) -> bool: ...


class AlterConfigsRequestFields(TypedDict):
    resources: Sequence[AlterConfigsResourceFields]
    validate_only: bool


class AlterConfigsResource(Protocol):
    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...

    @property
    def configs(self) -> tuple[AlterableConfig, ...]: ...


class AlterConfigsResourceFields(TypedDict):
    resource_type: int
    resource_name: str
    configs: Sequence[AlterableConfigFields]


class AlterableConfig(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def value(self) -> str | None: ...


class AlterableConfigFields(TypedDict):
    name: str
    value: str | None


class AlterConfigsResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def responses(self) -> tuple[AlterConfigsResourceResponse, ...]: ...


class AlterConfigsResponseFields(TypedDict):
    throttle_time: int  # ms
    responses: Sequence[AlterConfigsResourceResponseFields]


class AlterConfigsResourceResponse(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


class AlterConfigsResourceResponseFields(TypedDict):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
