"""The messages of ListTransactions, versions 0 to 2.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class ListTransactionsRequest(Protocol):
    @property
    def state_filters(self) -> tuple[str, ...]: ...

    @property
    def producer_id_filters(self) -> tuple[int, ...]: ...

    @property
    def duration_filter(self) -> int: ...

    @property
    def transactional_id_pattern(self) -> str | None: ...


class ListTransactionsRequestFields(TypedDict):
    state_filters: NotRequired[Sequence[str]]
    producer_id_filters: NotRequired[Sequence[int]]
    duration_filter: NotRequired[int]
    transactional_id_pattern: NotRequired[str | None]


class ListTransactionsResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def error_code(self) -> int: ...

    @property
    def unknown_state_filters(self) -> tuple[str, ...]: ...

    @property
    def transaction_states(self) -> tuple[TransactionState, ...]: ...


class ListTransactionsResponseFields(TypedDict):
    throttle_time: int  # ms
    error_code: int
    unknown_state_filters: NotRequired[Sequence[str]]
    transaction_states: Sequence[TransactionStateFields]


class TransactionState(Protocol):
    @property
    def transactional_id(self) -> str: ...

    @property
    def producer_id(self) -> int: ...

    @property
    def transaction_state(self) -> str: ...


class TransactionStateFields(TypedDict):
    transactional_id: str
    producer_id: int
    transaction_state: str
