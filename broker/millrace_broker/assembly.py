"""The one wiring place: makes the services of a broker of the parts that have been started before.

Nothing is started here, but for what the parts do when they are made. A standalone broker has no controller, and its
store decides what it leads; a member of a cluster takes that from the controller's requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from random import randrange
from typing import TYPE_CHECKING, NamedTuple

from millrace.clock import Clock
from millrace.config import MAX_INT
from millrace.leader_states import NO_LEADER
from millrace.security.sasl.scram import Known
from millrace.tracing import Tracing
from millrace.wire.controller_apis import NO_BROKER_EPOCH
from millrace_broker.cluster.acl_manager import AclManager
from millrace_broker.cluster.config_manager import ConfigManager
from millrace_broker.cluster.local_store import LocalStore
from millrace_broker.cluster.metadata_cache import DeletionLookup, MetadataCache
from millrace_broker.cluster.producer_ids import ProducerIds
from millrace_broker.cluster.token_manager import TokenManager
from millrace_broker.cluster.topic_manager import TopicManager
from millrace_broker.groups.commits import ZooKeeperOffsets
from millrace_broker.groups.consumer.consumer_groups import ConsumerGroups
from millrace_broker.groups.group_coordinator import GroupCoordinator
from millrace_broker.handlers.api import Api, InOrder, Services
from millrace_broker.handlers.registry import APIS, check_guarded
from millrace_broker.metrics import MaintenanceCounts, RequestMetrics
from millrace_broker.properties.broker_config import BrokerConfig
from millrace_broker.properties.security_config import TokenConfig
from millrace_broker.quotas.client_quotas import ClientQuotas
from millrace_broker.quotas.measures import QuotaWindows
from millrace_broker.replication.broker_link import BrokerLink, Connect
from millrace_broker.replication.fetch_sessions import FetchSessions
from millrace_broker.replication.healer import Healer
from millrace_broker.replication.isr_change_sender import IsrChangeSender, Sender
from millrace_broker.replication.isr_tables import IsrTables, Propose
from millrace_broker.replication.log_dir_mover import LogDirMover
from millrace_broker.replication.partition_roles import LeadershipListener, PartitionRoles, ReplicaFetchers
from millrace_broker.replication.purgatory import Purgatory
from millrace_broker.replication.range_fetch import Sources
from millrace_broker.replication.replica_fetcher import FetchSettings, FollowingBroker
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.replication_quota import ReplicationQuota
from millrace_broker.replication.roles import ControllerFence
from millrace_broker.security.acls.authorizer import Access, AuditLog, Authorizer
from millrace_broker.security.authentication.credentials import Credentials
from millrace_broker.security.tokens import token_login
from millrace_broker.startup.options import BrokerOptions
from millrace_broker.storage import LogCleaner, LogManager, TopicPartition
from millrace_broker.txns.admission import Admission, PartitionRequests, ask_about_partitions
from millrace_broker.txns.markers import MarkerRequests, MarkerSender, MarkerWriter, write_markers
from millrace_broker.txns.transaction_coordinator import TransactionCoordinator

if TYPE_CHECKING:
    from millrace_broker.cluster.zookeeper_store import ZooKeeperStore

WORKERS = 2  # the checks of some batches need 128 MiB each while they run


class BrokerComponents(NamedTuple):
    """The parts of a broker that exist before its services are made.

    `closing` closes what is put on it in the reverse order when the broker stops.
    """

    broker_id: int
    options: BrokerOptions
    clock: Clock
    store: LocalStore | ZooKeeperStore
    metadata: MetadataCache
    configs: ConfigManager
    logs: LogManager
    cleaner: LogCleaner
    metrics: RequestMetrics
    closing: AsyncExitStack
    authorizer: Authorizer | None = None
    tracing: Tracing | None = None

    @property
    def connect(self) -> Connect:
        """Returns a function that connects to another broker, with the security of the inter-broker listener."""
        return partial(BrokerLink.connect, security=self.options.inter_broker_security)

    def broker_epoch(self) -> int:
        """Returns the epoch of the broker's registration; -1 for a standalone broker, which has none."""
        return NO_BROKER_EPOCH if isinstance(self.store, LocalStore) else self.store.broker_epoch

    def topic_config(self, name: str) -> Mapping[str, str]:
        """Returns the newest own properties of a topic; an empty mapping for an unknown one."""
        return self.metadata.topic_configs.get(name, {})


class _Coordinators(NamedTuple):
    """The coordinators of groups and of transactions."""

    consumer_groups: ConsumerGroups
    groups: GroupCoordinator
    producer_ids: ProducerIds
    txns: TransactionCoordinator


def new_services(base: BrokerComponents) -> Services:
    """Returns the services that a broker's request handlers use; call it on the broker's event loop."""
    config = base.configs.layers.broker_config()
    store, metadata = base.store, base.metadata
    apis = _apis(store)
    replicas = _replicas(base, config)
    topics = TopicManager(base.options.broker, store, metadata, base.configs.check_topic_config)
    consumer_groups, groups, producer_ids, txns = _coordinators(base, replicas, topics)
    mover = LogDirMover(
        base.logs,
        replicas,
        base.cleaner.follow,
        lambda: services.config.replica_alter_log_dirs_io_max_bytes_per_second,
    )
    tokens = TokenManager(TokenConfig.from_properties(base.options.properties), store, base.clock)
    follower_quota = _quota(base, config, lambda: services.config.follower_replication_throttled_rate)
    services = Services(
        config=config,
        clock=base.clock,
        metadata=metadata,
        replicas=replicas,
        topics=topics,
        groups=groups,
        consumer_groups=consumer_groups,
        zookeeper_offsets=None if isinstance(store, LocalStore) else ZooKeeperOffsets(store.session),
        configs=base.configs,
        acls=AclManager(store, metadata),
        apis=apis,
        broker_id=base.broker_id,
        fetch_sessions=_fetch_sessions(config, replicas),
        producer_ids=producer_ids,
        errors=base.metrics.errors,
        log_dirs=mover,
        txns=txns,
        admission=Admission(txns, _partition_requests(base)),
        produced_in_order=InOrder(),
        workers=_workers(base),
        fence=ControllerFence(base.broker_epoch),
        roles=_roles(base, config, replicas, (mover, groups.led, txns.led), follower_quota),
        tokens=tokens,
        leader_quota=_quota(base, config, lambda: services.config.leader_replication_throttled_rate),
        credentials=Credentials(lambda: metadata.image.client_configs, partial(_token_login, tokens)),
        quotas=_client_quotas(config),
        authorizer=_access(base, apis),
        take_update=None if isinstance(store, LocalStore) else store.update,
    )
    return services


def new_healer(base: BrokerComponents, replicas: ReplicaManager, counts: MaintenanceCounts) -> Healer:
    """Returns what heals the broker's damaged logs from other brokers' replicas."""

    def sources(topic_partition: TopicPartition) -> Sources | None:
        partition = base.metadata.partition(topic_partition)
        if partition is None:
            return None
        ordered = dict.fromkeys((partition.leader, *partition.isr, *partition.replicas))
        others = tuple(one for one in ordered if one not in {NO_LEADER, base.broker_id})
        return Sources(others, partition.leader_epoch, tuple(one for one in others if one in partition.isr))

    async def eligible_leaders(topic_partition: TopicPartition) -> tuple[int, ...]:
        return await asyncio.to_thread(base.store.eligible_leaders, topic_partition)

    return Healer(
        base.broker_id, base.logs, replicas, sources, eligible_leaders, base.metadata.address_of, base.connect,
        base.clock, counts,
    )  # fmt: skip


def _workers(base: BrokerComponents) -> Executor:
    workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="worker")
    base.closing.callback(workers.shutdown, wait=False, cancel_futures=True)
    return workers


def _coordinators(base: BrokerComponents, replicas: ReplicaManager, topics: TopicManager) -> _Coordinators:
    store, metadata, options, loop = base.store, base.metadata, base.options, asyncio.get_running_loop()
    consumer_groups = ConsumerGroups(options.consumer_groups, options.groups, lambda: metadata.image)
    groups = GroupCoordinator(
        options.groups,
        replicas,
        metadata,
        topics,
        clock=base.clock,
        call_later=loop.call_later,
        replayers=consumer_groups.replayers,
    )
    producer_ids = ProducerIds(
        partial(store.reserve_producer_ids, base.broker_id),
        lambda: max(replicas.first_free_producer_id(), txns.first_free_producer_id()),
    )
    txns = TransactionCoordinator(
        base.configs.layers.transaction_config(),
        replicas,
        metadata,
        topics,
        _marker_sender(base, MarkerWriter(replicas, groups, base.clock)),
        deletions=DeletionLookup(metadata, store.has_partition),
        broker_id=base.broker_id,
        producer_ids=producer_ids,
        clock=base.clock,
        call_later=loop.call_later,
        call_soon=loop.call_soon,
    )
    return _Coordinators(consumer_groups, groups, producer_ids, txns)


def _token_login(tokens: TokenManager, mechanism: str, token_id: str) -> Known | None:
    issued = tokens.find(token_id)
    return None if issued is None else token_login(issued, mechanism)


def _apis(store: LocalStore | ZooKeeperStore) -> Mapping[int, Api]:
    if isinstance(store, LocalStore):
        return APIS
    # A standalone broker is spared the time and memory of ZooKeeper's client, which the controller needs.
    from millrace_broker.handlers.cluster_registry import CLUSTER_APIS  # noqa: PLC0415

    return dict(sorted({**APIS, **CLUSTER_APIS}.items()))


def _access(base: BrokerComponents, apis: Mapping[int, Api]) -> Access | None:
    if base.authorizer is None:
        return None
    check_guarded(apis)
    access = Access(base.authorizer, AuditLog(base.clock.monotonic_ms))
    access.take(base.metadata.image.acls)
    return access


def _replicas(base: BrokerComponents, config: BrokerConfig) -> ReplicaManager:
    purgatory: Purgatory[TopicPartition] = Purgatory(asyncio.get_running_loop().call_later)
    if isinstance(base.store, LocalStore):
        return _replica_manager(base, purgatory, _isr_tables(base, config))
    metadata = base.metadata
    changes = IsrChangeSender(
        lambda: Sender(base.broker_id, base.broker_epoch()),
        lambda: metadata.address_of(metadata.image.controller_id),
        connect=base.connect,
    )
    replicas = _replica_manager(base, purgatory, _isr_tables(base, config, changes.propose))
    changes.start(replicas.isr_answered)
    base.closing.push_async_callback(changes.stop)
    return replicas


def _isr_tables(base: BrokerComponents, config: BrokerConfig, propose: Propose | None = None) -> IsrTables:
    return IsrTables(
        base.broker_id,
        base.clock,
        config.replica_lag_time_max_ms,
        propose,
        syncs_single_replica=config.single_replica_sync_enable,
    )


def _replica_manager(base: BrokerComponents, purgatory: Purgatory[TopicPartition], isr: IsrTables) -> ReplicaManager:
    if base.tracing is None:
        return ReplicaManager(base.logs, purgatory, isr)
    from millrace_broker.replication.traced_appends import TracedReplicaManager  # noqa: PLC0415  # for those who trace

    return TracedReplicaManager(base.logs, purgatory, isr, base.tracing, base.clock)


def _marker_sender(base: BrokerComponents, local: MarkerWriter) -> MarkerSender:
    client_id = f"broker-{base.broker_id}-txn-marker-sender"
    requests = MarkerRequests(write_markers, base.metadata.address_of, client_id, base.connect)
    base.closing.push_async_callback(requests.close)
    return MarkerSender(local, base.metadata, requests, broker_id=base.broker_id)


def _partition_requests(base: BrokerComponents) -> PartitionRequests:
    client_id = f"broker-{base.broker_id}-add-partitions-to-txn"
    requests = PartitionRequests(ask_about_partitions, base.metadata.address_of, client_id, base.connect)
    base.closing.push_async_callback(requests.close)
    return requests


def _fetch_sessions(config: BrokerConfig, replicas: ReplicaManager) -> FetchSessions:
    slots = config.max_incremental_fetch_session_cache_slots
    return FetchSessions(slots, partial(randrange, 1, MAX_INT), replicas.changes)


def _quota(base: BrokerComponents, config: BrokerConfig, rate: Callable[[], int]) -> ReplicationQuota:
    windows = QuotaWindows(config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000)
    return ReplicationQuota(base.broker_id, base.clock, rate, windows)


def _client_quotas(config: BrokerConfig) -> ClientQuotas:
    return ClientQuotas(
        QuotaWindows(config.quota_window_num, config.quota_window_size_seconds * 1000),
        QuotaWindows(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000),
    )


def _roles(
    base: BrokerComponents,
    config: BrokerConfig,
    replicas: ReplicaManager,
    listeners: Sequence[LeadershipListener],
    quota: ReplicationQuota,
) -> PartitionRoles:
    settings = FetchSettings(
        min_bytes=config.replica_fetch_min_bytes,
        wait_max_ms=config.replica_fetch_wait_max_ms,
        max_bytes=config.replica_fetch_max_bytes,
        response_max_bytes=config.replica_fetch_response_max_bytes,
        backoff_ms=config.replica_fetch_backoff_ms,
        socket_timeout_ms=config.replica_socket_timeout_ms,
    )
    broker = FollowingBroker(
        base.broker_id,
        base.broker_epoch,
        base.metadata.address_of,
        base.logs,
        when_offline=replicas.offline.add,
        when_committed=replicas.purgatory.check,
        quota=quota,
        connect=base.connect,
    )
    return PartitionRoles(
        base.broker_id,
        replicas,
        ReplicaFetchers(settings, broker, config.num_replica_fetchers),
        listeners,
        base.topic_config,
        topic_id=base.store.topic_id,
    )
