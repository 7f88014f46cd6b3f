"""The messages of ElectLeaders, versions 0 to 2.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict


class ElectLeadersRequest(Protocol):
    @property
    def topic_partitions(self) -> tuple[TopicPartitions, ...] | None: ...

    @property
    def timeout(self) -> timedelta: ...

    @property
    def election_type(self) -> int: ...


class ElectLeadersRequestFields(TypedDict):
    topic_partitions: Sequence[TopicPartitionsFields] | None
    timeout: NotRequired[int]  # ms
    election_type: NotRequired[int]


class TopicPartitions(Protocol):
    @property
    def topic(self) -> str: ...

    @property
    def partitions(self) -> tuple[int, ...]: ...


class TopicPartitionsFields(TypedDict):
    topic: str
    partitions: NotRequired[Sequence[int]]


class ElectLeadersResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def replica_election_results(self) -> tuple[ReplicaElectionResult, ...]: ...

    @property
    def error_code(self) -> int: ...


class ElectLeadersResponseFields(TypedDict):
    throttle_time: int  # ms
    replica_election_results: Sequence[ReplicaElectionResultFields]
    error_code: NotRequired[int]


class ReplicaElectionResult(Protocol):
    @property
    def topic(self) -> str: ...

    @property
    def partition_result(self) -> tuple[PartitionResult, ...]: ...


class ReplicaElectionResultFields(TypedDict):
    topic: str
    partition_result: Sequence[PartitionResultFields]


class PartitionResult(Protocol):
    @property
    def partition_id(self) -> int: ...

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...


class PartitionResultFields(TypedDict):
    partition_id: int
    error_code: int
    error_message: str | None
