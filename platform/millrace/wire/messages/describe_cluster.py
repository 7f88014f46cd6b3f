"""The messages of DescribeCluster, versions 0 to 2.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class DescribeClusterRequest(Protocol):
    @property
    def include_cluster_authorized_operations(self) -> bool: ...

    @property
    def endpoint_type(self) -> int: ...

    @property
    def include_fenced_brokers(self) -> bool: ...


class DescribeClusterRequestFields(TypedDict):
    include_cluster_authorized_operations: bool
    endpoint_type: NotRequired[int]
    include_fenced_brokers: NotRequired[bool]


class DescribeClusterResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def controller_id(self) -> int: ...

    @property
    def brokers(self) -> tuple[DescribeClusterBroker, ...]: ...

    @property
    def cluster_authorized_operations(self) -> int: ...

    @property
    def endpoint_type(self) -> int: ...


class DescribeClusterResponseFields(TypedDict):
    throttle_time: int  # ms
    error_code: int
    error_message: NotRequired[str | None]
    cluster_id: str
    controller_id: NotRequired[int]
    brokers: Sequence[DescribeClusterBrokerFields]
    cluster_authorized_operations: NotRequired[int]
    endpoint_type: NotRequired[int]


class DescribeClusterBroker(Protocol):
    @property
    def broker_id(self) -> int: ...

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def rack(self) -> str | None: ...

    @property
    def is_fenced(self) -> bool: ...


class DescribeClusterBrokerFields(TypedDict):
    broker_id: int
    host: str
    port: int
    rack: NotRequired[str | None]
    is_fenced: NotRequired[bool]
