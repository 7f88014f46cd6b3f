"""The messages of ControlledShutdown, versions 0 to 3.

Made by `python -m millrace_ops.message_types` from `millrace.wire.controller_apis`; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, Protocol, TypedDict


class ControlledShutdownRequest(Protocol):
    @property
    def broker_id(self) -> int: ...

    @property
    def broker_epoch(self) -> int: ...


class ControlledShutdownRequestFields(TypedDict):
    broker_id: int
    broker_epoch: NotRequired[int]


class ControlledShutdownResponse(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def remaining_partitions(self) -> tuple[RemainingPartition, ...]: ...


class ControlledShutdownResponseFields(TypedDict):
    error_code: int
    remaining_partitions: Sequence[RemainingPartitionFields]


class RemainingPartition(Protocol):
    @property
    def topic_name(self) -> str: ...

    @property
    def partition_index(self) -> int: ...


class RemainingPartitionFields(TypedDict):
    topic_name: str
    partition_index: int
