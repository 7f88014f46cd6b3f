"""The coordinator on a real log: loading, moving, transactions, and writes that wait for replicas or fail."""

import asyncio
from uuid import uuid4

import pytest

from millrace.clock import SystemClock
from millrace.errors import CoordinatorLoadInProgressError, ErrorCode, NotCoordinatorError, StorageError
from millrace.fs import OsFileSystem
from millrace.internal_topics import OFFSETS_TOPIC
from millrace.records.batch import TRANSACTIONAL_FLAG
from millrace.records.control import ControlType, EndTransactionMarker
from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace_broker.cluster.local_store import LocalStore
from millrace_broker.cluster.metadata_cache import MetadataCache
from millrace_broker.cluster.metadata_image import MetadataImage, PartitionInfo, TopicInfo
from millrace_broker.cluster.topic_manager import TopicManager
from millrace_broker.groups import commits, membership
from millrace_broker.groups.commits import Commit
from millrace_broker.groups.group import Committer, Join, JoinProtocol
from millrace_broker.groups.group_coordinator import GroupCoordinator, delete_group, list_groups, simple_group
from millrace_broker.groups.records import CommittedOffset, OffsetKey, offset_record
from millrace_broker.properties.broker_config import BrokerConfig
from millrace_broker.properties.coordinator_config import GroupConfig
from millrace_broker.replication.isr_tables import IsrTables
from millrace_broker.replication.purgatory import Purgatory
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.roles import Leadership
from millrace_broker.storage import AppendOrigin, LogManager, TopicPartition
from millrace_support.markers import append_marker

HOME = TopicPartition(OFFSETS_TOPIC, 0)
EVENTS = TopicPartition("events", 0)
PRODUCER_ID, EPOCH = 7, 0


class Replicas(ReplicaManager):
    """Followers that lag behind until they are told to come, and a disk that fails when it is told to."""

    lag = False
    failure = None

    def append(self, topic_partition, batches, origin=AppendOrigin.CLIENT):
        if self.failure is not None:
            raise self.failure
        partition = self.partition(topic_partition)
        known = partition.high_watermark
        info = partition.append(batches, origin)
        if self.lag:
            partition.high_watermark = known
        self.purgatory.check(topic_partition)
        return partition, info

    def catch_up(self):
        partition = self.partition(HOME)
        partition.high_watermark = partition.log.log_end_offset
        self.purgatory.check(HOME)


class Home:
    """A coordinator of one partition, in the folder of a log."""

    def __init__(self, folder):
        self.logs = LogManager(OsFileSystem(), SystemClock(), [str(folder)], {}, "A" * 22, 1)
        self.logs.start()
        loop = asyncio.get_running_loop()
        self.replicas = Replicas(self.logs, Purgatory(loop.call_later), IsrTables(1, SystemClock()))
        partition = PartitionInfo(0, 1, 0, (1,), (1,))
        topic = TopicInfo(OFFSETS_TOPIC, uuid4(), (partition,), {"cleanup.policy": "compact"})
        metadata = MetadataCache(MetadataImage("c", 1, {}, {OFFSETS_TOPIC: topic}))
        store = LocalStore(OsFileSystem(), str(folder))
        topics = TopicManager(BrokerConfig.from_properties({}), store, metadata, lambda _: None)
        self.coordinator = GroupCoordinator(
            GroupConfig(group_initial_rebalance_delay_ms=0, offsets_load_buffer_size=200, offsets_commit_timeout_ms=50),
            self.replicas,
            metadata,
            topics,
            clock=SystemClock(),
            call_later=loop.call_later,
        )
        topic_id = self.logs.topic_id(HOME) or topic.topic_id
        self.replicas.lead(HOME, topic_id, topic.config, Leadership.alone(1))

    async def lead(self):
        self.coordinator.led.elected(HOME)
        while True:
            try:
                return self.coordinator.shard("g")
            except CoordinatorLoadInProgressError:
                await asyncio.sleep(0)

    async def commit(self, offset, *, group="g"):
        errors = await commits.commit(self.coordinator, group, Committer(), [Commit(EVENTS, offset, metadata="note")])
        return errors[EVENTS]

    def fetch(self, *, require_stable=False):
        _, (one,) = commits.fetch(self.coordinator, "g", [EVENTS], require_stable=require_stable)
        return one.error, one.offset

    def join(self, member_id=""):
        ticket = asyncio.get_running_loop().create_future()
        protocols = (JoinProtocol("range", b""),)
        membership.join(
            self.coordinator, "g",
            Join(ticket, member_id, None, "c", "/h", 600_000, 600_000, "consumer", protocols, "m-1", False, True),
        )  # fmt: skip
        return ticket

    def close(self):
        self.coordinator.led.close()
        self.logs.close()


@pytest.fixture
def play(tmp_path):
    """Run a scene on a coordinator; the folder stays for the next one."""

    def run(scene):
        async def whole():
            home = Home(tmp_path)
            try:
                return await asyncio.wait_for(scene(home), 30)
            finally:
                home.close()

        return asyncio.run(whole())

    return run


def test_a_partition_that_is_not_led_here_is_not_coordinated(play):
    async def scene(home):
        with pytest.raises(NotCoordinatorError, match="__consumer_offsets-0"):
            home.coordinator.shard("g")
        await home.lead()
        assert home.fetch() == (0, -1)
        home.coordinator.led.resigned(HOME)
        with pytest.raises(NotCoordinatorError):
            home.coordinator.shard("g")

    play(scene)


def test_whoever_waits_is_told_that_the_coordinator_has_moved(play):
    async def scene(home):
        await home.lead()
        waiting = home.join()
        home.coordinator.led.resigned(HOME)
        assert (await waiting).error == ErrorCode.NOT_COORDINATOR

    play(scene)


def test_groups_are_loaded_piece_by_piece_and_till_then_not_served(play):
    async def first(home):
        await home.lead()
        for number in range(100):
            assert await home.commit(number, group=f"g{number % 10}") == 0

    async def second(home):
        home.coordinator.led.elected(HOME)
        with pytest.raises(CoordinatorLoadInProgressError):
            home.coordinator.shard("g")
        with pytest.raises(CoordinatorLoadInProgressError):
            list_groups(home.coordinator)
        assert membership.heartbeat(home.coordinator, "g", "m", None, 1) == ErrorCode.NONE
        shard = await home.lead()
        found = {name: shard.offsets.get(OffsetKey(name, *EVENTS)).offset for name in shard.groups}
        assert found == {f"g{number}": 90 + number for number in range(10)}
        assert {one.state for one in list_groups(home.coordinator)} == {"Empty"}

    play(first)
    play(second)


def test_a_partition_that_moves_away_while_it_is_loaded_is_let_go(play):
    async def first(home):
        await home.lead()
        await home.commit(1)

    async def second(home):
        home.coordinator.led.elected(HOME)
        home.coordinator.led.resigned(HOME)
        with pytest.raises(NotCoordinatorError):
            home.coordinator.shard("g")
        await home.lead()
        assert home.fetch() == (0, 1)

    play(first)
    play(second)


@pytest.mark.parametrize(
    ("ending", "pending", "expected"),
    [(None, True, 1), (ControlType.ABORT, False, 1), (ControlType.COMMIT, False, 2)],
)
def test_offsets_of_transactions_count_once_these_are_committed(play, ending, pending, expected):
    async def first(home):
        await home.lead()
        await home.commit(1)
        record = offset_record(OffsetKey("g", *EVENTS), CommittedOffset(2))
        batch = encode_batch(
            [NewRecord(record.value, record.key, 1)], producer=BatchProducer(PRODUCER_ID, EPOCH, 0),
            flags=TRANSACTIONAL_FLAG,
        )  # fmt: skip
        home.replicas.append(HOME, batch)
        if ending is not None:
            marker = EndTransactionMarker(ending, 0)
            append_marker(home.logs.get(HOME), marker, producer_id=PRODUCER_ID, producer_epoch=EPOCH, leader_epoch=0)

    async def second(home):
        await home.lead()
        assert home.fetch() == (0, expected)
        stable = (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1) if pending else (0, expected)
        assert home.fetch(require_stable=True) == stable

    play(first)
    play(second)


def test_a_commit_is_answered_when_the_replicas_have_it(play):
    async def scene(home):
        await home.lead()
        await home.commit(1)
        home.replicas.lag = True
        waiting = asyncio.ensure_future(home.commit(2))
        await asyncio.sleep(0)
        assert home.fetch() == (0, 1)
        assert home.fetch(require_stable=True)[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
        home.replicas.catch_up()
        assert await waiting == 0
        assert home.fetch(require_stable=True) == (0, 2)

    play(scene)


def test_replicas_that_take_too_long_are_waited_for_no_longer(play):
    async def scene(home):
        await home.lead()
        home.replicas.lag = True
        assert await home.commit(1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert home.fetch(require_stable=True) == (0, -1)

    play(scene)


def test_too_few_in_sync_take_no_offsets(play):
    async def scene(home):
        await home.lead()
        await home.commit(1)
        log, before = home.replicas.partition(HOME).log, home.replicas.partition(HOME).log.log_end_offset
        config = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
        home.replicas.lead(HOME, home.replicas.partition(HOME).topic_id, config, Leadership(1, 0, (1, 2), (1,)))
        assert await home.commit(2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (log.log_end_offset, home.fetch(require_stable=True)) == (before, (0, 1))

    play(scene)


def test_a_disk_that_fails_changes_nothing(play):
    async def scene(home):
        await home.lead()
        await home.commit(1)
        home.replicas.failure = StorageError("no space")
        assert await home.commit(2) == ErrorCode.NOT_COORDINATOR
        assert await delete_group(home.coordinator, "g") == ErrorCode.NOT_COORDINATOR
        home.replicas.failure = None
        assert home.fetch(require_stable=True) == (0, 1)
        assert await delete_group(home.coordinator, "g") == ErrorCode.NONE
        assert home.fetch() == (0, -1)

    play(scene)


MANY = 400
SMALL_BATCHES = {"cleanup.policy": "compact", "max.message.bytes": "2000"}


async def commit_many(home):
    """So many that their tombstones are more than a batch holds."""
    shard = await home.lead()
    for partition in range(MANY):
        entry = CommittedOffset(1, commit_timestamp_ms=0)
        shard.commit([(OffsetKey("g", "events", partition), entry)], lambda error: None)
        simple_group(shard, "g")
    home.logs.create(HOME, home.logs.topic_id(HOME), SMALL_BATCHES)
    return shard


async def delete(home):
    return await delete_group(home.coordinator, "g")


async def delete_topic(home):
    home.coordinator.topics_deleted(["events"])
    return ErrorCode.NONE


async def expire(home):
    assert await home.coordinator.expire_offsets() == MANY
    return ErrorCode.NONE


@pytest.mark.parametrize(("forget", "groups"), [(delete, 0), (delete_topic, 1), (expire, 0)])
def test_more_offsets_than_one_batch_has_tombstones_for_are_forgotten(play, forget, groups):
    async def first(home):
        shard = await commit_many(home)
        assert await forget(home) == ErrorCode.NONE
        assert (shard.offsets.count, len(shard.groups)) == (0, groups)

    async def second(home):
        shard = await home.lead()
        assert (shard.offsets.count, len(shard.groups)) == (0, groups)

    play(first)
    play(second)


def test_offsets_of_a_topic_that_is_deleted_while_they_are_loaded_are_forgotten(play):
    async def first(home):
        await home.lead()
        for number in range(20):
            await home.commit(number)

    async def second(home):
        home.coordinator.led.elected(HOME)
        home.coordinator.topics_deleted(["events"])
        with pytest.raises(CoordinatorLoadInProgressError):
            home.coordinator.shard("g")
        await home.lead()
        assert home.fetch() == (0, -1)

    play(first)
    play(second)
    play(second)


def test_offsets_of_a_deleted_topic_do_not_come_back_with_their_transaction(play):
    async def scene(home):
        shard = await home.lead()
        producer = BatchProducer(PRODUCER_ID, EPOCH, 0)
        committer = Committer(is_transactional=True)
        await commits.commit_in_transaction(home.coordinator, "g", committer, [Commit(EVENTS, 7)], producer)
        home.coordinator.topics_deleted(["events"])
        shard.end_transaction(PRODUCER_ID, is_commit=True)
        assert home.fetch(require_stable=True) == (0, -1)

    play(scene)


def test_expired_offsets_and_their_group_go_for_good(play):
    async def first(home):
        await home.lead()
        await home.commit(1)
        record = offset_record(OffsetKey("g", *EVENTS), CommittedOffset(2, commit_timestamp_ms=1))
        home.replicas.append(HOME, encode_batch([NewRecord(record.value, record.key, 1)]))

    async def second(home):
        shard = await home.lead()
        assert await home.coordinator.expire_offsets() == 1
        assert dict(shard.groups) == {}

    async def third(home):
        shard = await home.lead()
        assert (dict(shard.groups), shard.offsets.count) == ({}, 0)

    play(first)
    play(second)
    play(third)


def test_a_member_in_the_midst_of_a_rebalance_may_go_away(play):
    async def scene(home):
        shard = await home.lead()
        ticket = home.join()
        joined = await ticket
        assert (joined.error, joined.generation) == (0, 1)
        gone = home.join("m-1")
        gone.cancel()
        assert membership.heartbeat(home.coordinator, "g", "m-1", None, 1) == ErrorCode.NONE
        assert shard.groups["g"].state_name == "CompletingRebalance"

    play(scene)
