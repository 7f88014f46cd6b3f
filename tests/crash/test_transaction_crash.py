"""The process ends, or the power goes, at every operation of a transaction's coordinator: all of it counts or nothing.

The transactions write to two topics and commit offsets. What comes after the crash is what a client does: it
asks for its producer id again, which waits for a decision that was made and aborts what was not decided.
"""

import asyncio
from itertools import islice
from random import Random
from uuid import UUID

import pytest

from millrace.errors import CoordinatorLoadInProgressError, ErrorCode
from millrace.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from millrace.records.batch import TRANSACTIONAL_FLAG
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace_broker.cluster.local_store import LocalStore
from millrace_broker.cluster.metadata_cache import DeletionLookup, MetadataCache
from millrace_broker.cluster.metadata_image import MetadataImage, PartitionInfo, TopicInfo
from millrace_broker.cluster.producer_ids import ProducerIds
from millrace_broker.cluster.topic_manager import TopicManager
from millrace_broker.groups import commits
from millrace_broker.groups.commits import Commit
from millrace_broker.groups.group import Committer
from millrace_broker.groups.group_coordinator import GroupCoordinator
from millrace_broker.properties.broker_config import BrokerConfig
from millrace_broker.properties.coordinator_config import GroupConfig, TransactionConfig
from millrace_broker.replication.isr_tables import IsrTables
from millrace_broker.replication.purgatory import Purgatory
from millrace_broker.replication.replica import Isolation
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.roles import Leadership
from millrace_broker.storage import LogManager, TopicPartition
from millrace_broker.txns.markers import MarkerRequests, MarkerSender, MarkerWriter, write_markers
from millrace_broker.txns.transaction import End, InitProducer
from millrace_broker.txns.transaction_coordinator import TransactionCoordinator
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.read_committed import committed_records

LEFT, RIGHT = TopicPartition("left", 0), TopicPartition("right", 0)
OFFSETS, STATES = TopicPartition(OFFSETS_TOPIC, 0), TopicPartition(TRANSACTION_TOPIC, 0)
PARTITIONS = (STATES, OFFSETS, LEFT, RIGHT)
SOURCE = TopicPartition("source", 0)
DEADLINE_S = 120
COMMITS = (True, False, True)


class Home:
    """One broker's transactions and groups, without its sockets; a new one takes over what is on the disk."""

    def __init__(self, fs, *, flush_messages=None):
        self.clock = ManualClock()
        defaults = {} if flush_messages is None else {"log.flush.interval.messages": str(flush_messages)}
        self.logs = LogManager(fs, self.clock, ["/data"], defaults, "A" * 22, 1)
        self.logs.start()
        loop = asyncio.get_running_loop()
        self.replicas = ReplicaManager(self.logs, Purgatory(loop.call_later), IsrTables(1, self.clock))
        partition = PartitionInfo(0, 1, 0, (1,), (1,))
        topics = {
            key.topic: TopicInfo(key.topic, UUID(int=number), (partition,), {})
            for number, key in enumerate(PARTITIONS, 1)
        }
        metadata = MetadataCache(MetadataImage("c", 1, {}, topics))
        store = LocalStore(fs, "/data")
        manager = TopicManager(BrokerConfig.from_properties({}), store, metadata, lambda _: None)
        shared = {"clock": self.clock, "call_later": loop.call_later}
        requests = MarkerRequests(write_markers, metadata.address_of, "alone")
        self.groups = GroupCoordinator(GroupConfig(), self.replicas, metadata, manager, **shared)
        self.txns = TransactionCoordinator(
            TransactionConfig(),
            self.replicas,
            metadata,
            manager,
            MarkerSender(MarkerWriter(self.replicas, self.groups, self.clock), metadata, requests, broker_id=1),
            deletions=DeletionLookup(metadata, store.has_partition),
            broker_id=1,
            producer_ids=ProducerIds(lambda at_least: store.reserve_producer_ids(1, at_least), lambda: 0),
            call_soon=loop.call_soon,
            **shared,
        )
        for key in PARTITIONS:  # the coordinator loads first, so its markers find the other partitions not led yet
            self.replicas.lead(key, topics[key.topic].topic_id, {}, Leadership.alone(1))
            self.groups.led.elected(key)
            self.txns.led.elected(key)

    async def init(self):
        """Returns the producer of the transactional id, once the transaction before has ended."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                error, producer = await self.txns.init_producer("t", InitProducer(60_000))
                if not error:
                    return producer
                assert error in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), error
                await asyncio.sleep(0)

    async def transact(self, producer, number, version, *, is_commit):
        """Writes the number to both topics and as the offset of the group; returns the producer that goes on."""
        for keys in ([LEFT], [RIGHT, OFFSETS]):
            added = await self.txns.add_partitions("t", producer, keys, version)
            assert not added.error
        for key in (LEFT, RIGHT):
            sequence = self.next_sequence(key, producer)
            batch = encode_batch(
                [NewRecord(b"%d" % number)],
                producer=BatchProducer(*producer, sequence),
                flags=TRANSACTIONAL_FLAG,
            )
            self.replicas.append(key, batch)
        errors = await commits.commit_in_transaction(
            self.groups, "g", Committer(is_transactional=True), [Commit(SOURCE, number)], BatchProducer(*producer, 0)
        )
        assert errors == {SOURCE: ErrorCode.NONE}
        ended = await self.txns.end("t", End(producer, is_commit, version))
        assert not ended.error
        return ended.producer

    def next_sequence(self, key, producer):
        entry = self.replicas.partition(key).log.producers.entries.get(producer.producer_id)
        return entry.last_sequence + 1 if entry is not None and entry.epoch == producer.epoch else 0

    async def groups_loaded(self):
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    self.groups.shard("g")
                except CoordinatorLoadInProgressError:
                    await asyncio.sleep(0)
                else:
                    return

    def committed(self, key):
        """Returns the numbers that a reader of committed records sees."""
        partition = self.replicas.partition(key)
        found, offset = [], 0
        while offset < partition.last_stable_offset:
            records, aborted = partition.read(offset, 1 << 20, at_least_one=True, isolation=Isolation.READ_COMMITTED)
            found += [int(record.value) for record in committed_records(bytes(records), aborted)]
            offset = partition.last_stable_offset
        return found

    def offset(self):
        error, (fetched,) = commits.fetch(self.groups, "g", [SOURCE], require_stable=True)
        assert not error
        assert not fetched.error
        return fetched.offset

    def close(self):
        self.groups.led.close()
        self.txns.led.close()
        self.logs.close()


class Crash:
    """Collects the errors of work that no request waits for, which reach the event loop; in a process they end it."""

    def __init__(self):
        self._errors = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self._errors.append(context["exception"]))

    async def markers_written(self):
        """Lets the markers be written, which follow the answer, and raises the first error."""
        await asyncio.sleep(0)
        for error in self._errors:
            raise error


async def play(fs, version, told, *, flush_messages=None):
    """Runs transactions one after the other; `told` gets each number once the client has been told its end."""
    home, crash = Home(fs, flush_messages=flush_messages), Crash()
    producer = await home.init()
    for number, is_commit in enumerate(COMMITS, 1):
        producer = await home.transact(producer, number, version, is_commit=is_commit)
        told.append(number)
        await crash.markers_written()
    home.close()


async def judge(fs, told):
    """Takes over what the crash left, checks what readers see against `told`, and returns the committed numbers."""
    home = Home(fs)
    await home.groups_loaded()
    producer = await home.init()
    numbers = home.committed(LEFT)
    assert home.committed(RIGHT) == numbers
    assert home.offset() == max(numbers, default=-1)
    may_count = [number for number, is_commit in enumerate(COMMITS, 1) if is_commit]
    assert numbers == may_count[: len(numbers)]
    told_to_count = [number for number in told if number in may_count]
    assert told_to_count == numbers[: len(told_to_count)]
    for key in PARTITIONS:
        partition = home.replicas.partition(key)
        assert partition.last_stable_offset == partition.log.log_end_offset
    await home.transact(producer, 9, 2, is_commit=True)
    await Crash().markers_written()
    assert home.committed(LEFT)[-1] == home.committed(RIGHT)[-1] == home.offset() == 9
    home.close()
    return numbers


def fresh_fs():
    fs = CrashFileSystem()
    fs.mkdir("/data")
    fs.fsync_dir("/")
    return fs


@pytest.mark.parametrize("version", [0, 2], ids=["before KIP-890", "KIP-890"])
def test_a_transaction_counts_or_does_not_whenever_the_process_ends(version):
    fs, told, seen = fresh_fs(), [], set()
    for _ in fs.each_change(lambda: asyncio.run(play(fs, version, told))):
        seen.add(tuple(asyncio.run(judge(fs.after_kill(), told))))
    assert seen == {(), (1,), (1, 3)}


@pytest.mark.parametrize("version", [0, 2], ids=["before KIP-890", "KIP-890"])
def test_what_was_told_stays_told_whenever_the_power_goes(version):
    """Every record is synced; of what was not synced, chance decides what is lost."""
    fs, told, chance = fresh_fs(), [], Random(version)
    life = fs.each_change(lambda: asyncio.run(play(fs, version, told, flush_messages=1)))
    for operation in islice(life, 0, None, 3):
        asyncio.run(judge(fs.after_cut(chance if operation % 2 else None), told))
