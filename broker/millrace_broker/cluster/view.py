"""The cluster as one immutable value: its brokers, topics, leaders and configurations.

A broker works with one view at a time, and its metadata store hands it the next one after a change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

ALL_BROKERS = "<default>"  # the entity whose properties hold for every broker


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A live broker and where clients reach it."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition: its leader, its replicas, and those of them that are in sync."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic; partitions in the order of their index."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionInfo, ...]
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The whole cluster at one moment. `controller_id` is the lowest id of a live broker, -1 where none is live.

    `broker_configs` are the live properties by broker id as text, and those of all brokers under `ALL_BROKERS`.
    `group_configs` are the properties that groups have for themselves, by group.
    """

    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerInfo]
    topics: Mapping[str, TopicInfo]
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
