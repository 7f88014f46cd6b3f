"""The messages of CreateTopics, versions 2 to 7.

Made by `python -m millrace_ops.message_types` from kio's schemas; edit nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NotRequired, Protocol, TypedDict
from uuid import UUID


class CreateTopicsRequest(Protocol):
    @property
    def topics(self) -> tuple[CreatableTopic, ...]: ...

    @property
    def timeout(self) -> timedelta: ...

    @property
    def validate_only(self) -> bool: ...


class CreateTopicsRequestFields(TypedDict):
    topics: Sequence[CreatableTopicFields]
    timeout: NotRequired[int]  # ms
    validate_only: NotRequired[bool]


class CreatableTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def num_partitions(self) -> int: ...

    @property
    def replication_factor(self) -> int: ...

    @property
    def assignments(self) -> tuple[CreatableReplicaAssignment, ...]: ...

    @property
    def configs(self) -> tuple[CreatableTopicConfig, ...]: ...


class CreatableTopicFields(TypedDict):
    name: str
    num_partitions: int
    replication_factor: int
    assignments: Sequence[CreatableReplicaAssignmentFields]
    configs: Sequence[CreatableTopicConfigFields]


class CreatableReplicaAssignment(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def broker_ids(self) -> tuple[int, ...]: ...


class CreatableReplicaAssignmentFields(TypedDict):
    partition_index: int
    broker_ids: NotRequired[Sequence[int]]


class CreatableTopicConfig(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def value(self) -> str | None: ...


class CreatableTopicConfigFields(TypedDict):
    name: str
    value: str | None


class CreateTopicsResponse(Protocol):
    @property
    def throttle_time(self) -> timedelta: ...

    @property
    def topics(self) -> tuple[CreatableTopicResult, ...]: ...


class CreateTopicsResponseFields(TypedDict):
    throttle_time: int  # ms
    topics: Sequence[CreatableTopicResultFields]


class CreatableTopicResult(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...

    @property
    def topic_config_error_code(self) -> int: ...

    @property
    def num_partitions(self) -> int: ...

    @property
    def replication_factor(self) -> int: ...

    @property
    def configs(self) -> tuple[CreatableTopicConfigs, ...] | None: ...

    @property
    def topic_id(self) -> UUID | None: ...


class CreatableTopicResultFields(TypedDict):
    name: str
    error_code: int
    error_message: str | None
    topic_config_error_code: NotRequired[int]
    num_partitions: NotRequired[int]
    replication_factor: NotRequired[int]
    configs: NotRequired[Sequence[CreatableTopicConfigsFields] | None]
    topic_id: NotRequired[UUID | None]


class CreatableTopicConfigs(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def value(self) -> str | None: ...

    @property
    def read_only(self) -> bool: ...

    @property
    def config_source(self) -> int: ...

    @property
    def is_sensitive(self) -> bool: ...


class CreatableTopicConfigsFields(TypedDict):
    name: str
    value: str | None
    read_only: bool
    config_source: NotRequired[int]
    is_sensitive: bool
