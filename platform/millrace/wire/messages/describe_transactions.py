"""The messages of DescribeTransactions, version 0.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NotRequired, Protocol, TypedDict


class DescribeTransactionsRequest(Protocol):
    @property
    def transactional_ids(self) -> tuple[str, ...]: ...


class DescribeTransactionsRequestFields(TypedDict):
    transactional_ids: NotRequired[Sequence[str]]


class DescribeTransactionsResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def transaction_states(self) -> tuple[TransactionState, ...]: ...


class DescribeTransactionsResponseFields(TypedDict):
    throttle_time: int  # ms
    transaction_states: Sequence[TransactionStateFields]


class TransactionState(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def transactional_id(self) -> str: ...

    @property
    def transaction_state(self) -> str: ...

    @property
    def transaction_timeout(self) -> timedelta: ...

    @property
    def transaction_start_time(self) -> datetime: ...

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...

    @property
    def topics(self) -> tuple[TopicData, ...]: ...


class TransactionStateFields(TypedDict):
    error_code: int
    transactional_id: str
    transaction_state: str
    transaction_timeout: int  # ms
    transaction_start_time: datetime
    producer_id: int
    producer_epoch: int
    topics: Sequence[TopicDataFields]


class TopicData(Protocol):
    @property
    def topic(self) -> str: ...

    @property
    def partitions(self) -> tuple[int, ...]: ...


class TopicDataFields(TypedDict):
    topic: str
    partitions: NotRequired[Sequence[int]]
