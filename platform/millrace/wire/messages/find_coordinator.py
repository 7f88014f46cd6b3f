"""The messages of FindCoordinator, versions 0 to 6.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class FindCoordinatorRequest(Protocol):
    @property
    def key(self) -> str: ...

    @property
    def key_type(self) -> int: ...

    @property
    def coordinator_keys(self) -> tuple[str, ...]: ...


class FindCoordinatorRequestFields(TypedDict):
    key: NotRequired[str]
    key_type: NotRequired[int]
    coordinator_keys: NotRequired[Sequence[str]]


class FindCoordinatorResponse(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def node_id(self) -> int: ...

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def error_message(self) -> str | None: ...

    @property
    def coordinators(self) -> tuple[Coordinator, ...]: ...


class FindCoordinatorResponseFields(TypedDict):
    error_code: NotRequired[int]
    node_id: NotRequired[int]
    host: NotRequired[str]
    port: NotRequired[int]
    throttle_time: NotRequired[int]  # ms
    error_message: NotRequired[str | None]
    coordinators: NotRequired[Sequence[CoordinatorFields]]


class Coordinator(Protocol):
    @property
    def key(self) -> str: ...

    @property
    def node_id(self) -> int: ...

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...


class CoordinatorFields(TypedDict):
    key: str
    node_id: int
    host: str
    port: int
    error_code: int
    error_message: str | None
