"""The messages of UpdateMetadata, versions 0 to 8.

Made by `python -m millrace_ops.message_types` from `millrace.wire.controller_apis`; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, Protocol, TypedDict
from uuid import UUID


class UpdateMetadataRequest(Protocol):
    @property
    def controller_id(self) -> int: ...

    @property
    def controller_epoch(self) -> int: ...

    @property
    def ungrouped_partition_states(self) -> tuple[UpdateMetadataPartitionState, ...]: ...

    @property
    def live_brokers(self) -> tuple[UpdateMetadataBroker, ...]: ...

    @property
    def broker_epoch(self) -> int: ...

    @property
    def topic_states(self) -> tuple[UpdateMetadataTopicState, ...]: ...

    @property
    def is_kraft_controller(self) -> bool: ...

    @property
    def type(self) -> int: ...


class UpdateMetadataRequestFields(TypedDict):
    controller_id: int
    controller_epoch: int
    ungrouped_partition_states: NotRequired[Sequence[UpdateMetadataPartitionStateFields]]
    live_brokers: Sequence[UpdateMetadataBrokerFields]
    broker_epoch: NotRequired[int]
    topic_states: NotRequired[Sequence[UpdateMetadataTopicStateFields]]
    is_kraft_controller: NotRequired[bool]
    type: NotRequired[int]


class UpdateMetadataPartitionState(Protocol):
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
    def zk_version(self) -> int: ...

    @property
    def replicas(self) -> tuple[int, ...]: ...

    @property
    def offline_replicas(self) -> tuple[int, ...]: ...


class UpdateMetadataPartitionStateFields(TypedDict):
    topic_name: NotRequired[str]
    partition_index: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: Sequence[int]
    zk_version: int
    replicas: Sequence[int]
    offline_replicas: NotRequired[Sequence[int]]


class UpdateMetadataBroker(Protocol):
    @property
    def id(self) -> int: ...

    @property
    def v0_host(self) -> str: ...

    @property
    def v0_port(self) -> int: ...

    @property
    def endpoints(self) -> tuple[UpdateMetadataEndpoint, ...]: ...

    @property
    def rack(self) -> str | None: ...


class UpdateMetadataBrokerFields(TypedDict):
    id: int
    v0_host: NotRequired[str]
    v0_port: NotRequired[int]
    endpoints: NotRequired[Sequence[UpdateMetadataEndpointFields]]
    rack: NotRequired[str | None]


class UpdateMetadataEndpoint(Protocol):
    @property
    def port(self) -> int: ...

    @property
    def host(self) -> str: ...

    @property
    def security_protocol(self) -> int: ...

    @property
    def listener(self) -> str: ...


class UpdateMetadataEndpointFields(TypedDict):
    port: int
    host: str
    security_protocol: int
    listener: NotRequired[str]


class UpdateMetadataTopicState(Protocol):
    @property
    def topic_name(self) -> str: ...

    @property
    def partition_states(self) -> tuple[UpdateMetadataPartitionState, ...]: ...

    @property
    def topic_id(self) -> UUID | None: ...


class UpdateMetadataTopicStateFields(TypedDict):
    topic_name: str
    partition_states: Sequence[UpdateMetadataPartitionStateFields]
    topic_id: NotRequired[UUID | None]


class UpdateMetadataResponse(Protocol):
    @property
    def error_code(self) -> int: ...


class UpdateMetadataResponseFields(TypedDict):
    error_code: int
