"""The messages of AlterPartition, versions 0 to 3.

Made by `python -m millrace_ops.message_types` from `millrace.wire.controller_apis`; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, Protocol, TypedDict
from uuid import UUID


class AlterPartitionRequest(Protocol):
    @property
    def broker_id(self) -> int: ...

    @property
    def broker_epoch(self) -> int: ...

    @property
    def topics(self) -> tuple[ProposedTopic, ...]: ...


class AlterPartitionRequestFields(TypedDict):
    broker_id: int
    broker_epoch: NotRequired[int]
    topics: Sequence[ProposedTopicFields]


class ProposedTopic(Protocol):
    @property
    def topic_name(self) -> str: ...

    @property
    def partitions(self) -> tuple[ProposedPartition, ...]: ...

    @property
    def topic_id(self) -> UUID | None: ...


class ProposedTopicFields(TypedDict):
    topic_name: NotRequired[str]
    partitions: Sequence[ProposedPartitionFields]
    topic_id: NotRequired[UUID | None]


class ProposedPartition(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def new_isr(self) -> tuple[int, ...]: ...

    @property
    def partition_epoch(self) -> int: ...

    @property
    def leader_recovery_state(self) -> int: ...

    @property
    def new_isr_with_epochs(self) -> tuple[BrokerState, ...]: ...


class ProposedPartitionFields(TypedDict):
    partition_index: int
    leader_epoch: int
    new_isr: NotRequired[Sequence[int]]
    partition_epoch: int
    leader_recovery_state: NotRequired[int]
    new_isr_with_epochs: NotRequired[Sequence[BrokerStateFields]]


class BrokerState(Protocol):
    @property
    def broker_id(self) -> int: ...

    @property
    def broker_epoch(self) -> int: ...


class BrokerStateFields(TypedDict):
    broker_id: int
    broker_epoch: NotRequired[int]


class AlterPartitionResponse(Protocol):
    @property
    def throttle_time_ms(self) -> int: ...

    @property
    def error_code(self) -> int: ...

    @property
    def topics(self) -> tuple[AlteredTopic, ...]: ...


class AlterPartitionResponseFields(TypedDict):
    throttle_time_ms: int
    error_code: int
    topics: Sequence[AlteredTopicFields]


class AlteredTopic(Protocol):
    @property
    def topic_name(self) -> str: ...

    @property
    def partitions(self) -> tuple[AlteredPartition, ...]: ...

    @property
    def topic_id(self) -> UUID | None: ...


class AlteredTopicFields(TypedDict):
    topic_name: NotRequired[str]
    partitions: Sequence[AlteredPartitionFields]
    topic_id: NotRequired[UUID | None]


class AlteredPartition(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def error_code(self) -> int: ...

    @property
    def leader_id(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def isr(self) -> tuple[int, ...]: ...

    @property
    def partition_epoch(self) -> int: ...

    @property
    def leader_recovery_state(self) -> int: ...


class AlteredPartitionFields(TypedDict):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    isr: Sequence[int]
    partition_epoch: int
    leader_recovery_state: NotRequired[int]
