"""The messages of AllocateProducerIds, version 0.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class AllocateProducerIdsRequest(Protocol):
    @property
    def broker_id(self) -> int: ...

    @property
    def broker_epoch(self) -> int: ...


class AllocateProducerIdsRequestFields(TypedDict):
    broker_id: int
    broker_epoch: NotRequired[int]


class AllocateProducerIdsResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def error_code(self) -> int: ...

    @property
    def producer_id_start(self) -> int: ...

    @property
    def producer_id_len(self) -> int: ...


class AllocateProducerIdsResponseFields(TypedDict):
    throttle_time: int  # ms
    error_code: int
    producer_id_start: int
    producer_id_len: int
