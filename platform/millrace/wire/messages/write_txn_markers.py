"""The messages of WriteTxnMarkers, version 1.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, Protocol, TypedDict


class WriteTxnMarkersRequest(Protocol):
    @property
    def markers(self) -> tuple[WritableTxnMarker, ...]: ...


class WriteTxnMarkersRequestFields(TypedDict):
    markers: Sequence[WritableTxnMarkerFields]


class WritableTxnMarker(Protocol):
    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...

    @property
    def transaction_result(self) -> bool: ...

    @property
    def topics(self) -> tuple[WritableTxnMarkerTopic, ...]: ...

    @property
    def coordinator_epoch(self) -> int: ...


class WritableTxnMarkerFields(TypedDict):
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: Sequence[WritableTxnMarkerTopicFields]
    coordinator_epoch: int


class WritableTxnMarkerTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partition_indexes(self) -> tuple[int, ...]: ...


class WritableTxnMarkerTopicFields(TypedDict):
    name: str
    partition_indexes: NotRequired[Sequence[int]]


class WriteTxnMarkersResponse(Protocol):
    @property
    def markers(self) -> tuple[WritableTxnMarkerResult, ...]: ...


class WriteTxnMarkersResponseFields(TypedDict):
    markers: Sequence[WritableTxnMarkerResultFields]


class WritableTxnMarkerResult(Protocol):
    @property
    def producer_id(self) -> int: ...

    @property
    def topics(self) -> tuple[WritableTxnMarkerTopicResult, ...]: ...


class WritableTxnMarkerResultFields(TypedDict):
    producer_id: int
    topics: Sequence[WritableTxnMarkerTopicResultFields]


class WritableTxnMarkerTopicResult(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[WritableTxnMarkerPartitionResult, ...]: ...


class WritableTxnMarkerTopicResultFields(TypedDict):
    name: str
    partitions: Sequence[WritableTxnMarkerPartitionResultFields]


class WritableTxnMarkerPartitionResult(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def error_code(self) -> int: ...


class WritableTxnMarkerPartitionResultFields(TypedDict):
    partition_index: int
    error_code: int
