"""The messages of Produce, versions 3 to 13.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NotRequired, Protocol, TypedDict
from uuid import UUID


class ProduceRequest(Protocol):
    @property
    def transactional_id(self) -> str | None: ...

    @property
    def acks(self) -> int: ...

    @property
    def timeout(self) -> timedelta: ...

    @property
    def topic_data(self) -> tuple[TopicProduceData, ...]: ...


class ProduceRequestFields(TypedDict):
    transactional_id: NotRequired[str | None]
    acks: int
    timeout: int  # ms
    topic_data: Sequence[TopicProduceDataFields]


class TopicProduceData(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partition_data(self) -> tuple[PartitionProduceData, ...]: ...

    @property
    def topic_id(self) -> UUID | None: ...


class TopicProduceDataFields(TypedDict):
    name: NotRequired[str]
    partition_data: Sequence[PartitionProduceDataFields]
    topic_id: NotRequired[UUID | None]


class PartitionProduceData(Protocol):
    @property
    def index(self) -> int: ...

    @property
    def records(self) -> bytes | None: ...


class PartitionProduceDataFields(TypedDict):
    index: int
    records: bytes | None


class ProduceResponse(Protocol):
    @property
    def responses(self) -> tuple[TopicProduceResponse, ...]: ...

    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def node_endpoints(self) -> tuple[NodeEndpoint, ...]: ...


class ProduceResponseFields(TypedDict):
    responses: Sequence[TopicProduceResponseFields]
    throttle_time: NotRequired[int]  # ms
    node_endpoints: NotRequired[Sequence[NodeEndpointFields]]


class TopicProduceResponse(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partition_responses(self) -> tuple[PartitionProduceResponse, ...]: ...

    @property
    def topic_id(self) -> UUID | None: ...


class TopicProduceResponseFields(TypedDict):
    name: NotRequired[str]
    partition_responses: Sequence[PartitionProduceResponseFields]
    topic_id: NotRequired[UUID | None]


class PartitionProduceResponse(Protocol):
    @property
    def index(self) -> int: ...

    @property
    def error_code(self) -> int: ...

    @property
    def base_offset(self) -> int: ...

    @property
    def log_append_time(self) -> datetime | None: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def record_errors(self) -> tuple[BatchIndexAndErrorMessage, ...]: ...

    @property
    def error_message(self) -> str | None: ...

    @property
    def current_leader(self) -> LeaderIdAndEpoch | None: ...


class PartitionProduceResponseFields(TypedDict):
    index: int
    error_code: int
    base_offset: int
    log_append_time: NotRequired[datetime | None]
    log_start_offset: NotRequired[int]
    record_errors: NotRequired[Sequence[BatchIndexAndErrorMessageFields]]
    error_message: NotRequired[str | None]
    current_leader: NotRequired[LeaderIdAndEpochFields]


class BatchIndexAndErrorMessage(Protocol):
    @property
    def batch_index(self) -> int: ...

    @property
    def batch_index_error_message(self) -> str | None: ...


class BatchIndexAndErrorMessageFields(TypedDict):
    batch_index: int
    batch_index_error_message: NotRequired[str | None]


class LeaderIdAndEpoch(Protocol):
    @property
    def leader_id(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...


class LeaderIdAndEpochFields(TypedDict):
    leader_id: NotRequired[int]
    leader_epoch: NotRequired[int]


class NodeEndpoint(Protocol):
    @property
    def node_id(self) -> int: ...

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def rack(self) -> str | None: ...


class NodeEndpointFields(TypedDict):
    node_id: int
    host: str
    port: int
    rack: NotRequired[str | None]
