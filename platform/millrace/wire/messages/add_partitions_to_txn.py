"""The messages of AddPartitionsToTxn, versions 0 to 5.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class AddPartitionsToTxnRequest(Protocol):
    @property
    def v3_and_below_transactional_id(self) -> str: ...

    @property
    def v3_and_below_producer_id(self) -> int: ...

    @property
    def v3_and_below_producer_epoch(self) -> int: ...

    @property
    def v3_and_below_topics(self) -> tuple[AddPartitionsToTxnTopic, ...]: ...

    @property
    def transactions(self) -> tuple[AddPartitionsToTxnTransaction, ...]: ...


class AddPartitionsToTxnRequestFields(TypedDict):
    v3_and_below_transactional_id: NotRequired[str]
    v3_and_below_producer_id: NotRequired[int]
    v3_and_below_producer_epoch: NotRequired[int]
    v3_and_below_topics: NotRequired[Sequence[AddPartitionsToTxnTopicFields]]
    transactions: NotRequired[Sequence[AddPartitionsToTxnTransactionFields]]


class AddPartitionsToTxnTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[int, ...]: ...


class AddPartitionsToTxnTopicFields(TypedDict):
    name: str
    partitions: NotRequired[Sequence[int]]


class AddPartitionsToTxnTransaction(Protocol):
    @property
    def transactional_id(self) -> str: ...

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...

    @property
    def verify_only(self) -> bool: ...

    @property
    def topics(self) -> tuple[AddPartitionsToTxnTopic, ...]: ...


class AddPartitionsToTxnTransactionFields(TypedDict):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: NotRequired[bool]
    topics: Sequence[AddPartitionsToTxnTopicFields]


class AddPartitionsToTxnResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def results_by_topic_v3_and_below(self) -> tuple[AddPartitionsToTxnTopicResult, ...]: ...

    @property
    def error_code(self) -> int: ...

    @property
    def results_by_transaction(self) -> tuple[AddPartitionsToTxnResult, ...]: ...


class AddPartitionsToTxnResponseFields(TypedDict):
    throttle_time: int  # ms
    results_by_topic_v3_and_below: NotRequired[Sequence[AddPartitionsToTxnTopicResultFields]]
    error_code: NotRequired[int]
    results_by_transaction: NotRequired[Sequence[AddPartitionsToTxnResultFields]]


class AddPartitionsToTxnTopicResult(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def results_by_partition(self) -> tuple[AddPartitionsToTxnPartitionResult, ...]: ...


class AddPartitionsToTxnTopicResultFields(TypedDict):
    name: str
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResultFields]


class AddPartitionsToTxnPartitionResult(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def partition_error_code(self) -> int: ...


class AddPartitionsToTxnPartitionResultFields(TypedDict):
    partition_index: int
    partition_error_code: int


class AddPartitionsToTxnResult(Protocol):
    @property
    def transactional_id(self) -> str: ...

    @property
    def topic_results(self) -> tuple[AddPartitionsToTxnTopicResult, ...]: ...


class AddPartitionsToTxnResultFields(TypedDict):
    transactional_id: str
    topic_results: Sequence[AddPartitionsToTxnTopicResultFields]
