"""The messages of LeaderAndIsr, versions 0 to 7.

Made by `python -m millrace_ops.message_types` from `millrace.wire.controller_apis`; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, Protocol, TypedDict
from uuid import UUID


class LeaderAndIsrRequest(Protocol):
    @property
    def controller_id(self) -> int: ...

    @property
    def controller_epoch(self) -> int: ...

    @property
    def ungrouped_partition_states(self) -> tuple[LeaderAndIsrPartitionState, ...]: ...

    @property
    def live_leaders(self) -> tuple[LeaderAndIsrLiveLeader, ...]: ...

    @property
    def broker_epoch(self) -> int: ...

    @property
    def topic_states(self) -> tuple[LeaderAndIsrTopicState, ...]: ...

    @property
    def type(self) -> int: ...

    @property
    def is_kraft_controller(self) -> bool: ...


class LeaderAndIsrRequestFields(TypedDict):
    controller_id: int
    controller_epoch: int
    ungrouped_partition_states: NotRequired[Sequence[LeaderAndIsrPartitionStateFields]]
    live_leaders: Sequence[LeaderAndIsrLiveLeaderFields]
    broker_epoch: NotRequired[int]
    topic_states: NotRequired[Sequence[LeaderAndIsrTopicStateFields]]
    type: NotRequired[int]
    is_kraft_controller: NotRequired[bool]


class LeaderAndIsrPartitionState(Protocol):
    @property
    def topic_name(self) -> str: ...

    @property
    def partition_index(self) -> int: ...

    @property
    def controller_epoch(self) -> int: ...

    @property
    def leader(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def isr(self) -> tuple[int, ...]: ...

    @property
    def partition_epoch(self) -> int: ...

    @property
    def replicas(self) -> tuple[int, ...]: ...

    @property
    def is_new(self) -> bool: ...

    @property
    def adding_replicas(self) -> tuple[int, ...]: ...

    @property
    def removing_replicas(self) -> tuple[int, ...]: ...

    @property
    def leader_recovery_state(self) -> int: ...


class LeaderAndIsrPartitionStateFields(TypedDict):
    topic_name: NotRequired[str]
    partition_index: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: Sequence[int]
    partition_epoch: int
    replicas: Sequence[int]
    is_new: NotRequired[bool]
    adding_replicas: NotRequired[Sequence[int]]
    removing_replicas: NotRequired[Sequence[int]]
    leader_recovery_state: NotRequired[int]


class LeaderAndIsrLiveLeader(Protocol):
    @property
    def broker_id(self) -> int: ...

    @property
    def host_name(self) -> str: ...

    @property
    def port(self) -> int: ...


class LeaderAndIsrLiveLeaderFields(TypedDict):
    broker_id: int
    host_name: str
    port: int


class LeaderAndIsrTopicState(Protocol):
    @property
    def topic_name(self) -> str: ...

    @property
    def partition_states(self) -> tuple[LeaderAndIsrPartitionState, ...]: ...

    @property
    def topic_id(self) -> UUID | None: ...


class LeaderAndIsrTopicStateFields(TypedDict):
    topic_name: str
    partition_states: Sequence[LeaderAndIsrPartitionStateFields]
    topic_id: NotRequired[UUID | None]


class LeaderAndIsrResponse(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def partition_errors(self) -> tuple[LeaderAndIsrPartitionError, ...]: ...

    @property
    def topics(self) -> tuple[LeaderAndIsrTopicError, ...]: ...


class LeaderAndIsrResponseFields(TypedDict):
    error_code: int
    partition_errors: NotRequired[Sequence[LeaderAndIsrPartitionErrorFields]]
    topics: NotRequired[Sequence[LeaderAndIsrTopicErrorFields]]


class LeaderAndIsrPartitionError(Protocol):
    @property
    def topic_name(self) -> str: ...

    @property
    def partition_index(self) -> int: ...

    @property
    def error_code(self) -> int: ...


class LeaderAndIsrPartitionErrorFields(TypedDict):
    topic_name: NotRequired[str]
    partition_index: int
    error_code: int


class LeaderAndIsrTopicError(Protocol):
    @property
    def topic_id(self) -> UUID | None: ...

    @property
    def partition_errors(self) -> tuple[LeaderAndIsrPartitionError, ...]: ...


class LeaderAndIsrTopicErrorFields(TypedDict):
    topic_id: UUID | None
    partition_errors: Sequence[LeaderAndIsrPartitionErrorFields]
