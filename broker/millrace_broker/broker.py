"""A broker, from start to drained stop.

    start   addresses can be bound → metadata store → logs opened and recovered → services → socket bound → registered →
            alone: leader epochs raised, partitions led → serving → in a cluster: joined (`cluster_member`) →
            admin endpoint and chores
    stop    the same backwards: in a cluster left → connections drained → logs synced, checkpointed and closed →
            registration given up

What has been started is on `_closing`, so a start that fails half-way is undone as a stop is. `assembly` makes the
services of their parts, `metadata_publisher` follows the changes of the cluster, and `chores` has what the broker
repeats by itself.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from millrace.addresses import Address
from millrace.clock import Clock
from millrace.descriptor_pool import PooledFileSystem, file_limit
from millrace.fs import OsFileSystem
from millrace.tracing import Tracing
from millrace_broker.admin.chores import Chore, Chores, broker_chores, broker_watches
from millrace_broker.admin.health import Health, judge
from millrace_broker.admin.maintenance import LogMaintenance
from millrace_broker.admin.service import AdminService, Served
from millrace_broker.admin.stray_requests import StrayRequests
from millrace_broker.admin.vitals import Vitals
from millrace_broker.assembly import BrokerComponents, new_healer, new_services
from millrace_broker.cluster.config_manager import ConfigManager, check_stored_restrictions, layers_of
from millrace_broker.cluster.local_store import LocalStore, raise_leader_epochs
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.metadata_image import MetadataImage
from millrace_broker.handlers.api import Services
from millrace_broker.handlers.registry import warm_up
from millrace_broker.metadata_listeners import cleaner_config, listeners_of, scrub_config
from millrace_broker.metadata_publisher import MetadataPublisher, NewestImage
from millrace_broker.metrics import ClockCounts, Durations, MaintenanceCounts, RequestMetrics
from millrace_broker.net.authentication import ListenerAuthentication
from millrace_broker.net.connection import NewGate
from millrace_broker.net.cycle_collector import CycleCollector
from millrace_broker.net.server import Server, check_addresses
from millrace_broker.properties.listeners import Listener, own_properties
from millrace_broker.properties.security_config import TokenConfig
from millrace_broker.replication.healer import Healer
from millrace_broker.security.acls.acl_authorizer import configured_authorizer
from millrace_broker.startup.identity import identified, named_cluster, registration
from millrace_broker.startup.last_stop import losses_since_last_stop, machines_boot_id
from millrace_broker.startup.options import BrokerOptions
from millrace_broker.storage import LogCleaner, LogConfig, LogManager, RecoveryReport, Scrubber, TopicPartition

if TYPE_CHECKING:
    from millrace_broker.cluster.zookeeper_store import ZooKeeperStore
    from millrace_broker.cluster_member import ClusterMember

logger = logging.getLogger(__name__)

FAILED_DIRS_INTERVAL_MS = 1_000  # between two looks for data directories that have failed
CERTIFICATE_INTERVAL_MS = 2_000  # between two looks for files of certificates that have changed
HEAL_INTERVAL_MS = 1_000  # between two looks for damage to heal from other replicas
DAMAGE_INTERVAL_MS = 2_000  # between two looks for logs that are damaged, or healed
REFUSED_ROLES_INTERVAL_MS = 10_000  # between two requests for roles that were refused for want of room
ADMIN_WAITS_FOR_LOGS_S = 1.0  # where opening the logs takes longer, the admin endpoint is opened meanwhile


class Broker:
    """One broker; it is made on a running event loop, and started once."""

    def __init__(self, options: BrokerOptions, clock: Clock, tracing: Tracing | None = None) -> None:
        self._options = options
        self._tracing = tracing
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._fs = PooledFileSystem(OsFileSystem(), file_limit(open_files, options.broker.max_connections))
        self._member: ClusterMember | None = None
        self._authorizer = configured_authorizer(options.broker, options.properties)
        self._store = self._metadata_store()
        self._images = NewestImage(self._loop)
        self._metrics = RequestMetrics()
        self._maintenance_counts = MaintenanceCounts()
        self._vitals = Vitals(self._store, clock, self._largest_batch_bytes)
        self._admin = AdminService(options, self._fs, clock, self._health, self._state)
        self._epochs_are_raised = options.zookeeper is not None  # by the controller, as this broker registers
        self._closing = AsyncExitStack()
        self._boot_id: str | None = None
        self._metadata: MetadataCache
        self._configs: ConfigManager
        self._logs: LogManager
        self._cleaner: LogCleaner
        self._scrubber: Scrubber
        self._maintenance: LogMaintenance
        self._healer: Healer
        self._services: Services
        self._server: Server
        self._bound: dict[str, Address]

    async def start(self) -> Address:
        """Opens the logs, joins the cluster and serves clients; returns the first listener's address.

        Raises a MillraceError that says why the broker can't start.
        """
        listens_at = (*(one.address for one in self._options.listeners), self._options.admin)
        await check_addresses(listens_at)  # before there is any folder
        image = await self._start_store()
        await self._open_logs(image)
        self._assemble()
        self._bound = bound = await self._bind()
        if self._member is not None:
            await self._member.report_damage()  # before anyone is elected here
        await asyncio.to_thread(self._store.register_broker, registration(self._options, bound))
        if isinstance(self._store, LocalStore):
            self._epochs_are_raised = await asyncio.to_thread(
                raise_leader_epochs, self._store, self._broker_id, self._logs
            )
        await self._follow_cluster()
        await self._server.serve()
        if self._member is not None:
            self._closing.push_async_callback(self._member.leave)
            await self._member.join()
        self._vitals.is_starting = False
        return bound[self._options.listeners[0].name]

    async def start_admin(self) -> None:
        """Opens the admin endpoint, and begins the broker's periodic work, when clients are served already."""
        await asyncio.to_thread(warm_up)
        if not self._admin.is_listening:
            await self._listen_admin()
        self._closing.callback(self._admin.remove_address)
        await asyncio.to_thread(self._scrubber.start)
        loop_delays, clock_counts = Durations(), ClockCounts()
        await self._admin.serve(
            Served(
                self._maintenance,
                self._stray_requests(),
                self._metrics,
                self._services,
                self._server,
                self._vitals,
                self._maintenance_counts,
                loop_delays,
                clock_counts,
                self._bound,
            )
        )
        watches = broker_watches(self._clock, loop_delays, clock_counts)
        for watch in watches:
            self._closing.callback(watch.stop)
            watch.start()
        chores = Chores()
        self._closing.push_async_callback(chores.stop)
        chores.start(broker_chores(self._options, self._logs, self._maintenance, self._services))
        if any(one.protocol.uses_tls for one in self._options.listeners):
            chores.start([Chore(CERTIFICATE_INTERVAL_MS, self._renew_certificates)])
        if self._member is not None:
            report_dirs = partial(self._member.report_failed_dirs, self._logs.health)
            ask = self._member.ask_for_refused_roles
            report_damage = self._member.report_damage
            chores.start([Chore(FAILED_DIRS_INTERVAL_MS, report_dirs), Chore(REFUSED_ROLES_INTERVAL_MS, ask)])
            chores.start([Chore(HEAL_INTERVAL_MS, self._healer.heal_all)])
            chores.start([Chore(DAMAGE_INTERVAL_MS, report_damage)])

    async def is_live(self) -> bool:
        """Returns whether the broker is live, as `/healthz` reports it; a broker that is not has to be restarted."""
        return not (await asyncio.to_thread(self._health)).not_live

    @property
    def cycles(self) -> CycleCollector:
        """Returns the garbage collector's control, for a process that runs only this broker."""
        return self._server.cycles

    async def stop(self) -> None:
        """Answers the requests under way and closes everything; all that was appended is on disk then."""
        self._vitals.is_stopping = True
        await self._closing.aclose()

    def _metadata_store(self) -> LocalStore | ZooKeeperStore:
        options = self._options
        if options.zookeeper is None:
            return LocalStore(self._fs, options.data_dirs[0], named_cluster(options, self._fs))
        # A standalone broker is spared the time and memory of ZooKeeper's client.
        from millrace.zk.security import ZooKeeperSecurity  # noqa: PLC0415
        from millrace_broker.cluster.zookeeper_store import ZooKeeperStore  # noqa: PLC0415

        return ZooKeeperStore(
            options.zookeeper,
            self._clock,
            session_timeout_ms=options.broker.zookeeper_session_timeout_ms,
            connection_timeout_ms=options.broker.zookeeper_connection_timeout_ms,
            named=named_cluster(options, self._fs),
            security=ZooKeeperSecurity.from_properties(options.properties),
            keeps_tokens=bool(TokenConfig.from_properties(options.properties).key),
            has_acls=self._authorizer is not None,
            min_insync_replicas=LogConfig.from_properties(options.log_defaults, {}).min_insync_replicas,
        )

    async def _start_store(self) -> MetadataImage:
        self._closing.push_async_callback(asyncio.to_thread, self._store.close)
        await asyncio.to_thread(self._store.start, self._images.put)
        image = self._store.image()
        new_id = partial(self._store.new_broker_id, self._options.broker.reserved_broker_max_id)
        self._options = await asyncio.to_thread(identified, self._options, self._fs, new_id)
        self._boot_id = machines_boot_id()
        losses = await asyncio.to_thread(losses_since_last_stop, self._fs, self._options.data_dirs, self._boot_id)
        await asyncio.to_thread(self._store.note_losses, self._broker_id, losses)
        check_stored_restrictions(image, self._broker_id)
        self._metadata = MetadataCache(image, self._options.inter_broker_listener)
        layers = layers_of(image, self._broker_id, self._options.properties)
        self._configs = ConfigManager(self._broker_id, layers, self._store, self._metadata)
        return image

    @property
    def _broker_id(self) -> int:
        assert self._options.broker_id is not None, "known since the start"
        return self._options.broker_id

    async def _open_logs(self, image: MetadataImage) -> None:
        layers, data_dirs = self._configs.layers, self._options.data_dirs
        self._logs = LogManager(
            self._fs,
            self._clock,
            data_dirs,
            layers.log_defaults(),
            image.cluster_id,
            self._broker_id,
            boot_id=self._boot_id,
        )
        self._vitals.folders = self._logs.health
        started_s = self._clock.monotonic_s()
        opening = asyncio.ensure_future(asyncio.to_thread(self._logs.start))
        await asyncio.wait({opening}, timeout=ADMIN_WAITS_FOR_LOGS_S)
        telling = [] if opening.done() else [asyncio.ensure_future(self._listen_admin())]
        await asyncio.wait({opening, *telling})
        self._note_recovery(opening.result(), self._clock.monotonic_s() - started_s)
        self._closing.push_async_callback(self._close_logs)
        self._logs.start_lanes(self._tell_synced)
        self._closing.push_async_callback(asyncio.to_thread, self._logs.stop_lanes)
        await asyncio.gather(*telling)
        self._cleaner = LogCleaner(self._fs, self._clock, self._logs, cleaner_config(layers.broker_config()))
        self._vitals.uncompacted = lambda: self._cleaner.failing
        self._closing.push_async_callback(asyncio.to_thread, self._cleaner.stop)
        self._scrubber = Scrubber(self._fs, self._clock, self._logs, scrub_config(layers.broker_config()))
        self._closing.push_async_callback(asyncio.to_thread, self._scrubber.stop)
        self._admin.remove_address()
        self._vitals.damage = self._logs.damage
        for topic_partition in self._logs.logs():
            if topic_partition.topic in image.topics:
                self._logs.mend_topic_id(topic_partition, image.topics[topic_partition.topic].topic_id)
            if topic_partition.topic not in (image.topics or image.topic_configs):
                logger.warning("%s is on the disk but no topic of the cluster; left as it is", topic_partition)

    def _note_recovery(self, report: RecoveryReport, seconds: float) -> None:
        counts = self._maintenance_counts
        counts.recovery_s = seconds
        counts.recovered_segments = sum(one.recovered_segments for one in report.logs)
        counts.truncated_bytes = sum(one.truncated_bytes for one in report.logs)

    def _stray_requests(self) -> StrayRequests:
        services = self._services
        return StrayRequests(
            self._broker_id,
            self._logs,
            services.metadata,
            services.topics,
            producer_ids=services.producer_ids,
            internal_topics=(services.groups.topic, services.txns.topic),
        )

    def _tell_synced(self, topic_partition: TopicPartition) -> None:
        """Has the event loop advance a partition whose log was synced; called on the threads that sync."""
        self._loop.call_soon_threadsafe(self._services.replicas.synced, topic_partition)

    async def _close_logs(self) -> None:
        await asyncio.to_thread(self._logs.close, epochs_are_raised=self._epochs_are_raised)

    def _assemble(self) -> None:
        base = BrokerComponents(
            self._broker_id,
            self._options,
            self._clock,
            self._store,
            self._metadata,
            self._configs,
            self._logs,
            self._cleaner,
            self._metrics,
            self._closing,
            self._authorizer,
            self._tracing,
        )
        self._services = services = new_services(base)
        interval_ms = self._options.broker.maintenance_request_interval_ms
        self._maintenance = LogMaintenance(
            self._logs, self._cleaner, self._scrubber, services.replicas, self._clock, interval_ms,
            self._maintenance_counts,
        )  # fmt: skip
        self._closing.push_async_callback(self._maintenance.checkpoint_high_watermarks)
        self._healer = new_healer(base, services.replicas, self._maintenance_counts)
        self._closing.push_async_callback(services.log_dirs.close)
        self._closing.push_async_callback(services.roles.close)
        if not isinstance(self._store, LocalStore):
            from millrace_broker.cluster_member import new_member  # noqa: PLC0415  # needs ZooKeeper's client

            self._member = new_member(self._options, services, self._store)

    async def _bind(self) -> dict[str, Address]:
        """Binds the sockets of all listeners, and returns the bound address of each by its name."""
        services, options = self._services, self._options
        self._server = Server(services, self._metrics, self._clock, options.spared_listener)
        self._configs.check_certificates = self._server.check_certificates
        self._vitals.shards = (services.groups.led, services.txns.led)
        self._closing.push_async_callback(self._server.drain, options.broker.shutdown_drain_timeout_ms / 1000)
        bound = {
            one.name: await self._server.listen(self._with_live_properties(one), self._gate(one.name))
            for one in options.listeners
        }
        self._closing.callback(services.groups.led.close)
        self._closing.callback(services.txns.led.close)
        return bound

    def _gate(self, listener: str) -> NewGate | None:
        """Returns what makes the SASL login of each connection of a listener; None where clients need no login."""
        security = self._options.authentications.get(listener)
        if security is None:
            return None
        max_frame_bytes = self._options.broker.socket_request_max_bytes
        authentication = ListenerAuthentication(
            security, self._services.credentials, self._clock, max_frame_bytes, self._metrics
        )
        authentication.start()
        self._closing.push_async_callback(authentication.stop)
        return authentication.gate

    def _with_live_properties(self, listener: Listener) -> Listener:
        own = own_properties(listener.name, listener.protocol, self._configs.layers.effective())
        return replace(listener, properties=own)

    async def _follow_cluster(self) -> None:
        decides_roles = isinstance(self._store, LocalStore)
        renew = self._server.renew_certificates
        listeners = listeners_of(self._services, self._cleaner, self._scrubber, renew, decides_roles=decides_roles)
        self._vitals.publisher = publisher = MetadataPublisher(listeners, self._images)
        image = self._images.take_at_once() or self._store.image()
        await publisher.start(image)
        self._closing.push_async_callback(publisher.stop)
        publisher.follow(image)

    def _health(self) -> Health:
        return judge(self._vitals.facts())

    async def _listen_admin(self) -> None:
        self._closing.push_async_callback(self._admin.stop)
        await self._admin.listen()

    async def _renew_certificates(self) -> None:
        await self._server.renew_certificates(self._configs.layers.effective())

    def _largest_batch_bytes(self) -> int:
        return LogConfig.from_properties(self._configs.layers.log_defaults(), {}).max_message_bytes

    def _state(self) -> dict[str, object]:
        if self._vitals.is_starting:
            return {"broker_id": self._broker_id}
        return {
            "broker_id": self._broker_id,
            "cluster_id": self._metadata.image.cluster_id,
            "controller_id": self._metadata.image.controller_id,
            "partitions": len(self._services.replicas.partitions),
            "connections": self._server.connection_count,
        }
