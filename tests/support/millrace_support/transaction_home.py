"""One broker's transactions and groups on real logs, whose replicas, neighbours and timers do what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from millrace.errors import ErrorCode, StorageError
from millrace.fs import FileSystem, OsFileSystem
from millrace.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from millrace.records.batch import TRANSACTIONAL_FLAG, Buffer
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace_broker.cluster.local_store import LocalStore
from millrace_broker.cluster.metadata_cache import DeletionLookup, MetadataCache
from millrace_broker.cluster.metadata_image import MetadataImage, PartitionInfo, TopicInfo
from millrace_broker.cluster.producer_ids import ProducerIds
from millrace_broker.cluster.topic_manager import TopicManager
from millrace_broker.groups.group_coordinator import GroupCoordinator
from millrace_broker.properties.broker_config import BrokerConfig
from millrace_broker.properties.coordinator_config import GroupConfig, TransactionConfig
from millrace_broker.replication.isr_tables import IsrTables
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.purgatory import Purgatory
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.roles import Leadership
from millrace_broker.storage import AppendOrigin, LogAppendInfo, LogManager, TopicPartition
from millrace_broker.txns.admission import Admission, ClientSupport, TransactionalWrite
from millrace_broker.txns.markers import Marker, MarkerSender, MarkerWriter
from millrace_broker.txns.state import Producer, TransactionState
from millrace_broker.txns.transaction import End, InitProducer
from millrace_broker.txns.transaction_coordinator import TransactionCoordinator
from millrace_support.clock import ManualClock

EVENTS = TopicPartition("events", 0)
OFFSETS, STATES = TopicPartition(OFFSETS_TOPIC, 0), TopicPartition(TRANSACTION_TOPIC, 0)
PARTITIONS = (STATES, OFFSETS, EVENTS)
MINUTE_MS = 60_000
PRODUCER = Producer(1, 0)


class Replicas(ReplicaManager):
    """Followers of the states that lag behind until they are told to come, and partitions that can't be written."""

    lag = False
    refused: Collection[TopicPartition] = ()

    def append(
        self, topic_partition: TopicPartition, batches: Buffer, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> tuple[Partition, LogAppendInfo]:
        """Appends as the broker does, though no state that is appended counts as replicated while followers lag."""
        self.check(topic_partition)
        partition = self.partition(topic_partition)
        known = partition.high_watermark
        appended = super().append(topic_partition, batches, origin)
        if self.lag and topic_partition == STATES:
            partition.high_watermark = known
        return appended

    def check(self, topic_partition: TopicPartition) -> None:
        """Raises StorageError where the partition can't be written."""
        if topic_partition in self.refused:
            raise StorageError("the disk is gone")

    def catch_up(self) -> None:
        """Lets the followers of the states have all of them."""
        partition = self.partition(STATES)
        partition.high_watermark = partition.log.log_end_offset
        self.purgatory.check(STATES)


class Elsewhere:
    """Other brokers, whose answers a test gives: `asked` has (broker, what it was asked, the future of its answer)."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Any, asyncio.Future[Any]]] = []

    def ask(self, broker_id: int, item: Any) -> asyncio.Future[Any]:
        """Returns a future of the answer, which the test sets."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked.append((broker_id, item, answer))
        return answer


class Timer:
    """A timer that has been set."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work
        self.is_set = True

    def cancel(self) -> None:
        """Stops it from running."""
        self.is_set = False


class Home:
    """One broker's transactions and groups, without its sockets; timers run when a test says so."""

    def __init__(
        self,
        folder: Path,
        led: Collection[TopicPartition] = PARTITIONS,
        leader: int = 1,
        fs: FileSystem | None = None,
    ) -> None:
        self.timers: list[Timer] = []
        self.created: set[tuple[str, int]] = set()  # partitions that ZooKeeper has, whatever the image says
        self.clock = ManualClock()
        fs = fs or OsFileSystem()
        self.logs = LogManager(fs, self.clock, [str(folder)], {}, "A" * 22, 1)
        self.logs.start()
        self.replicas = Replicas(self.logs, Purgatory(self.call_later), IsrTables(1, self.clock))
        self.topics = {
            key.topic: TopicInfo(key.topic, UUID(int=number), (PartitionInfo(0, leader, 0, (1,), (1,)),), {})
            for number, key in enumerate(PARTITIONS, 1)
        }
        self.metadata = MetadataCache(MetadataImage("c", 1, {}, self.topics))
        store = LocalStore(fs, str(folder))
        manager = TopicManager(BrokerConfig.from_properties({}), store, self.metadata, lambda _: None)
        self.groups = GroupCoordinator(
            GroupConfig(), self.replicas, self.metadata, manager, clock=self.clock, call_later=self.call_later
        )
        self.elsewhere = cast("Any", Elsewhere())
        self.txns = TransactionCoordinator(
            TransactionConfig(transaction_state_log_load_buffer_size=200),
            self.replicas,
            self.metadata,
            manager,
            MarkerSender(
                MarkerWriter(self.replicas, self.groups, self.clock), self.metadata, self.elsewhere, broker_id=1
            ),
            deletions=DeletionLookup(self.metadata, self.has_partition),
            broker_id=1,
            producer_ids=ProducerIds(lambda at_least: store.reserve_producer_ids(1, at_least), lambda: 0),
            clock=self.clock,
            call_later=self.call_later,
            call_soon=asyncio.get_running_loop().call_soon,
        )
        self.admission = Admission(self.txns, self.elsewhere)
        for key in led:
            self.lead(key)

    def has_partition(self, topic: str, index: int) -> bool:
        """Returns whether ZooKeeper has a partition."""
        return (topic, index) in self.created

    def admit(self, support: ClientSupport) -> Any:
        """Admits a batch of `PRODUCER` in transaction `t`; returns the errors, or the verification."""
        write = TransactionalWrite("t", PRODUCER, support)
        return self.admission.admit(write, {EVENTS: self.replicas.partition(EVENTS)})

    def end_in_partition(self, producer: Producer) -> None:
        """Writes a marker, as the coordinator on another broker does."""
        errors: list[ErrorCode] = []
        self.txns.markers.local.write(EVENTS, Marker(producer, False, 0), errors.append)
        assert errors == [ErrorCode.NONE]

    def move(self, key: TopicPartition, leader: int) -> None:
        """Lets the cluster's image have another leader of a topic."""
        topic = self.topics[key.topic]
        self.topics[key.topic] = replace(topic, partitions=(PartitionInfo(0, leader, 1, (leader,), (leader,)),))
        self.metadata.update(MetadataImage("c", 1, {}, dict(self.topics)))

    async def init_error(self) -> ErrorCode:
        """Returns the error of InitProducerId for transaction `t`."""
        return (await self.txns.init_producer("t", InitProducer(MINUTE_MS))).error

    def lead(self, key: TopicPartition, leader_epoch: int = 0) -> None:
        """Leads a partition from now on, which this broker may coordinate by."""
        leadership = Leadership.alone(1, leader_epoch)
        self.replicas.lead(key, self.topics[key.topic].topic_id, {}, leadership)
        self.groups.led.elected(key)
        self.txns.led.elected(key)

    def call_later(self, delay_s: float, work: Callable[[], None]) -> Timer:  # noqa: ARG002  the test says when
        """Sets a timer."""
        timer = Timer(work)
        self.timers.append(timer)
        return timer

    def run_timers(self) -> None:
        """Runs the timers that are set by now."""
        timers, self.timers = self.timers, []
        for timer in timers:
            if timer.is_set:
                timer.work()

    async def loaded(self) -> None:
        """Waits until all that is led is loaded."""
        await asyncio.gather(*self.txns.led._loading, *self.groups.led._loading)  # noqa: SLF001
        await asyncio.sleep(0)  # what was decided is carried out

    async def init(self, name: str = "t", **options: Any) -> Producer:
        """Returns the producer of a transactional id."""
        error, producer = await self.txns.init_producer(name, InitProducer(MINUTE_MS, **options))
        assert not error, error
        return producer

    async def add(self, producer: Producer, *keys: TopicPartition, name: str = "t", version: int = 0) -> ErrorCode:
        """Adds partitions to a transaction, `EVENTS` unless others are given; returns the error."""
        return (await self.txns.add_partitions(name, producer, keys or [EVENTS], version)).error

    async def end(self, producer: Producer, *, is_commit: bool = True, name: str = "t", version: int = 0) -> ErrorCode:
        """Ends a transaction and returns the error."""
        error, _ = await self.txns.end(name, End(producer, is_commit, version))
        await asyncio.sleep(0)  # what follows the answer comes before the next request
        return error

    def produce(self, producer: Producer, sequence: int = 0) -> None:
        """Appends a record of a transaction."""
        sender = BatchProducer(*producer, sequence)
        self.replicas.append(EVENTS, encode_batch([NewRecord(b"v")], producer=sender, flags=TRANSACTIONAL_FLAG))

    def state(self, name: str = "t") -> TransactionState:
        """Returns the state of a transaction."""
        transaction = self.txns.find(name)
        assert not isinstance(transaction, ErrorCode), transaction
        return transaction.state

    @property
    def is_stable(self) -> bool:
        """Whether no transaction is open in the partition."""
        partition = self.replicas.partition(EVENTS)
        return partition.last_stable_offset == partition.high_watermark

    def close(self) -> None:
        """Ends what the coordinators do, and closes the logs."""
        self.groups.led.close()
        self.txns.led.close()
        self.logs.close()
