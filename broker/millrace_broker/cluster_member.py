"""How a broker takes part in a cluster with ZooKeeper, from its registration to its end.

    join    it claims the role of the controller if no other broker has it, and waits until the controller, be it this
            broker or another one, has told of the topics and of what this broker leads
    leave   it asks the controller to let other brokers lead its partitions (ControlledShutdown), as often as
            controlled.shutdown.max.retries says and while there are others; then it gives the role of the controller up

A broker that can't reach the controller, or leads partitions that no other replica can take, stops all the same: the
controller elects other leaders once the registration has gone with the session. Without ZooKeeper most likely no
controller can elect anyone, so a broker that has lost it asks for a moment only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from millrace.client.connection import Connection
from millrace.errors import ErrorCode, MillraceError, NotControllerError, ZooKeeperError
from millrace.leader_states import NO_LEADER
from millrace.wire.messages import CONTROLLED_SHUTDOWN
from millrace.zk import codec, paths
from millrace_broker.cluster.metadata_image import MetadataImage, PartitionInfo
from millrace_broker.cluster.zookeeper_store import ZooKeeperStore
from millrace_broker.controller.active_controller import ControllerConfig
from millrace_broker.controller.controller import Controller
from millrace_broker.handlers.api import Services
from millrace_broker.replication.broker_link import BrokerLink, Connect
from millrace_broker.startup.options import BrokerOptions
from millrace_broker.storage import DirHealth, LogConfig, TopicPartition

if TYPE_CHECKING:
    from millrace.wire.messages.controlled_shutdown import ControlledShutdownRequestFields

logger = logging.getLogger(__name__)
T = TypeVar("T")

JOIN_TIMEOUT_S = 60.0
CONTROLLED_SHUTDOWN_VERSION = 3
ANSWER_TIMEOUT_S = 30.0
MAX_ANSWER_BYTES = 16 << 20
ZOOKEEPER_CHECK_INTERVAL_S = 0.25
ASKED_WITHOUT_ZOOKEEPER_S = 2.0


def new_member(options: BrokerOptions, services: Services, store: ZooKeeperStore) -> ClusterMember:
    """Returns this broker's part in the cluster in which it is about to register, with its controller."""
    is_unclean_allowed = LogConfig.from_properties(options.log_defaults, {}).unclean_leader_election_enable
    broker = options.broker
    config = ControllerConfig(
        deletes_topics=broker.delete_topic_enable,
        is_unclean_allowed=is_unclean_allowed,
        rebalance_interval_s=(
            float(broker.leader_imbalance_check_interval_seconds) if broker.auto_leader_rebalance_enable else None
        ),
        most_imbalance_percent=broker.leader_imbalance_per_broker_percentage,
        inter_broker_listener=options.inter_broker_listener,
    )
    connect = partial(
        Connection,
        client_id=str(services.broker_id),
        timeout_s=ANSWER_TIMEOUT_S,
        clock=services.clock,
        security=options.inter_broker_security,
    )
    services.controller = Controller(store.session, services.broker_id, config, connect, services.clock)
    link = partial(BrokerLink.connect, security=options.inter_broker_security)
    return ClusterMember(services, store, services.controller, link)


class ClusterMember:
    """This broker in its cluster: it joins, asks the controller what to lead and follow, and leaves.

    Args:
        services: what the broker knows of the cluster, and its configuration.
        store: the session with ZooKeeper, and the broker's epoch.
        controller: this broker as the controller, or as one that waits for the role.
        connect: makes connections to other brokers.
    """

    def __init__(
        self, services: Services, store: ZooKeeperStore, controller: Controller, connect: Connect = BrokerLink.connect
    ) -> None:
        self._connect = connect
        self._services = services
        self._store = store
        self._controller = controller
        self._reported_dirs: set[str] = set()
        self._reported_damage: frozenset[TopicPartition] | None = None

    async def join(self) -> None:
        """Becomes the controller if there is none, and waits until this broker knows the cluster and its partitions."""
        self._store.follow_nodes(self._controller.zookeeper_changed)
        self._controller.start()
        topics = await asyncio.to_thread(self._store.topics)
        try:
            await self._services.metadata.until(partial(self._is_told, topics), JOIN_TIMEOUT_S)
        except TimeoutError:
            logger.warning("no controller has told of the cluster yet; no partition is led or followed until then")

    def _is_told(self, topics: AbstractSet[str], image: MetadataImage) -> bool:
        """Returns whether the image has this broker and `topics`, and this broker leads whatever it is to lead."""
        return (
            self._services.broker_id in image.brokers
            and topics <= image.topics.keys()
            and not any(self._is_to_lead(name, one) for name, topic in image.topics.items() for one in topic.partitions)
        )

    def _is_to_lead(self, topic: str, partition: PartitionInfo) -> bool:
        """Returns whether this broker has yet to begin to lead: it is elected but was not told, or can be elected."""
        own_id = self._services.broker_id
        if partition.leader == own_id:
            return TopicPartition(topic, partition.index) not in self._services.replicas.partitions
        is_in_sync = own_id in partition.isr and own_id not in partition.offline_replicas
        return partition.leader == NO_LEADER and is_in_sync

    async def leave(self) -> None:
        """Hands over the partitions that this broker leads, resigns as the controller, and deletes its registration.

        This comes before the listeners close, as other brokers would take that for the end of the process.
        """
        if self._services.config.controlled_shutdown_enable:
            self._services.roles.follow_no_more()
            await self._hand_over()
        await asyncio.to_thread(self._controller.stop)
        await asyncio.to_thread(self._store.deregister_broker, self._services.broker_id)

    async def report_failed_dirs(self, folders: Collection[DirHealth]) -> None:
        """Tells the controller if data directories have failed since the last report.

        Where it raises ZooKeeperError, the next report tells of them again.
        """
        failed = {each.path for each in folders if each.reason is not None}
        if failed - self._reported_dirs:
            await self._ask_for_roles()
        self._reported_dirs = failed

    async def report_damage(self) -> None:
        """Tells the controller which logs are damaged, if that has changed since the last report.

        Where it raises ZooKeeperError, the next report tells it again.
        """
        damaged = await asyncio.to_thread(self._services.replicas.damaged)
        if damaged != self._reported_damage:
            await asyncio.to_thread(self._store.note_damage, self._services.broker_id, damaged)
            self._reported_damage = damaged

    async def ask_for_refused_roles(self) -> None:
        """Has the controller send LeaderAndIsr again for partitions that this broker refused, as with a full disk.

        Where it raises ZooKeeperError, the next call asks again.
        """
        if self._services.replicas.has_refused_roles:
            await self._ask_for_roles()

    async def _ask_for_roles(self) -> None:
        event = codec.encode_log_dir_failure(self._services.broker_id)
        await asyncio.to_thread(self._store.notify, paths.LOG_DIR_EVENT, event)

    async def _hand_over(self) -> None:
        config, metadata = self._services.config, self._services.metadata
        asked: int | None = None
        for attempt in range(config.controlled_shutdown_max_retries + 1):
            pause_s = config.controlled_shutdown_retry_backoff_ms / 1000 if attempt else 0.0
            try:
                await self._while_zookeeper_answers(self._until_alone(pause_s, asked))
                if self._is_alone(metadata.image):
                    return
                asked = metadata.image.controller_id
                left = await self._while_zookeeper_answers(self._ask_to_hand_over())
            except ZooKeeperError as error:
                logger.warning("the controller is not asked any more to move this broker's partitions: %s", error)
                return
            except MillraceError as error:
                logger.warning("the controller has not moved this broker's partitions: %s", error)
                continue
            if not left:
                return
            logger.warning("%d partitions have no other in-sync replica that could lead: %s", len(left), left[:10])

    async def _while_zookeeper_answers(self, work: Coroutine[object, object, T]) -> T:
        """Awaits `work` and returns its result; cancels it and raises ZooKeeperError if ZooKeeper is away too long."""
        task = asyncio.ensure_future(work)
        without_s = 0.0
        while not task.done():
            await asyncio.wait({task}, timeout=ZOOKEEPER_CHECK_INTERVAL_S)
            trouble = self._store.trouble()
            without_s = 0.0 if trouble is None else without_s + ZOOKEEPER_CHECK_INTERVAL_S
            if trouble is not None and without_s >= ASKED_WITHOUT_ZOOKEEPER_S and not task.done():
                task.cancel()
                raise ZooKeeperError(trouble)
        return task.result()

    async def _until_alone(self, timeout_s: float, asked: int | None) -> None:
        """Waits for `timeout_s`, or until no other broker is left, as where all of them are stopped at once.

        The wait also ends when the controller is no longer `asked`, the one that was asked: that one may have stopped.
        """

        def is_over(image: MetadataImage) -> bool:
            return self._is_alone(image) or (image.controller_id in image.brokers and image.controller_id != asked)

        with suppress(TimeoutError):
            await self._services.metadata.until(is_over, timeout_s)

    def _is_alone(self, image: MetadataImage) -> bool:
        """Returns whether no other broker is alive that could lead this one's partitions."""
        return not image.brokers.keys() - {self._services.broker_id}

    async def _ask_to_hand_over(self) -> list[tuple[str, int]]:
        """Asks the controller to move this broker's leaders; returns the partitions that this broker still leads."""
        image = self._services.metadata.image
        controller = self._services.metadata.address_of(image.controller_id)
        if controller is None:
            raise NotControllerError("no controller is known")
        link = await self._connect(
            controller,
            client_id=str(self._services.broker_id),
            timeout_s=ANSWER_TIMEOUT_S,
            max_response_bytes=MAX_ANSWER_BYTES,
        )
        fields: ControlledShutdownRequestFields = {
            "broker_id": self._services.broker_id,
            "broker_epoch": self._store.broker_epoch,
        }
        try:
            answer = await link.request(CONTROLLED_SHUTDOWN, CONTROLLED_SHUTDOWN_VERSION, fields)
        finally:
            link.close()
        if answer.error_code != ErrorCode.NONE:
            raise NotControllerError(f"broker {image.controller_id} answers {ErrorCode(answer.error_code).name}")
        return [(one.topic_name, one.partition_index) for one in answer.remaining_partitions]
