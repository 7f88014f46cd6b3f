"""A broker of a simulation: the real tables, logs, fetchers, handlers and controller, on doors that fail.

Its disk is a `CrashFileSystem`, its network and its ZooKeeper are models. `die` leaves what its disk keeps, and `start`
begins another process with that.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from uuid import UUID

from millrace.addresses import Address, plaintext_endpoint
from millrace.errors import MillraceError, StorageError
from millrace.wire.api import ApiKey
from millrace.zk import codec, paths
from millrace.zk.operations import Create
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.metadata_image import MetadataImage
from millrace_broker.cluster.metadata_update import MetadataUpdate, updated_image
from millrace_broker.handlers import (
    classic_members,
    consumer_groups,
    control_requests,
    controller_requests,
    k00_produce,
    k01_fetch,
    k09_offset_fetch,
    k10_find_coordinator,
    k18_api_versions,
    log_offsets,
    offset_commits,
    transaction_partitions,
    transactions,
)
from millrace_broker.handlers.api import Api, InOrder, InTurns, Reply, Request, Services
from millrace_broker.properties.broker_config import BrokerConfig
from millrace_broker.quotas.client_quotas import ClientQuotas
from millrace_broker.replication.fetch_sessions import FetchSessions
from millrace_broker.replication.isr_change_sender import IsrChangeSender, Sender
from millrace_broker.replication.isr_tables import IsrTables
from millrace_broker.replication.partition_roles import PartitionRoles, ReplicaFetchers
from millrace_broker.replication.purgatory import CallLater, CallSoon, Purgatory
from millrace_broker.replication.replica_fetcher import FetchSettings, FollowingBroker
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.replication_quota import ReplicationQuota
from millrace_broker.replication.roles import ControllerFence
from millrace_broker.storage import CleanerConfig, Log, LogCleaner, LogManager, TopicPartition
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.held_worker import WorkerOfALoop
from millrace_support.model_zookeeper import ModelSession, ModelZooKeeper
from millrace_support.simulation.broker_server import BrokerServer
from millrace_support.simulation.group_members import session_timeout_ms
from millrace_support.simulation.network import Network
from millrace_support.simulation.simulated_controller import SimulatedController
from millrace_support.simulation.simulated_coordinator import CoordinatingBroker, new_coordinator
from millrace_support.simulation.simulated_healing import SimulatedHealing
from millrace_support.simulation.simulated_losses import Machine
from millrace_support.simulation.swarm.settings import Settings
from millrace_support.simulation.virtual_time import SetClock, VirtualTimeLoop

CLUSTER_ID = "simulation-cluster-id0"
DATA_DIR = "/data"
FETCH = FetchSettings(wait_max_ms=3_000, max_bytes=1, backoff_ms=1_000, socket_timeout_ms=4_000)  # batch by batch
LONGEST_NEWS_S = 0.2
SYNC_S, LONGEST_SYNCS_S = 0.001, (0.001, 0.01, 0.05)  # of a disk, and whatever waits for it
LONGEST_SHUTDOWN_S = 2.0
CHECKPOINT_S = 2.0
CLEANER = CleanerConfig(dedupe_buffer_bytes=1 << 14)


class World(NamedTuple):
    """What all brokers of a simulation share."""

    loop: VirtualTimeLoop
    chance: Random
    network: Network
    zookeeper: ModelZooKeeper
    settings: Settings
    topic_configs: Mapping[str, Mapping[str, str]]
    brokers: dict[int, SimulatedBroker]
    look_at: Callable[[SimulatedBroker], None]
    anomaly: Callable[[str], None]


class SimulatedBroker:
    """One broker. `is_running` says whether its process runs; `is_paused`, that it sleeps."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.id = broker_id
        self.world = world
        self.machine = Machine(broker_id)
        self.clock = SetClock(world.loop)
        self.fs = CrashFileSystem(now_ms=self.clock.now_ms)
        self.is_running = self.is_paused = self.is_closed = False
        self.starts = 0
        self.epoch = -1
        self._tasks: set[asyncio.Task[Any]] = set()
        self.logs: LogManager
        self.replicas: ReplicaManager
        self.session: ModelSession
        self.controller: SimulatedController
        self.healing: SimulatedHealing

    # Life and death.

    def start(self) -> None:
        """Starts a process with what the disk has; it serves once it is registered in place of the former one."""
        world = self.world
        self.is_running, self.is_closed, self.epoch = True, False, -1
        self.starts += 1
        losses = self.machine.losses(self.fs, DATA_DIR)
        properties, boot_id = world.settings.log_properties(), self.machine.boot_id
        self.logs = LogManager(self.fs, self.clock, [DATA_DIR], properties, CLUSTER_ID, self.id, boot_id=boot_id)
        self.logs.start()
        self._wire()
        self.machine.write(self.session, losses)
        self.spawn(self._register())
        for chore in (self._chores(), *self.healing.chores()):
            self.spawn(chore)

    def die(self, *, power_cut: bool = False, wipe: bool = False) -> None:
        """Ends the process if it runs; with `power_cut` also the machine, and with `wipe` the disk."""
        if self.is_running:
            self._end_process()
            self.session.disconnect()
            self.world.loop.call_later(self.world.settings.session_timeout_s, self._expire, self.session)
        if power_cut:
            self.machine.starts_again()
        if wipe:
            self.fs = CrashFileSystem(now_ms=self.clock.now_ms)
        else:
            self.fs = self.fs.after_cut(self.world.chance) if power_cut else self.fs.after_kill()

    async def shut_down(self) -> None:
        """Stops in order: leaders move, logs are closed, the session ends. Goes on where the controller fails."""
        starts, epoch, controller = self.starts, self.epoch, self._controller()
        if epoch >= 0 and controller is not None and self.world.network.passes(self.id, controller.id):
            moved = asyncio.wrap_future(controller.controller.asked(lambda active: active.shut_down(self.id, epoch)))
            with suppress(MillraceError, TimeoutError):
                await asyncio.wait_for(moved, LONGEST_SHUTDOWN_S)
        if self.is_running and not self.is_paused and self.starts == starts:
            self._end_process()
            self.logs.stop_lanes()
            with suppress(StorageError):  # the disk is full, and the next start recovers the logs
                self.logs.checkpoint_high_watermarks(self.replicas.high_watermarks())
                self.logs.close(epochs_are_raised=True)
            self.is_closed = True
            self.session.close()
            self.fs = self.fs.after_kill()

    def _end_process(self) -> None:
        self.is_running = self.is_paused = False
        self.world.network.die(self.id)
        for task in self._tasks:
            task.cancel()
        for running in self._fetchers._running.values():  # noqa: SLF001  a kill asks no one
            running.task.cancel()
        for task in self._roles._at_work:  # noqa: SLF001
            task.cancel()
        self._coordinator.die()
        self.controller.die()

    def pause(self) -> None:
        """Lets the process sleep; its session may end meanwhile."""
        self.is_paused = True
        self.world.network.pause(self.id)
        self.controller.pause()
        self.world.loop.call_later(
            self.world.settings.session_timeout_s, self._expire_if_paused, self.session, self.starts
        )

    def resume(self) -> None:
        """Wakes the process, which finds out a moment later that its session has ended."""
        self.is_paused = False
        self.world.network.resume(self.id)
        self.controller.resume()
        self.world.loop.call_later(self.world.chance.uniform(0, 0.5), self.reconnect, self.session)

    def lose_zookeeper(self) -> None:
        """Cuts the broker off from ZooKeeper, which ends the session in time."""
        self.session.disconnect()
        self.world.loop.call_later(self.world.settings.session_timeout_s, self._expire_if_lost, self.session)

    def reconnect(self, session: ModelSession) -> None:
        """Lets the process find ZooKeeper again."""
        if self.is_running and session is self.session:
            session.connect()

    def _expire(self, session: ModelSession) -> None:
        if not session.is_expired:
            self.world.zookeeper.expire(session)

    def _expire_if_lost(self, session: ModelSession) -> None:
        if session.is_lost:
            self._expire(session)

    def _expire_if_paused(self, session: ModelSession, starts: int) -> None:
        if self.is_paused and self.starts == starts and session is self.session:
            self._expire(session)

    # The parts.

    def _wire(self) -> None:
        world = self.world
        self._cleaner = LogCleaner(self.fs, self.clock, self.logs, CLEANER)
        self._isr_changes = IsrChangeSender(lambda: Sender(self.id, self.epoch), self._controllers_address)
        self.replicas = ReplicaManager(
            self.logs,
            Purgatory(self._timers()),
            IsrTables(self.id, self.clock, world.settings.lag_time_max_ms, self._isr_changes.propose),
        )
        longest_s = world.chance.choice(LONGEST_SYNCS_S)
        for data_dir in self.logs.dirs.all:
            worker = WorkerOfALoop(self._timers(), partial(world.chance.uniform, SYNC_S, longest_s))
            data_dir.lane.start(worker, self.replicas.synced, retry_s=0)
        self.spawn(self._isr_changes._run(self.replicas.isr_answered))  # noqa: SLF001  ends as all its tasks do
        quota = ReplicationQuota(self.id, self.clock)
        self._fetchers = ReplicaFetchers(
            FETCH,
            FollowingBroker(
                self.id,
                lambda: self.epoch,
                partial(world.network.address, self.id),
                self.logs,
                self._went_offline,
                self.replicas.purgatory.check,
                quota,
            ),
        )
        metadata = MetadataCache(MetadataImage(CLUSTER_ID, -1, {}, {}))
        self.session = ModelSession(world.zookeeper, None, self._zookeeper_changed, self._soon)
        address_of = partial(world.network.address, self.id)
        parts = CoordinatingBroker(
            self.id, self.replicas, metadata, self.session, address_of, self.clock, self._timers(), self._call_soon()
        )
        self._coordinator = coordinator = new_coordinator(parts, session_timeout_ms(world.network))
        self.healing = SimulatedHealing(parts, lambda: self.is_paused, world.anomaly)
        listeners = (coordinator.groups.led, coordinator.txns.led)
        self._roles = PartitionRoles(
            self.id, self.replicas, self._fetchers, listeners, self._topic_config, topic_id=self._topic_id
        )
        self.controller = SimulatedController(
            self.session, self.id, address_of, self.clock, world.chance, world.anomaly
        )
        self._services = self._new_services(metadata, quota)

    def _new_services(self, metadata: MetadataCache, quota: ReplicationQuota) -> Services:
        """Returns what the handlers use."""
        coordinator, session_id = self._coordinator, partial(self.world.chance.randrange, 1, 1 << 30)
        return cast(
            "Services",
            SimpleNamespace(
                config=BrokerConfig(),
                clock=self.clock,
                metadata=metadata,
                replicas=self.replicas,
                groups=coordinator.groups,
                consumer_groups=coordinator.consumer_groups,
                producer_ids=coordinator.producer_ids,
                txns=coordinator.txns,
                admission=coordinator.admission,
                workers=None,
                take_update=self._take_update,
                broker_id=self.id,
                fetch_sessions=FetchSessions(100, session_id, self.replicas.changes),
                errors=Counter(),
                authorizer=None,
                fence=ControllerFence(lambda: self.epoch),
                roles=self._roles,
                leader_quota=quota,
                quotas=ClientQuotas(),
                controller=self.controller,
                produced_in_order=InOrder(),
                apis=SERVED,
            ),
        )

    def open_log(self, key: TopicPartition) -> Log | None:
        """Returns the log of a partition, also one that a kill has left; None where there is none, or it is closed."""
        return None if self.is_closed else self.logs.logs().get(key)

    def _timers(self) -> CallLater:
        """Returns what sets timers of this process, which end with it."""
        starts = self.starts

        def call_later(delay_s: float, do: Callable[[], None]) -> asyncio.TimerHandle:
            return self.world.loop.call_later(delay_s, self._fire, starts, do)

        return call_later

    def _call_soon(self) -> CallSoon:
        """Returns what calls a function of this process soon, unless it has ended by then."""
        starts = self.starts
        return lambda do: self.world.loop.call_soon(self._fire, starts, do)

    def _fire(self, starts: int, do: Callable[[], None]) -> None:
        if self._is_process(starts):
            do()

    def _is_process(self, starts: int) -> bool:
        """Returns whether the process with this number runs."""
        return self.is_running and self.starts == starts

    def _take_update(self, update: MetadataUpdate) -> None:
        """Takes what the controller says of brokers and partitions."""
        metadata = self._services.metadata
        metadata.update(updated_image(metadata.image, update))
        self.replicas.take_live_brokers(update.brokers)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a task of the process."""
        task = self.world.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.world.anomaly(f"broker {self.id}: {task.exception()!r}")

    def _soon(self, tell: Callable[[], None]) -> None:
        self.world.loop.call_later(self.world.chance.uniform(0, LONGEST_NEWS_S), self._tell, self.starts, tell)

    def _tell(self, starts: int, tell: Callable[[], None]) -> None:
        if self._is_process(starts):
            if self.is_paused:
                self._soon(tell)
                return
            try:
                tell()
            except MillraceError:
                self._soon(lambda: self._zookeeper_changed(None))

    def _zookeeper_changed(self, changed: frozenset[str] | None) -> None:
        self.controller.zookeeper_changed(changed)

    async def _register(self) -> None:
        registration = codec.BrokerRegistration(
            endpoints=(plaintext_endpoint(f"broker-{self.id}", 9092),),
            rack=None,
            timestamp_ms=self.clock.now_ms(),
            registers_again=True,
            min_insync_replicas=self.world.settings.min_isr,
        )
        data = codec.encode_broker(registration)
        await self.healing.report_damage()  # before anyone is elected here
        while True:
            try:
                if (
                    self.session.register(paths.broker(self.id), data, wait_ms=0, on_registered=self._registered)
                    is None
                ):
                    self.machine.confirm(self.session, self.epoch)
                    break
            except MillraceError:  # cut off from ZooKeeper
                pass
            await asyncio.sleep(0.3)
        self.world.network.listen(
            self.id, partial(BrokerServer, self._services, self.handlers(), self.look, self._owes)
        )
        self.controller.start()

    def handlers(self) -> Mapping[ApiKey, Callable[[Services, Request], Reply]]:
        """Returns what answers requests."""
        return HANDLERS

    def _registered(self, czxid: int) -> None:
        self.epoch = czxid

    def _went_offline(self, topic_partition: TopicPartition) -> None:
        self.world.anomaly(f"broker {self.id}: {topic_partition} went offline")

    async def _chores(self) -> None:
        elapsed_s = 0.0
        while True:
            await asyncio.sleep(CHECKPOINT_S)
            elapsed_s += CHECKPOINT_S
            with suppress(StorageError):  # the disk is full
                self.logs.checkpoint_high_watermarks(self.replicas.high_watermarks())
            if not self.is_paused:
                await self._coordinator.txns.abort_timed_out()
                self._look_after_logs()
            if elapsed_s >= self.world.settings.lag_time_max_ms / 2000:
                elapsed_s = 0.0
                self.replicas.check_in_sync_replicas()
                self._ask_for_refused_roles()

    def _look_after_logs(self) -> None:
        """Applies retention and compacts, when chance says so: brokers do it at different times.

        Judges look before at what all leaders have, as readers may, and after it at what is left.
        """
        if not self.world.topic_configs or self.world.chance.random() < 0.5:
            return
        for broker in self.world.brokers.values():
            broker.look()
        with suppress(StorageError):  # the disk is full
            for _ in self.logs.retention():
                pass
            self.logs.remove_deleted()
            self._cleaner.run()
            self.logs.release_replaced()
        self.look()

    def _ask_for_refused_roles(self) -> None:
        """Does what `ClusterMember` does, without its threads."""
        if self.replicas.has_refused_roles:
            event = Create(paths.LOG_DIR_EVENT, codec.encode_log_dir_failure(self.id), sequential=True)
            with suppress(MillraceError):  # cut off from ZooKeeper
                self.session.multi([event])

    def _topic_id(self, name: str) -> UUID | None:
        data = self.session.get(paths.topic(name))
        return None if data is None else codec.decode_topic(data).topic_id

    def _topic_config(self, name: str) -> Mapping[str, str]:
        return self.world.topic_configs.get(name, {})

    def _owes(self, what: str) -> None:
        self.world.anomaly(f"broker {self.id}: {what} is not answered")

    def look(self) -> None:
        """Lets the judges look at the broker, if it runs."""
        if self.is_running:
            self.world.look_at(self)

    # What it asks the controller.

    def _controller(self) -> SimulatedBroker | None:
        """Returns the controller as ZooKeeper names it."""
        node = self.world.zookeeper.nodes.get(paths.CONTROLLER)
        return None if node is None else self.world.brokers[codec.decode_controller(node.data)]

    def _controllers_address(self) -> Address | None:
        """Returns where the controller listens that the newest metadata names."""
        controller = self._services.metadata.image.controller_id
        return self.world.network.address(self.id, controller) if controller in self.world.brokers else None


def _produce(services: Services, request: Request) -> Reply:
    (reply,) = k00_produce.handle_all(services, [request])
    if isinstance(reply, Exception):
        raise reply
    return reply


def _fetch(services: Services, request: Request) -> Reply:
    reply = k01_fetch.handle(services, request)
    return reply.work() if isinstance(reply, InTurns) else reply


HANDLERS: Mapping[ApiKey, Callable[[Services, Request], Reply]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: log_offsets.list_offsets,
    ApiKey.DELETE_RECORDS: log_offsets.delete_records,
    ApiKey.LEADER_AND_ISR: control_requests.leader_and_isr,
    ApiKey.STOP_REPLICA: control_requests.stop_replica,
    ApiKey.UPDATE_METADATA: control_requests.update_metadata,
    ApiKey.OFFSET_COMMIT: offset_commits.commit,
    ApiKey.OFFSET_FETCH: k09_offset_fetch.handle,
    ApiKey.FIND_COORDINATOR: k10_find_coordinator.handle,
    ApiKey.JOIN_GROUP: classic_members.join,
    ApiKey.HEARTBEAT: classic_members.heartbeat,
    ApiKey.LEAVE_GROUP: classic_members.leave,
    ApiKey.SYNC_GROUP: classic_members.sync,
    ApiKey.API_VERSIONS: k18_api_versions.handle,
    ApiKey.ALTER_PARTITION: controller_requests.alter_partition,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_groups.heartbeat,
    ApiKey.INIT_PRODUCER_ID: transactions.init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: transaction_partitions.add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.add_offsets,
    ApiKey.END_TXN: transactions.end,
    ApiKey.WRITE_TXN_MARKERS: transaction_partitions.write_markers,
    ApiKey.TXN_OFFSET_COMMIT: offset_commits.commit_in_transaction,
}

ASKED_FOR_VERSIONS = (*controller_requests.APIS, *transaction_partitions.APIS)  # by brokers, of each other
SERVED: Mapping[int, Api] = {api.key: api for api in ASKED_FOR_VERSIONS if api.key in HANDLERS}
