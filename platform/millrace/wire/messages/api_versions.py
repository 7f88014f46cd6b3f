"""The messages of ApiVersions, versions 0 to 4.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class ApiVersionsRequest(Protocol):
    @property
    def client_software_name(self) -> str: ...

    @property
    def client_software_version(self) -> str: ...


class ApiVersionsRequestFields(TypedDict):
    client_software_name: NotRequired[str]
    client_software_version: NotRequired[str]


class ApiVersionsResponse(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def api_keys(self) -> tuple[ApiVersion, ...]: ...

    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def supported_features(self) -> tuple[SupportedFeatureKey, ...]: ...

    @property
    def finalized_features_epoch(self) -> int: ...

    @property
    def finalized_features(self) -> tuple[FinalizedFeatureKey, ...]: ...

    @property
    def zk_migration_ready(self) -> bool: ...


class ApiVersionsResponseFields(TypedDict):
    error_code: int
    api_keys: Sequence[ApiVersionFields]
    throttle_time: NotRequired[int]  # ms
    supported_features: NotRequired[Sequence[SupportedFeatureKeyFields]]
    finalized_features_epoch: NotRequired[int]
    finalized_features: NotRequired[Sequence[FinalizedFeatureKeyFields]]
    zk_migration_ready: NotRequired[bool]


class ApiVersion(Protocol):
    @property
    def api_key(self) -> int: ...

    @property
    def min_version(self) -> int: ...

    @property
    def max_version(self) -> int: ...


class ApiVersionFields(TypedDict):
    api_key: int
    min_version: int
    max_version: int


class SupportedFeatureKey(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def min_version(self) -> int: ...

    @property
    def max_version(self) -> int: ...


class SupportedFeatureKeyFields(TypedDict):
    name: str
    min_version: int
    max_version: int


class FinalizedFeatureKey(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def max_version_level(self) -> int: ...

    @property
    def min_version_level(self) -> int: ...


class FinalizedFeatureKeyFields(TypedDict):
    name: str
    max_version_level: int
    min_version_level: int
