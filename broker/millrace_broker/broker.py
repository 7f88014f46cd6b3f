"""The one wiring place: a broker made of its parts, from start to drained stop.

    start   metadata store → logs opened and recovered → socket bound → registered → leader epochs raised →
            partitions led → serving
    stop    the same backwards: connections drained → logs synced, checkpointed and closed → registration given up

What has been started is on `_closing`, so a start that fails half-way is undone as a stop is.

Cluster changes arrive on the store's threads and are acted upon on the event loop, one at a time: the newest view
against the one acted upon last (`_follow`). Logs are made and deleted in a worker thread meanwhile, and requests are
answered. A log is deleted only when its topic vanishes from one view to the next, or comes back with another id; a log
whose topic this broker has never seen is left alone and reported.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from random import randrange
from typing import TYPE_CHECKING, Any

from millrace.clock import SystemClock
from millrace.config import MAX_INT
from millrace.descriptor_pool import PooledFileSystem, file_limit
from millrace.errors import InvalidConfigError, MillraceError, StorageError
from millrace.fs import OsFileSystem, write_file_durably
from millrace_broker.cluster.config_manager import ConfigManager, check_stored_restrictions, layers_of
from millrace_broker.cluster.config_sources import BrokerLayers
from millrace_broker.cluster.leader_epochs import raised_leader_epochs
from millrace_broker.cluster.local_store import LocalStore
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.producer_ids import ProducerIds
from millrace_broker.cluster.store import MetadataStore
from millrace_broker.cluster.topic_manager import TopicManager
from millrace_broker.cluster.view import BrokerInfo, ClusterView, PartitionInfo, TopicInfo
from millrace_broker.config import BrokerConfig
from millrace_broker.groups.consumer.consumer_groups import ConsumerGroups
from millrace_broker.groups.group_coordinator import Coordinator
from millrace_broker.groups.zookeeper_offsets import ZooKeeperOffsets
from millrace_broker.handlers.api import Services
from millrace_broker.handlers.registry import APIS, warm_up
from millrace_broker.health import judge
from millrace_broker.identity import broker_id
from millrace_broker.listeners import Address
from millrace_broker.metrics import RequestMetrics
from millrace_broker.net.server import Server
from millrace_broker.options import BrokerOptions
from millrace_broker.replication.fetch_sessions import FetchSessions
from millrace_broker.replication.log_dir_mover import LogDirMover
from millrace_broker.replication.purgatory import Purgatory
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.storage import CleanerConfig, LogCleaner, LogConfig, LogManager, NewLog, TopicPartition
from millrace_broker.txns.markers import MarkerWriter
from millrace_broker.txns.transaction_coordinator import TransactionCoordinator
from millrace_broker.vitals import Vitals

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from millrace_broker.admin import AdminEndpoint

logger = logging.getLogger(__name__)

ADMIN_ADDRESS_FILE = "admin.address"
ADMIN_WAITS_FOR_LOGS_S = 1.0  # where it takes longer to open them, it can be asked meanwhile
LED_AT_ONCE = 500  # partitions, before requests are let in between


class Broker:
    """One broker process."""

    def __init__(self, options: BrokerOptions) -> None:
        self._options = options
        open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._fs = PooledFileSystem(OsFileSystem(), file_limit(open_files, options.broker.max_connections))
        self._zookeeper_offsets: ZooKeeperOffsets | None = None
        self._store = self._metadata_store()
        self._metrics = RequestMetrics()
        self._closing = AsyncExitStack()
        self._admin: AdminEndpoint | None = None
        self._vitals = Vitals(self._store, SystemClock(), self._largest_batch_bytes)
        self._newest: ClusterView | None = None
        self._changed = asyncio.Event()
        self._stopping = False
        self._epochs_are_raised = False
        self._led: Mapping[str, TopicInfo] = {}
        self._loop: asyncio.AbstractEventLoop
        self._logs: LogManager
        self._cleaner: LogCleaner
        self._replicas: ReplicaManager
        self._metadata: MetadataCache
        self._groups: Coordinator
        self._txns: TransactionCoordinator
        self._layers: BrokerLayers
        self._services: Services
        self._server: Server

    async def start(self) -> Address:
        """Serve; the address that clients connect to. A MillraceError says why it can't."""
        self._loop = asyncio.get_running_loop()
        self._closing.push_async_callback(asyncio.to_thread, self._store.close)
        await asyncio.to_thread(self._store.start, self._on_change)
        view = self._store.view()
        self._options = await asyncio.to_thread(self._identified)
        check_stored_restrictions(view, self._broker_id)
        self._layers = layers_of(view, self._broker_id, self._options.properties)
        await self._open_logs(view)
        self._replicas = ReplicaManager(self._logs, Purgatory(self._loop.call_later))
        self._closing.push_async_callback(self._checkpoint_high_watermarks)
        self._metadata = MetadataCache(view)
        self._services = self._new_services()
        self._server = Server(self._services, self._metrics)
        self._vitals.shards = (self._groups.led, self._txns.led)
        listen = self._options.listen
        host, port = await self._server.listen(listen.host, listen.port)
        self._closing.push_async_callback(self._server.drain, self._options.broker.shutdown_drain_timeout_ms / 1000)
        self._closing.callback(self._groups.led.close)
        self._closing.callback(self._txns.led.close)
        bound = Address(host=host, port=port)
        await asyncio.to_thread(self._store.register_broker, self._registration(bound))
        await asyncio.to_thread(self._raise_leader_epochs)
        await self._apply(self._store.view())
        self._closing.push_async_callback(self._stop_following, asyncio.create_task(self._follow()))
        await self._server.serve()
        self._vitals.is_starting = False
        return bound

    async def start_admin(self) -> None:
        """Open the admin endpoint and begin the broker's own maintenance, while the broker serves already."""
        await asyncio.to_thread(warm_up)
        admin = self._admin or await self._listen_admin()
        admin.serve(self, await asyncio.to_thread(self._collectors))
        try:
            write_file_durably(self._fs, self._admin_address_file, f"{self._admin_address}\n".encode())
            self._closing.callback(self._fs.unlink, self._admin_address_file)
        except OSError as error:  # a full disk is no reason not to serve what is on it
            logger.warning("%s is not written: %s", self._admin_address_file, error)
        self._start_chores()

    async def stop(self) -> None:
        """Drain and close; everything appended is on the disk afterwards."""
        self._vitals.is_stopping = True
        await self._closing.aclose()

    async def apply_retention(self) -> Sequence[Any]:
        """Delete what retention allows; a report per partition. Requests go before the next log."""
        reports = []
        for report in self._logs.retention():
            reports.append(report)
            await asyncio.sleep(0)
        return reports

    async def _checkpoint_high_watermarks(self) -> None:
        await asyncio.to_thread(self._logs.checkpoint_high_watermarks, self._replicas.high_watermarks())

    async def expire_producers(self) -> int:
        """Forget idempotent producers that have been silent for long; how many."""
        return self._logs.expire_producers()

    async def verify(self) -> Sequence[Any]:
        """Walk every log's segments in a worker thread; a report per partition."""
        return await asyncio.to_thread(self._logs.verify)

    async def compact(self) -> Sequence[Any]:
        """Compact every compacted log in a worker thread, due or not; a report per partition."""
        return await self._compact(force=True)

    async def _compact(self, *, force: bool) -> Sequence[Any]:
        reports = await asyncio.to_thread(self._cleaner.run, force=force)
        self._logs.release_replaced()
        return reports

    def _metadata_store(self) -> MetadataStore:
        options = self._options
        if options.zookeeper is None:
            return LocalStore(self._fs, options.data_dirs[0])
        # A standalone broker is spared the time and memory of ZooKeeper's client.
        from millrace_broker.cluster.zookeeper_store import ZooKeeperStore  # noqa: PLC0415

        store = ZooKeeperStore(
            options.zookeeper,
            session_timeout_ms=options.broker.zookeeper_session_timeout_ms,
            connection_timeout_ms=options.broker.zookeeper_connection_timeout_ms,
            deletes_topics=options.broker.delete_topic_enable,
        )
        self._zookeeper_offsets = ZooKeeperOffsets(store.session)
        return store

    async def _open_logs(self, view: ClusterView) -> None:
        self._logs = LogManager(
            self._fs,
            SystemClock(),
            self._options.data_dirs,
            self._layers.log_defaults(),
            view.cluster_id,
            self._broker_id,
        )
        self._vitals.folders = self._logs.health
        opening = asyncio.ensure_future(asyncio.to_thread(self._logs.start))
        await asyncio.wait({opening}, timeout=ADMIN_WAITS_FOR_LOGS_S)
        telling = [] if opening.done() else [asyncio.ensure_future(self._listen_admin())]
        await asyncio.wait({opening, *telling})
        opening.result()
        self._closing.push_async_callback(self._close_logs)
        await asyncio.gather(*telling)
        cleaner_config = _cleaner_config(self._layers.broker_config())
        self._cleaner = LogCleaner(self._fs, SystemClock(), self._logs, cleaner_config)
        self._closing.push_async_callback(asyncio.to_thread, self._cleaner.stop)
        if self._fs.exists(self._admin_address_file):
            self._fs.unlink(self._admin_address_file)
        for topic_partition in self._logs.logs():
            if topic_partition.topic not in view.topics:
                logger.warning("%s is on the disk but no topic of the cluster; left as it is", topic_partition)

    async def _close_logs(self) -> None:
        await asyncio.to_thread(self._logs.close, epochs_are_raised=self._epochs_are_raised)

    def _raise_leader_epochs(self) -> None:
        """Before anything is led: a log that was not stopped cleanly may have lost what others have read of it."""
        raised = raised_leader_epochs(self._store.view(), self._broker_id, self._logs)
        try:
            if raised:
                logger.info("the leader epochs of %d partitions are raised", len(raised))
                self._store.raise_leader_epochs(raised)
            self._epochs_are_raised = True
        except StorageError as error:  # a full disk is no reason not to serve; each log notes its epoch before it grows
            logger.warning("the raised leader epochs are not stored, the next start raises them again: %s", error)

    @property
    def _admin_address_file(self) -> str:
        return f"{self._options.data_dirs[0]}/{ADMIN_ADDRESS_FILE}"

    async def _listen_admin(self) -> AdminEndpoint:
        self._admin = admin = await asyncio.to_thread(self._admin_endpoint)
        self._closing.push_async_callback(admin.stop)
        at = self._options.admin
        host, port = await admin.start(at.host, at.port, self._options.broker.admin_token)
        self._admin_address = Address(host=host, port=port)
        logger.info("admin endpoint at http://%s", self._admin_address)
        return admin

    def _admin_endpoint(self) -> AdminEndpoint:
        # An HTTP server takes as long to import as all the rest; clients need not wait for it.
        from millrace_broker.admin import AdminEndpoint  # noqa: PLC0415

        return AdminEndpoint(lambda: judge(self._vitals.facts()), self._state)

    def _collectors(self) -> tuple[Collector, ...]:
        from millrace_broker.collectors import broker_collectors  # noqa: PLC0415

        server = self._server
        return broker_collectors(
            self._metrics, self._services, lambda: server.connection_count, lambda: server.memory.used_bytes
        )

    def _new_services(self) -> Services:
        configs = ConfigManager(self._broker_id, self._layers, self._store, self._metadata)
        topics = TopicManager(self._options.broker, self._store, self._metadata, configs.check_topic_config)
        consumer_groups = ConsumerGroups(
            self._options.consumer_groups, self._options.groups, lambda: self._metadata.view
        )
        self._groups = Coordinator(
            self._options.groups,
            self._replicas,
            self._metadata,
            topics,
            clock=SystemClock(),
            call_later=self._loop.call_later,
            replayers=consumer_groups.replayers,
        )
        own_id, config = self._broker_id, self._layers.broker_config()
        producer_ids = ProducerIds(
            partial(self._store.reserve_producer_ids, own_id),
            lambda: max(self._replicas.first_free_producer_id(), self._txns.first_free_producer_id()),
        )
        self._txns = TransactionCoordinator(
            self._options.transactions,
            self._replicas,
            self._metadata,
            topics,
            MarkerWriter(self._replicas, self._groups),
            broker_id=own_id,
            producer_ids=producer_ids,
            clock=SystemClock(),
            call_later=self._loop.call_later,
            call_soon=self._loop.call_soon,
        )
        return Services(
            config,
            self._metadata,
            self._replicas,
            topics,
            self._groups,
            consumer_groups,
            self._zookeeper_offsets,
            configs,
            APIS,
            own_id,
            FetchSessions(config.max_incremental_fetch_session_cache_slots, lambda: randrange(1, MAX_INT)),  # noqa: S311  # a session id is no secret, as in Kafka
            producer_ids,
            self._metrics.errors,
            self._new_mover(),
            self._txns,
        )

    def _new_mover(self) -> LogDirMover:
        mover = LogDirMover(
            self._logs,
            self._replicas,
            self._cleaner.follow,
            lambda: self._services.config.replica_alter_log_dirs_io_max_bytes_per_second,
        )
        self._closing.push_async_callback(mover.close)
        return mover

    def _registration(self, bound: Address) -> BrokerInfo:
        address = self._options.advertised or bound
        rack = self._options.broker.broker_rack or None
        return BrokerInfo(id=self._broker_id, host=address.host, port=address.port, rack=rack)

    @property
    def _broker_id(self) -> int:
        assert self._options.broker_id is not None, "known since the start"
        return self._options.broker_id

    def _identified(self) -> BrokerOptions:
        """Returns the options with the broker's id, read from the folders or the cluster where none is given."""
        options = self._options
        highest_told = options.broker.reserved_broker_max_id
        try:
            number = broker_id(
                self._fs, options.data_dirs, options.broker_id, lambda: self._store.new_broker_id(highest_told)
            )
        except InvalidConfigError as error:
            raise InvalidConfigError(f"{options.broker_id_place}{error}") from None
        return replace(options, broker_id=number, properties={**options.properties, "broker.id": str(number)})

    def _on_change(self, view: ClusterView) -> None:
        self._loop.call_soon_threadsafe(self._take, view)

    def _take(self, view: ClusterView) -> None:
        self._newest = view
        self._changed.set()

    async def _follow(self) -> None:
        while not self._stopping:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._apply(self._newest or self._store.view())
            except Exception:  # a view that can't be acted upon is not to be the last one
                logger.exception("a change of the cluster could not be acted upon")

    async def _stop_following(self, task: asyncio.Task[None]) -> None:
        """Let what a worker thread has begun come to its end."""
        self._stopping = True
        self._changed.set()
        await task

    async def _apply(self, view: ClusterView) -> None:
        self._configure(view)
        gone = _gone(self._metadata.view, view)
        if gone:
            await self._drop([key for name in gone for key in _partitions_of(self._metadata.view.topics[name])])
        await self._lead_all(view)
        self._led = view.topics
        self._metadata.update(view)
        if gone:
            self._groups.topics_deleted(gone)  # nothing is committed to them any more

    async def _lead_all(self, view: ClusterView) -> None:
        """Lead what is new or changed in the view, and try again what was offline."""
        retried = {key.topic for key in self._replicas.offline}
        topics = [one for one in view.topics.values() if one is not self._led.get(one.name) or one.name in retried]
        wanted = [
            (NewLog(TopicPartition(topic.name, one.index), topic.topic_id, topic.config), one)
            for topic in topics
            for one in topic.partitions
            if one.leader == self._broker_id
        ]
        if any(self._logs.get(new.topic_partition) is None for new, _ in wanted):
            await asyncio.to_thread(self._replicas.make_logs, [new for new, _ in wanted])
        for count, (new, partition) in enumerate(wanted, 1):
            self._lead(new, partition)
            if count % LED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _configure(self, view: ClusterView) -> None:
        if view.broker_configs == self._metadata.view.broker_configs:
            return
        layers = layers_of(view, self._broker_id, self._options.properties)
        self._layers = layers
        self._services.configs.set_layers(layers)
        self._services.config = layers.broker_config()
        self._cleaner.reconfigure(_cleaner_config(self._services.config))
        try:
            self._replicas.reconfigure(layers.log_defaults())
        except MillraceError:
            logger.exception("not every log has its new settings")

    def _lead(self, new: NewLog, partition: PartitionInfo) -> None:
        try:
            self._replicas.lead(
                new.topic_partition, new.topic_id, partition.leader_epoch, new.topic_config, len(partition.replicas)
            )
            self._services.log_dirs.resume(new.topic_partition)
            self._groups.led.elected(new.topic_partition)
            self._txns.led.elected(new.topic_partition)
        except MillraceError:
            logger.exception("%s can't be led", new.topic_partition)

    async def _drop(self, topic_partitions: Iterable[TopicPartition]) -> None:
        dropped = []
        for topic_partition in topic_partitions:
            self._replicas.offline.discard(topic_partition)
            if topic_partition in self._replicas.partitions:
                self._groups.led.resigned(topic_partition)
                self._txns.led.resigned(topic_partition)
                self._replicas.drop(topic_partition)
                dropped.append(topic_partition)
        try:
            await asyncio.to_thread(self._replicas.delete_logs, dropped)
        except MillraceError:
            logger.exception("not every log of a deleted topic can be deleted")

    def _state(self) -> dict[str, Any]:
        if self._vitals.is_starting:
            return {"broker_id": self._broker_id}
        return {
            "broker_id": self._broker_id,
            "cluster_id": self._metadata.view.cluster_id,
            "partitions": len(self._replicas.partitions),
            "connections": self._server.connection_count,
        }

    def _largest_batch_bytes(self) -> int:
        return LogConfig.from_properties(self._layers.log_defaults(), {}).max_message_bytes

    def _start_chores(self) -> None:
        config, transactions = self._options.broker, self._options.transactions
        chores: tuple[tuple[int | Callable[[], int], Callable[[], Awaitable[Any]]], ...] = (
            (config.log_retention_check_interval_ms, self.apply_retention),
            (config.replica_high_watermark_checkpoint_interval_ms, self._checkpoint_high_watermarks),
            (config.producer_id_expiration_check_interval_ms, self.expire_producers),
            (self._options.groups.offsets_retention_check_interval_ms, self._groups.expire_offsets),
            (transactions.transaction_abort_timed_out_transaction_cleanup_interval_ms, self._txns.abort_timed_out),
            (
                transactions.transaction_remove_expired_transaction_cleanup_interval_ms,
                self._txns.expire_transactional_ids,
            ),
            (config.log_flush_scheduler_interval_ms, lambda: asyncio.to_thread(self._logs.flush_due)),
            (config.log_flush_scheduler_interval_ms, lambda: asyncio.to_thread(self._logs.remove_deleted)),
            (config.log_flush_offset_checkpoint_interval_ms, lambda: asyncio.to_thread(self._logs.checkpoint)),
        )
        if config.log_cleaner_enable:
            chores += ((lambda: self._services.config.log_cleaner_backoff_ms, lambda: self._compact(force=False)),)
        for interval_ms, work in chores:
            self._closing.push_async_callback(_cancel, asyncio.create_task(_repeat(interval_ms, work)))


def _gone(before: ClusterView, after: ClusterView) -> list[str]:
    """The topics that are there no more, or are others of the same name."""
    ids = {name: topic.topic_id for name, topic in after.topics.items()}
    return [name for name, topic in before.topics.items() if ids.get(name) != topic.topic_id]


def _partitions_of(topic: TopicInfo) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.name, partition.index) for partition in topic.partitions)


def _cleaner_config(config: BrokerConfig) -> CleanerConfig:
    return CleanerConfig(
        dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
        bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
    )


async def _repeat(interval_ms: int | Callable[[], int], work: Callable[[], Awaitable[Any]]) -> None:
    while True:
        pause_ms = interval_ms if isinstance(interval_ms, int) else interval_ms()
        await asyncio.sleep(pause_ms / 1000)
        try:
            await work()
        except Exception:  # whatever it was, it is not to be the end of maintenance
            logger.exception("maintenance failed; tried again in %d ms", pause_ms)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
