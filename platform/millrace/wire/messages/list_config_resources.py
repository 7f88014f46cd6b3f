"""The messages of ListConfigResources, versions 0 to 1.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class ListConfigResourcesRequest(Protocol):
    @property
    def resource_types(self) -> tuple[int, ...]: ...


class ListConfigResourcesRequestFields(TypedDict):
    resource_types: NotRequired[Sequence[int]]


class ListConfigResourcesResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def error_code(self) -> int: ...

    @property
    def config_resources(self) -> tuple[ConfigResource, ...]: ...


class ListConfigResourcesResponseFields(TypedDict):
    throttle_time: int  # ms
    error_code: int
    config_resources: Sequence[ConfigResourceFields]


class ConfigResource(Protocol):
    @property
    def resource_name(self) -> str: ...

    @property
    def resource_type(self) -> int: ...


class ConfigResourceFields(TypedDict):
    resource_name: str
    resource_type: NotRequired[int]
