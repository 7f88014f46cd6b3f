"""The messages of InitProducerId, versions 0 to 5.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class InitProducerIdRequest(Protocol):
    @property
    def transactional_id(self) -> str | None: ...

    @property
    def transaction_timeout(self) -> timedelta: ...

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...


class InitProducerIdRequestFields(TypedDict):
    transactional_id: str | None
    transaction_timeout: int  # ms
    producer_id: NotRequired[int]
    producer_epoch: NotRequired[int]


class InitProducerIdResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def error_code(self) -> int: ...

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...


class InitProducerIdResponseFields(TypedDict):
    throttle_time: int  # ms
    error_code: int
    producer_id: NotRequired[int]
    producer_epoch: int
