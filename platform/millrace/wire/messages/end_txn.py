"""The messages of EndTxn, versions 0 to 5.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class EndTxnRequest(Protocol):
    @property
    def transactional_id(self) -> str: ...

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...

    @property
    def committed(self) -> bool: ...


class EndTxnRequestFields(TypedDict):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class EndTxnResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def error_code(self) -> int: ...

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...


class EndTxnResponseFields(TypedDict):
    throttle_time: int  # ms
    error_code: int
    producer_id: NotRequired[int]
    producer_epoch: NotRequired[int]
