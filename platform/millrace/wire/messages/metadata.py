"""The messages of Metadata, versions 0 to 13.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict
from uuid import UUID


class MetadataRequest(Protocol):
    @property
    def topics(self) -> tuple[MetadataRequestTopic, ...] | None: ...

    @property
    def allow_auto_topic_creation(self) -> bool: ...

    @property
    def include_cluster_authorized_operations(self) -> bool: ...

    @property
    def include_topic_authorized_operations(self) -> bool: ...


class MetadataRequestFields(TypedDict):
    topics: Sequence[MetadataRequestTopicFields] | None
    allow_auto_topic_creation: NotRequired[bool]
    include_cluster_authorized_operations: NotRequired[bool]
    include_topic_authorized_operations: NotRequired[bool]


class MetadataRequestTopic(Protocol):
    @property
    def name(self) -> str | None: ...

    @property
    def topic_id(self) -> UUID | None: ...


class MetadataRequestTopicFields(TypedDict):
    name: str | None
    topic_id: NotRequired[UUID | None]


class MetadataResponse(Protocol):
    @property
    def brokers(self) -> tuple[MetadataResponseBroker, ...]: ...

    @property
    def topics(self) -> tuple[MetadataResponseTopic, ...]: ...

    @property
    def controller_id(self) -> int: ...

    @property
    def cluster_id(self) -> str | None: ...

    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def cluster_authorized_operations(self) -> int: ...

    @property
    def error_code(self) -> int: ...


class MetadataResponseFields(TypedDict):
    brokers: Sequence[MetadataResponseBrokerFields]
    topics: Sequence[MetadataResponseTopicFields]
    controller_id: NotRequired[int]
    cluster_id: NotRequired[str | None]
    throttle_time: NotRequired[int]  # ms
    cluster_authorized_operations: NotRequired[int]
    error_code: NotRequired[int]


class MetadataResponseBroker(Protocol):
    @property
    def node_id(self) -> int: ...

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def rack(self) -> str | None: ...


class MetadataResponseBrokerFields(TypedDict):
    node_id: int
    host: str
    port: int
    rack: NotRequired[str | None]


class MetadataResponseTopic(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def name(self) -> str | None: ...

    @property
    def partitions(self) -> tuple[MetadataResponsePartition, ...]: ...

    @property
    def is_internal(self) -> bool: ...

    @property
    def topic_authorized_operations(self) -> int: ...

    @property
    def topic_id(self) -> UUID | None: ...


class MetadataResponseTopicFields(TypedDict):
    error_code: int
    name: str | None
    partitions: Sequence[MetadataResponsePartitionFields]
    is_internal: NotRequired[bool]
    topic_authorized_operations: NotRequired[int]
    topic_id: NotRequired[UUID | None]


class MetadataResponsePartition(Protocol):
    @property
    def error_code(self) -> int: ...

    @property
    def partition_index(self) -> int: ...

    @property
    def leader_id(self) -> int: ...

    @property
    def replica_nodes(self) -> tuple[int, ...]: ...

    @property
    def isr_nodes(self) -> tuple[int, ...]: ...

    @property
    def offline_replicas(self) -> tuple[int, ...]: ...

    @property
    def leader_epoch(self) -> int: ...


class MetadataResponsePartitionFields(TypedDict):
    error_code: int
    partition_index: int
    leader_id: int
    replica_nodes: NotRequired[Sequence[int]]
    isr_nodes: NotRequired[Sequence[int]]
    offline_replicas: NotRequired[Sequence[int]]
    leader_epoch: NotRequired[int]
