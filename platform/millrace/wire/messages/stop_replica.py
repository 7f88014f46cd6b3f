"""The messages of StopReplica, versions 0 to 4.

Made by `python -m millrace_ops.message_types` from `millrace.wire.controller_apis`; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, Protocol, TypedDict


class StopReplicaRequest(Protocol):
    @property
    def controller_id(self) -> int: ...

    @property
    def controller_epoch(self) -> int: ...

    @property
    def delete_partitions(self) -> bool: ...

    @property
    def ungrouped_partitions(self) -> tuple[StopReplicaPartitionV0, ...]: ...

    @property
    def broker_epoch(self) -> int: ...

    @property
    def topics(self) -> tuple[StopReplicaTopicV1, ...]: ...

    @property
    def topic_states(self) -> tuple[StopReplicaTopicState, ...]: ...

    @property
    def is_kraft_controller(self) -> bool: ...


class StopReplicaRequestFields(TypedDict):
    controller_id: int
    controller_epoch: int
    delete_partitions: NotRequired[bool]
    ungrouped_partitions: NotRequired[Sequence[StopReplicaPartitionV0Fields]]
    broker_epoch: NotRequired[int]
    topics: NotRequired[Sequence[StopReplicaTopicV1Fields]]
    topic_states: NotRequired[Sequence[StopReplicaTopicStateFields]]
    is_kraft_controller: NotRequired[bool]


class StopReplicaPartitionV0(Protocol):
    @property
    def topic_name(self) -> str: ...

    @property
    def partition_index(self) -> int: ...


class StopReplicaPartitionV0Fields(TypedDict):
    topic_name: str
    partition_index: int


class StopReplicaTopicV1(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partition_indexes(self) -> tuple[int, ...]: ...


class StopReplicaTopicV1Fields(TypedDict):
    name: str
    partition_indexes: Sequence[int]


class StopReplicaTopicState(Protocol):
    @property
    def topic_name(self) -> str: ...

    @property
    def partition_states(self) -> tuple[StopReplicaPartitionState, ...]: ...


class StopReplicaTopicStateFields(TypedDict):
    topic_name: str
    partition_states: Sequence[StopReplicaPartitionStateFields]


class StopReplicaPartitionState(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def delete_partition(self) -> bool: ...


class StopReplicaPartitionStateFields(TypedDict):
    partition_index: int
    leader_epoch: NotRequired[int]
    delete_partition: bool


class StopReplicaResponse(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def partition_errors(self) -> tuple[StopReplicaPartitionError, ...]: ...


class StopReplicaResponseFields(TypedDict):
    error_code: int
    partition_errors: Sequence[StopReplicaPartitionErrorFields]


class StopReplicaPartitionError(Protocol):
    @property
    def topic_name(self) -> str: ...

    @property
    def partition_index(self) -> int: ...

    @property
    def error_code(self) -> int: ...


class StopReplicaPartitionErrorFields(TypedDict):
    topic_name: str
    partition_index: int
    error_code: int
