"""The messages of DescribeProducers, version 0.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class DescribeProducersRequest(Protocol):
    @property
    def topics(self) -> tuple[TopicRequest, ...]: ...


class DescribeProducersRequestFields(TypedDict):
    topics: Sequence[TopicRequestFields]


class TopicRequest(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partition_indexes(self) -> tuple[int, ...]: ...


class TopicRequestFields(TypedDict):
    name: str
    partition_indexes: NotRequired[Sequence[int]]


class DescribeProducersResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def topics(self) -> tuple[TopicResponse, ...]: ...


class DescribeProducersResponseFields(TypedDict):
    throttle_time: int  # ms
    topics: Sequence[TopicResponseFields]


class TopicResponse(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[PartitionResponse, ...]: ...


class TopicResponseFields(TypedDict):
    name: str
    partitions: Sequence[PartitionResponseFields]


class PartitionResponse(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...

    @property
    def active_producers(self) -> tuple[ProducerState, ...]: ...


class PartitionResponseFields(TypedDict):
    partition_index: int
    error_code: int
    error_message: NotRequired[str | None]
    active_producers: Sequence[ProducerStateFields]


class ProducerState(Protocol):
    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...

    @property
    def last_sequence(self) -> int: ...

    @property
    def last_timestamp(self) -> int: ...

    @property
    def coordinator_epoch(self) -> int: ...

    @property
    def current_txn_start_offset(self) -> int: ...


class ProducerStateFields(TypedDict):
    producer_id: int
    producer_epoch: int
    last_sequence: NotRequired[int]
    last_timestamp: NotRequired[int]
    coordinator_epoch: int
    current_txn_start_offset: NotRequired[int]
