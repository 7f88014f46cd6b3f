"""The messages of Fetch, versions 4 to 18.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict
from uuid import UUID


class FetchRequest(Protocol):
    @property
    def replica_id(self) -> int: ...

    @property
    def max_wait(self) -> timedelta: ...

    @property
    def min_bytes(self) -> int: ...

    @property
    def max_bytes(self) -> int: ...

    @property
    def isolation_level(self) -> int: ...

    @property
    def topics(self) -> tuple[FetchTopic, ...]: ...

    @property
    def session_id(self) -> int: ...

    @property
    def session_epoch(self) -> int: ...

    @property
    def forgotten_topics_data(self) -> tuple[ForgottenTopic, ...]: ...

    @property
    def rack_id(self) -> str: ...

    @property
    def cluster_id(self) -> str | None: ...

    @property
    def replica_state(self) -> ReplicaState | None: ...


class FetchRequestFields(TypedDict):
    replica_id: NotRequired[int]
    max_wait: int  # ms
    min_bytes: int
    max_bytes: NotRequired[int]
    isolation_level: NotRequired[int]
    topics: Sequence[FetchTopicFields]
    session_id: NotRequired[int]
    session_epoch: NotRequired[int]
    forgotten_topics_data: NotRequired[Sequence[ForgottenTopicFields]]
    rack_id: NotRequired[str]
    cluster_id: NotRequired[str | None]
    replica_state: NotRequired[ReplicaStateFields]


class FetchTopic(Protocol):
    @property
    def topic(self) -> str: ...

    @property
    def partitions(self) -> tuple[FetchPartition, ...]: ...

    @property
    def topic_id(self) -> UUID | None: ...


class FetchTopicFields(TypedDict):
    topic: NotRequired[str]
    partitions: Sequence[FetchPartitionFields]
    topic_id: NotRequired[UUID | None]


class FetchPartition(Protocol):
    @property
    def partition(self) -> int: ...

    @property
    def fetch_offset(self) -> int: ...

    @property
    def partition_max_bytes(self) -> int: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def current_leader_epoch(self) -> int: ...

    @property
    def last_fetched_epoch(self) -> int: ...

    @property
    def replica_directory_id(self) -> UUID | None: ...

    @property
    def high_watermark(self) -> int: ...


class FetchPartitionFields(TypedDict):
    partition: int
    fetch_offset: int
    partition_max_bytes: int
    log_start_offset: NotRequired[int]
    current_leader_epoch: NotRequired[int]
    last_fetched_epoch: NotRequired[int]
    replica_directory_id: NotRequired[UUID | None]
    high_watermark: NotRequired[int]


class ForgottenTopic(Protocol):
    @property
    def topic(self) -> str: ...

    @property
    def partitions(self) -> tuple[int, ...]: ...

    @property
    def topic_id(self) -> UUID | None: ...


class ForgottenTopicFields(TypedDict):
    topic: NotRequired[str]
    partitions: NotRequired[Sequence[int]]
    topic_id: NotRequired[UUID | None]


class ReplicaState(Protocol):
    @property
    def replica_id(self) -> int: ...

    @property
    def replica_epoch(self) -> int: ...


class ReplicaStateFields(TypedDict):
    replica_id: NotRequired[int]
    replica_epoch: NotRequired[int]


class FetchResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def responses(self) -> tuple[FetchableTopicResponse, ...]: ...

    @property
    def error_code(self) -> int: ...

    @property
    def session_id(self) -> int: ...

    @property
    def node_endpoints(self) -> tuple[NodeEndpoint, ...]: ...


class FetchResponseFields(TypedDict):
    throttle_time: int  # ms
    responses: Sequence[FetchableTopicResponseFields]
    error_code: NotRequired[int]
    session_id: NotRequired[int]
    node_endpoints: NotRequired[Sequence[NodeEndpointFields]]


class FetchableTopicResponse(Protocol):
    @property
    def topic(self) -> str: ...

    @property
    def partitions(self) -> tuple[PartitionData, ...]: ...

    @property
    def topic_id(self) -> UUID | None: ...


class FetchableTopicResponseFields(TypedDict):
    topic: NotRequired[str]
    partitions: Sequence[PartitionDataFields]
    topic_id: NotRequired[UUID | None]


class PartitionData(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def error_code(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def last_stable_offset(self) -> int: ...

    @property
    def aborted_transactions(self) -> tuple[AbortedTransaction, ...] | None: ...

    @property
    def records(self) -> bytes | None: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def preferred_read_replica(self) -> int: ...

    @property
    def diverging_epoch(self) -> EpochEndOffset | None: ...

    @property
    def current_leader(self) -> LeaderIdAndEpoch | None: ...

    @property
    def snapshot_id(self) -> SnapshotId | None: ...


class PartitionDataFields(TypedDict):
    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: NotRequired[int]
    aborted_transactions: Sequence[AbortedTransactionFields] | None
    records: bytes | None
    log_start_offset: NotRequired[int]
    preferred_read_replica: NotRequired[int]
    diverging_epoch: NotRequired[EpochEndOffsetFields]
    current_leader: NotRequired[LeaderIdAndEpochFields]
    snapshot_id: NotRequired[SnapshotIdFields]


class AbortedTransaction(Protocol):
    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...


class AbortedTransactionFields(TypedDict):
    producer_id: int
    first_offset: int


class EpochEndOffset(Protocol):
    @property
    def epoch(self) -> int: ...

    @property
    def end_offset(self) -> int: ...


class EpochEndOffsetFields(TypedDict):
    epoch: NotRequired[int]
    end_offset: NotRequired[int]


class LeaderIdAndEpoch(Protocol):
    @property
    def leader_id(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...


class LeaderIdAndEpochFields(TypedDict):
    leader_id: NotRequired[int]
    leader_epoch: NotRequired[int]


class SnapshotId(Protocol):
    @property
    def end_offset(self) -> int: ...

    @property
    def epoch(self) -> int: ...


class SnapshotIdFields(TypedDict):
    end_offset: NotRequired[int]
    epoch: NotRequired[int]


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
