"""The messages of AddOffsetsToTxn, versions 0 to 4.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol, TypedDict


class AddOffsetsToTxnRequest(Protocol):
    @property
    def transactional_id(self) -> str: ...

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...

    @property
    def group_id(self) -> str: ...


class AddOffsetsToTxnRequestFields(TypedDict):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class AddOffsetsToTxnResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def error_code(self) -> int: ...


class AddOffsetsToTxnResponseFields(TypedDict):
    throttle_time: int  # ms
    error_code: int
