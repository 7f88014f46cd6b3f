"""The real group coordinator of a simulated broker, with timeouts that fit into half a minute."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from millrace.clock import Clock
from millrace.errors import TopicExistsError
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.topic_manager import TopicManager
from millrace_broker.groups.consumer.consumer_groups import ConsumerGroups
from millrace_broker.groups.group_coordinator import GroupCoordinator
from millrace_broker.properties.coordinator_config import ConsumerGroupConfig, GroupConfig
from millrace_broker.replication.purgatory import CallLater
from millrace_broker.replication.replica_manager import ReplicaManager


class Coordinator(NamedTuple):
    """What answers the members of groups."""

    groups: GroupCoordinator
    consumer_groups: ConsumerGroups


def new_coordinator(
    replicas: ReplicaManager, metadata: MetadataCache, clock: Clock, call_later: CallLater, session_timeout_ms: int
) -> Coordinator:
    """Returns what `assembly` wires."""
    config = GroupConfig(
        group_min_session_timeout_ms=session_timeout_ms,
        group_initial_rebalance_delay_ms=300,
        offsets_commit_timeout_ms=4_000,
        offsets_load_buffer_size=500,
    )
    consumer_config = ConsumerGroupConfig(
        group_consumer_session_timeout_ms=session_timeout_ms,
        group_consumer_min_session_timeout_ms=session_timeout_ms,
    )
    consumer_groups = ConsumerGroups(consumer_config, config, lambda: metadata.image)
    groups = GroupCoordinator(
        config,
        replicas,
        metadata,
        cast("TopicManager", _ExistingTopics()),
        clock=clock,
        call_later=call_later,
        replayers=consumer_groups.replayers,
    )
    return Coordinator(groups, consumer_groups)


class _ExistingTopics:
    """The topic of committed offsets is there; a broker that has just started has not been told."""

    async def create(self, name: str, **_: Any) -> None:
        raise TopicExistsError(f"there is a topic {name}")
