"""The real coordinators of a simulated broker, of groups and transactions, whose timeouts fit into half a minute."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from millrace.addresses import Address
from millrace.clock import Clock
from millrace.errors import TopicExistsError, ZooKeeperError
from millrace.zk import paths
from millrace.zk.operations import Create, Refused, SetData
from millrace_broker.cluster.metadata_cache import DeletionLookup, MetadataCache
from millrace_broker.cluster.producer_ids import ProducerIds, encode_block, next_block
from millrace_broker.cluster.topic_manager import TopicManager
from millrace_broker.cluster.zookeeper_store import ZooKeeperStore
from millrace_broker.groups.consumer.consumer_groups import ConsumerGroups
from millrace_broker.groups.group_coordinator import GroupCoordinator
from millrace_broker.properties.coordinator_config import ConsumerGroupConfig, GroupConfig, TransactionConfig
from millrace_broker.replication.purgatory import CallLater, CallSoon
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.txns.admission import Admission, PartitionRequests, ask_about_partitions
from millrace_broker.txns.markers import MarkerRequests, MarkerSender, MarkerWriter, write_markers
from millrace_broker.txns.transaction_coordinator import TransactionCoordinator
from millrace_support.model_zookeeper import ModelSession


class CoordinatingBroker(NamedTuple):
    """The parts of a broker that its coordinators use. `address_of` returns where it reaches another broker."""

    broker_id: int
    replicas: ReplicaManager
    metadata: MetadataCache
    session: ModelSession
    address_of: Callable[[int], Address]
    clock: Clock
    call_later: CallLater
    call_soon: CallSoon

    def known_address_of(self, other: int) -> Address | None:
        """Returns where it reaches another broker; None for one that is not alive as far as it knows."""
        return self.address_of(other) if other in self.metadata.image.brokers else None


class Coordinator(NamedTuple):
    """What answers the members of groups, and producers."""

    groups: GroupCoordinator
    consumer_groups: ConsumerGroups
    producer_ids: ProducerIds
    txns: TransactionCoordinator
    admission: Admission
    requests: tuple[MarkerRequests, PartitionRequests]

    def die(self) -> None:
        """Ends all tasks, as the process dies."""
        for requests in self.requests:
            for sender in requests._senders.values():  # noqa: SLF001  a kill asks no one
                sender.cancel()
        for led in (self.groups.led, self.txns.led):
            for task in led._loading:  # noqa: SLF001
                task.cancel()


def new_coordinator(broker: CoordinatingBroker, session_timeout_ms: int) -> Coordinator:
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
    metadata, topics = broker.metadata, cast("TopicManager", _ExistingTopics())
    consumer_groups = ConsumerGroups(consumer_config, config, lambda: metadata.image)
    groups = GroupCoordinator(
        config,
        broker.replicas,
        metadata,
        topics,
        clock=broker.clock,
        call_later=broker.call_later,
        replayers=consumer_groups.replayers,
    )
    store = cast("ZooKeeperStore", SimpleNamespace(session=broker.session))
    markers = MarkerRequests(write_markers, broker.known_address_of, "markers")
    questions = PartitionRequests(ask_about_partitions, broker.known_address_of, "questions")
    producer_ids = ProducerIds(
        lambda at_least: _reserve(broker, at_least),
        lambda: max(broker.replicas.first_free_producer_id(), txns.first_free_producer_id()),
    )
    txns = TransactionCoordinator(
        TransactionConfig(transaction_state_log_load_buffer_size=500),
        broker.replicas,
        metadata,
        topics,
        MarkerSender(
            MarkerWriter(broker.replicas, groups, broker.clock), metadata, markers, broker_id=broker.broker_id
        ),
        deletions=DeletionLookup(metadata, partial(ZooKeeperStore.has_partition, store)),
        broker_id=broker.broker_id,
        producer_ids=producer_ids,
        clock=broker.clock,
        call_later=broker.call_later,
        call_soon=broker.call_soon,
    )
    return Coordinator(groups, consumer_groups, producer_ids, txns, Admission(txns, questions), (markers, questions))


def _reserve(broker: CoordinatingBroker, at_least: int) -> range:
    """Reserves a block of producer ids as `ZooKeeperStore` does; raises ZooKeeperError where another was faster."""
    (node,) = broker.session.nodes([paths.PRODUCER_IDS])
    block = next_block(None if node is None else node.data, at_least)
    data = encode_block(broker.broker_id, block)
    version = None if node is None else node.version
    change = Create(paths.PRODUCER_IDS, data) if version is None else SetData(paths.PRODUCER_IDS, data, version)
    if isinstance(broker.session.multi([change]), Refused):
        raise ZooKeeperError("another broker has reserved the block")
    return block


class _ExistingTopics:
    """The topics of coordinators are there; a broker that has just started has not been told."""

    async def create(self, name: str, **_: Any) -> None:
        raise TopicExistsError(f"there is a topic {name}")
