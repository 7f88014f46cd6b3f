"""The messages of DescribeConfigs, versions 1 to 4.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class DescribeConfigsRequest(Protocol):
    @property
    def resources(self) -> tuple[DescribeConfigsResource, ...]: ...

    @property
    def include_synonyms(self) -> bool: ...

    @property
    def include_documentation(self) -> bool: ...


class DescribeConfigsRequestFields(TypedDict):
    resources: Sequence[DescribeConfigsResourceFields]
    include_synonyms: NotRequired[bool]
    include_documentation: NotRequired[bool]


class DescribeConfigsResource(Protocol):
    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...

    @property
    def configuration_keys(self) -> tuple[str, ...] | None: ...


class DescribeConfigsResourceFields(TypedDict):
    resource_type: int
    resource_name: str
    configuration_keys: NotRequired[Sequence[str] | None]


class DescribeConfigsResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def results(self) -> tuple[DescribeConfigsResult, ...]: ...


class DescribeConfigsResponseFields(TypedDict):
    throttle_time: int  # ms
    results: Sequence[DescribeConfigsResultFields]


class DescribeConfigsResult(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...

    @property
    def configs(self) -> tuple[DescribeConfigsResourceResult, ...]: ...


class DescribeConfigsResultFields(TypedDict):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: Sequence[DescribeConfigsResourceResultFields]


class DescribeConfigsResourceResult(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def value(self) -> str | None: ...

    @property
    def read_only(self) -> bool: ...

    @property
    def config_source(self) -> int: ...

    @property
    def is_sensitive(self) -> bool: ...

    @property
    def synonyms(self) -> tuple[DescribeConfigsSynonym, ...]: ...

    @property
    def config_type(self) -> int: ...

    @property
    def documentation(self) -> str | None: ...


class DescribeConfigsResourceResultFields(TypedDict):
    name: str
    value: str | None
    read_only: bool
    config_source: NotRequired[int]
    is_sensitive: bool
    synonyms: Sequence[DescribeConfigsSynonymFields]
    config_type: NotRequired[int]
    documentation: NotRequired[str | None]


class DescribeConfigsSynonym(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def value(self) -> str | None: ...

    @property
    def source(self) -> int: ...


class DescribeConfigsSynonymFields(TypedDict):
    name: str
    value: str | None
    source: int
