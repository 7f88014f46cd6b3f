"""What a controller's requests do to a broker: its logs, what it leads, follows and fetches, and its coordinators."""

import asyncio
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from millrace.errors import ErrorCode, StaleBrokerEpochError, StaleControllerEpochError, ZooKeeperError
from millrace.leader_states import LEADER_DURING_DELETE, NO_LEADER
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.controller_apis import EPOCH_DURING_DELETE
from millrace_broker.replication.isr_tables import IsrTables
from millrace_broker.replication.partition_roles import CHANGED_AT_ONCE, PartitionRoles, ReplicaFetchers
from millrace_broker.replication.purgatory import Purgatory
from millrace_broker.replication.replica_fetcher import FetchSettings, FollowingBroker
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.replication_quota import ReplicationQuota
from millrace_broker.replication.roles import ControllerFence, PartitionState, StopState
from millrace_broker.storage import LogManager, TopicPartition
from millrace_broker.storage.data_dirs.meta_properties import read_topic_id, write_topic_id
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.leading_broker import LeadingBroker, LedLog
from millrace_support.scripted_broker import ScriptedBroker
from millrace_support.until import until

ME, OTHER = 1, 2
TOPIC_ID, NEW_ID = UUID(int=7), UUID(int=8)
DRAWN_ID, DAMAGED_ID = UUID("3e3b1d8f-7a92-48de-9e49-d816ba8ea299"), UUID("3e3b1d8f-7b92-48de-9e49-d816ba8ea299")
T0, T1 = (TopicPartition("t", index) for index in (0, 1))
CONFIGS = {"t": {"segment.bytes": "1000"}}


class Told:
    """A listener that notes what it is told."""

    def __init__(self):
        self.led = []

    def elected(self, topic_partition):
        self.led.append(topic_partition)

    def resigned(self, topic_partition):
        self.led = [one for one in self.led if one != topic_partition]


class Broker:
    """The roles of a broker over real logs."""

    def __init__(self, fs=None):
        self.fs = fs or CrashFileSystem()
        self.logs = LogManager(self.fs, ManualClock(), ["/data", "/more"], {}, "c" * 22, ME)
        self.logs.start()
        loop = asyncio.get_running_loop()
        self.replicas = ReplicaManager(self.logs, Purgatory(loop.call_later), IsrTables(ME, ManualClock()))
        self.addresses = {}
        quota = ReplicationQuota(ME, ManualClock())
        following = FollowingBroker(
            ME,
            lambda: -1,
            self.addresses.get,
            self.logs,
            self.replicas.offline.add,
            self.replicas.purgatory.check,
            quota,
        )
        self.fetchers = ReplicaFetchers(FetchSettings(backoff_ms=1, wait_max_ms=10), following)
        self.told = Told()
        self.topic_ids = {}
        self.roles = PartitionRoles(
            ME,
            self.replicas,
            self.fetchers,
            (self.told,),
            lambda name: CONFIGS.get(name, {}),
            topic_id=self.topic_id,
        )

    def topic_id(self, name):
        topic_id = self.topic_ids.get(name)
        if isinstance(topic_id, Exception):
            raise topic_id
        return topic_id

    async def become(self, *states):
        return await self.roles.in_turn(lambda: self.roles.become(states))

    async def stop(self, *states):
        return await self.roles.in_turn(lambda: self.roles.stop(states))

    def append(self, count=1):
        for _ in range(count):
            self.replicas.append(T0, encode_batch([NewRecord(b"v")]))


def state(leader, epoch, *, index=0, topic_id=TOPIC_ID, replicas=(ME, OTHER)):
    isr = (leader,) if leader in replicas else replicas
    return PartitionState(TopicPartition("t", index), topic_id, leader, epoch, isr, epoch, replicas)


def played(scenario):
    async def whole():
        broker = Broker()
        try:
            return await scenario(broker)
        finally:
            await broker.roles.close()

    return asyncio.run(asyncio.wait_for(whole(), 120))


@asynccontextmanager
async def led_elsewhere(addresses, records, epoch):
    """Yields a log with the records, which another broker leads."""
    logs = LogManager(CrashFileSystem(), ManualClock(), ["/data"], {}, "c" * 22, OTHER)
    logs.start()
    log = logs.create(T0, TOPIC_ID, {})
    for number in range(records):
        log.append(encode_batch([NewRecord(b"%d" % number)]), leader_epoch=epoch)
    async with ScriptedBroker(LeadingBroker([LedLog(log, TOPIC_ID, epoch)]).answer) as socket:
        addresses[OTHER] = socket.address
        yield log


def test_a_new_partition_is_led_with_its_topics_configuration():
    async def scenario(broker):
        assert await broker.become(state(ME, 0)) == {T0: ErrorCode.NONE}
        partition = broker.replicas.partition(T0)
        assert (partition.leader_epoch, partition.topic_id, partition.log.config.segment_bytes) == (0, TOPIC_ID, 1000)
        assert broker.told.led == [T0]
        assert broker.fetchers.sources == []

    played(scenario)


def test_leader_then_follower_then_leader_again():
    async def scenario(broker):
        await broker.become(state(ME, 0, replicas=(ME,)))
        broker.append(5)
        assert await broker.become(state(OTHER, 1)) == {T0: ErrorCode.NONE}
        followed = broker.replicas.followed[T0]
        assert T0 not in broker.replicas.partitions
        assert (followed.leader, followed.leader_epoch, followed.high_watermark) == (OTHER, 1, 5)
        assert broker.told.led == []
        assert broker.fetchers.sources == [OTHER]
        assert broker.replicas.high_watermarks() == {T0: 5}
        assert await broker.become(state(ME, 2)) == {T0: ErrorCode.NONE}
        assert broker.replicas.followed == {}
        assert broker.replicas.partition(T0).high_watermark == 5
        assert broker.told.led == [T0]
        assert broker.fetchers.sources == []

    played(scenario)


def test_a_follower_gets_what_its_leader_has():
    async def scenario(broker):
        await broker.become(state(ME, 0, replicas=(ME,)))
        broker.append(5)
        async with led_elsewhere(broker.addresses, 20, epoch=1) as log:
            await broker.become(state(OTHER, 1))
            followed = broker.replicas.followed[T0]
            await until(lambda: followed.log.log_end_offset == 20)
            await until(lambda: followed.high_watermark == 20)
            assert followed.log.leader_epochs.entries == log.leader_epochs.entries

    played(scenario)


def test_a_broker_that_leaves_fetches_nothing_of_what_it_hands_over():
    async def scenario(broker):
        await broker.become(state(ME, 0), state(OTHER, 0, index=1))
        broker.roles.follow_no_more()
        assert broker.fetchers.sources == [OTHER]  # what it followed before, its leader still waits for
        await broker.stop(StopState(TopicPartition("t", 1), 0, deletes=False))
        assert await broker.become(state(OTHER, 1)) == {T0: ErrorCode.NONE}
        assert T0 in broker.replicas.followed
        assert broker.fetchers.sources == []

    played(scenario)


@pytest.mark.parametrize("leader", [NO_LEADER, LEADER_DURING_DELETE])
def test_a_partition_without_leader_is_followed_and_nothing_fetched(leader):
    async def scenario(broker):
        assert await broker.become(state(leader, 3)) == {T0: ErrorCode.NONE}
        assert broker.fetchers.sources == []
        assert broker.replicas.hosted(T0).leader_epoch == 3

    played(scenario)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (state(ME, 3), ErrorCode.STALE_CONTROLLER_EPOCH),
        (state(OTHER, 2), ErrorCode.STALE_CONTROLLER_EPOCH),
        (state(OTHER, 4, topic_id=NEW_ID), ErrorCode.INCONSISTENT_TOPIC_ID),
        (state(OTHER, 4, replicas=(OTHER, 3)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_is_refused_changes_nothing_and_the_others_go_on(asked, expected):
    async def scenario(broker):
        await broker.become(state(ME, 3))
        other = state(ME, 0, index=1)
        assert await broker.become(asked, other) == {T0: expected, other.topic_partition: ErrorCode.NONE}
        assert broker.replicas.partition(T0).leader_epoch == 3
        assert broker.told.led == [T0, other.topic_partition]

    played(scenario)


def test_a_partition_that_has_no_topic_id_takes_that_of_its_log():
    async def scenario(broker):
        assert await broker.become(state(ME, 0, topic_id=None)) == {T0: ErrorCode.UNKNOWN_TOPIC_ID}
        assert not broker.replicas.logs.get(T0)
        await broker.become(state(ME, 0))
        assert await broker.become(state(OTHER, 1, topic_id=None)) == {T0: ErrorCode.NONE}
        assert broker.replicas.followed[T0].topic_id == TOPIC_ID

    played(scenario)


def test_a_stopped_replica_keeps_its_log_and_its_epoch():
    async def scenario(broker):
        await broker.become(state(ME, 5, replicas=(ME,)))
        broker.append(3)
        assert await broker.stop(StopState(T0, 5, deletes=False)) == {T0: ErrorCode.NONE}
        assert broker.told.led == []
        assert broker.replicas.partitions == {}
        assert broker.replicas.followed[T0].log.log_end_offset == 3
        assert await broker.become(state(ME, 5)) == {T0: ErrorCode.STALE_CONTROLLER_EPOCH}
        assert await broker.become(state(ME, 6)) == {T0: ErrorCode.NONE}
        assert broker.replicas.partition(T0).high_watermark == 3

    played(scenario)


@pytest.mark.parametrize("leads", [True, False])
def test_a_deleted_replica_is_forgotten_with_its_log(leads):
    async def scenario(broker):
        await broker.become(state(ME if leads else OTHER, 5))
        assert await broker.stop(StopState(T0, EPOCH_DURING_DELETE, deletes=True)) == {T0: ErrorCode.NONE}
        assert not broker.replicas.logs.get(T0)
        assert (broker.told.led, broker.fetchers.sources, broker.replicas.followed) == ([], [], {})
        assert await broker.become(state(ME, 0, topic_id=NEW_ID)) == {T0: ErrorCode.NONE}
        assert broker.replicas.partition(T0).log.log_end_offset == 0

    played(scenario)


def test_a_log_without_a_role_is_deleted_and_an_absent_one_is_no_error():
    async def scenario(broker):
        await broker.become(state(ME, 5))
        later = Broker(broker.fs.after_kill())
        absent = TopicPartition("absent", 0)
        outcomes = await later.stop(StopState(T0, 0, deletes=True), StopState(absent, 0, deletes=True))
        assert outcomes == {T0: ErrorCode.NONE, absent: ErrorCode.NONE}
        assert not later.replicas.logs.get(T0)

    played(scenario)


@pytest.mark.parametrize("was_refused", [False, True])
def test_the_deletion_of_a_topic_leaves_the_log_of_a_former_one_of_its_name(caplog, was_refused):
    async def scenario(broker):
        await broker.become(state(ME, 5, replicas=(ME,)))
        broker.append(3)
        later = Broker(broker.fs.after_kill())
        later.topic_ids["t"] = NEW_ID
        if was_refused:
            assert await later.become(state(ME, 0, topic_id=NEW_ID)) == {T0: ErrorCode.INCONSISTENT_TOPIC_ID}
        assert await later.stop(StopState(T0, EPOCH_DURING_DELETE, deletes=True)) == {T0: ErrorCode.NONE}
        assert later.logs.get(T0).log_end_offset == 3
        assert "t-0 is left as it is: its log is that of a former topic of this name" in caplog.text
        later.topic_ids["t"] = TOPIC_ID
        assert await later.stop(StopState(T0, EPOCH_DURING_DELETE, deletes=True)) == {T0: ErrorCode.NONE}
        assert not later.replicas.logs.get(T0)

    played(scenario)


def test_no_log_is_deleted_while_nobody_knows_which_topic_has_its_name():
    """That refuses no other partition of the request."""

    async def scenario(broker):
        await broker.become(state(ME, 5, replicas=(ME,)))
        later = Broker(broker.fs.after_kill())
        await later.become(state(ME, 5, index=1, replicas=(ME,)))
        later.topic_ids["t"] = ZooKeeperError("the connection is lost")
        stops = [StopState(key, EPOCH_DURING_DELETE, deletes=True) for key in (T0, T1)]
        assert await later.stop(*stops) == {T0: ErrorCode.UNKNOWN_SERVER_ERROR, T1: ErrorCode.NONE}
        assert later.replicas.logs.get(T0)
        assert not later.replicas.logs.get(T1)
        later.topic_ids["t"] = TOPIC_ID
        assert await later.stop(*stops) == {T0: ErrorCode.NONE, T1: ErrorCode.NONE}
        assert not later.replicas.logs.get(T0)

    played(scenario)


def test_a_late_stop_replica_is_fenced():
    """KIP-570: a replica that was moved away and back again must not lose its log to the first request."""

    async def scenario(broker):
        await broker.become(state(OTHER, 5))
        assert await broker.stop(StopState(T0, 4, deletes=True)) == {T0: ErrorCode.FENCED_LEADER_EPOCH}
        assert broker.replicas.logs.get(T0)
        assert broker.fetchers.sources == [OTHER]

    played(scenario)


def test_a_log_of_another_topic_of_this_name_is_left_alone(caplog):
    async def scenario(broker):
        await broker.become(state(ME, 5, replicas=(ME,)))
        broker.append(3)
        later = Broker(broker.fs.after_kill())
        for role in (ME, OTHER):
            asked = state(role, 0, topic_id=NEW_ID)
            assert await later.become(asked) == {T0: ErrorCode.INCONSISTENT_TOPIC_ID}
        assert later.logs.get(T0).log_end_offset == 3
        assert caplog.text.count(f"of this name with id {TOPIC_ID}, which is left as it is") == 2

    played(scenario)


@pytest.mark.parametrize("role", [ME, OTHER], ids=["leads", "follows"])
def test_a_damaged_topic_id_keeps_no_replica_from_its_role_and_is_mended(role):
    async def scenario(broker):
        await broker.become(state(ME, 5, replicas=(ME,), topic_id=DRAWN_ID))
        broker.append(3)
        write_topic_id(broker.fs, "/data/t-0", DAMAGED_ID)
        later = Broker(broker.fs.after_kill())
        later.topic_ids["t"] = DRAWN_ID
        await later.roles.set_aside_others([state(role, 6, topic_id=DRAWN_ID)])
        assert await later.become(state(role, 6, topic_id=DRAWN_ID)) == {T0: ErrorCode.NONE}
        assert later.logs.get(T0).log_end_offset == 3
        assert read_topic_id(later.fs, "/data/t-0") == DRAWN_ID
        await later.roles.close()

    played(scenario)


def test_a_damaged_topic_id_keeps_no_log_from_its_deletion():
    async def scenario(broker):
        await broker.become(state(ME, 5, replicas=(ME,), topic_id=DRAWN_ID))
        write_topic_id(broker.fs, "/data/t-0", DAMAGED_ID)
        later = Broker(broker.fs.after_kill())
        later.topic_ids["t"] = DRAWN_ID
        assert await later.stop(StopState(T0, EPOCH_DURING_DELETE, deletes=True)) == {T0: ErrorCode.NONE}
        assert not later.replicas.logs.get(T0)

    played(scenario)


def test_after_a_start_a_follower_has_the_high_watermark_of_its_checkpoint():
    async def scenario(broker):
        await broker.become(state(ME, 0, replicas=(ME,)))
        broker.append(5)
        broker.logs.checkpoint_high_watermarks({T0: 3})
        later = Broker(broker.fs.after_kill())
        await later.become(state(OTHER, 1))
        assert later.replicas.followed[T0].high_watermark == 3
        await later.become(state(ME, 2)._replace(isr=(ME, OTHER)))
        assert later.replicas.partition(T0).high_watermark == 3
        await later.roles.close()

    played(scenario)


@pytest.mark.parametrize("leads", [True, False])
def test_a_partition_whose_folder_failed_is_left_to_another_leader(leads):
    async def scenario(broker):
        await broker.become(state(ME if leads else OTHER, 0), state(ME, 0, index=1))
        folder = broker.logs.get(T0).directory.rpartition("/")[0]
        next(one for one in broker.logs.health if one.path == folder).fail("a test")
        assert await broker.become(state(OTHER, 1)) == {T0: ErrorCode.KAFKA_STORAGE_ERROR}
        assert broker.told.led == [TopicPartition("t", 1)]
        assert T0 not in {**broker.replicas.partitions, **broker.replicas.followed}
        assert broker.replicas.offline == {T0}
        assert not broker.replicas.has_refused_roles, "the folder is offline until the broker starts again"
        assert await broker.stop(StopState(T0, 9, deletes=True)) == {T0: ErrorCode.KAFKA_STORAGE_ERROR}
        assert broker.replicas.logs.get(T0)

    played(scenario)


def test_a_log_that_can_not_be_made_is_an_error_of_its_partition_and_may_succeed_later():
    async def scenario(broker):
        broker.fs.capacity_bytes = 0
        states = state(ME, 0), state(OTHER, 0, index=1)
        assert set((await broker.become(*states)).values()) == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert len(broker.replicas.offline) == 2
        assert broker.replicas.has_refused_roles
        broker.fs.capacity_bytes = None
        assert set((await broker.become(*states)).values()) == {ErrorCode.NONE}
        assert not broker.replicas.offline
        assert not broker.replicas.has_refused_roles

    played(scenario)


def test_requests_are_done_in_order_and_to_the_end_though_nobody_waits():
    async def scenario(broker):
        count = 2 * CHANGED_AT_ONCE + 1
        first = broker.roles.in_turn(lambda: broker.roles.become([state(ME, 0, index=n) for n in range(count)]))
        second = broker.roles.in_turn(lambda: broker.roles.become([state(OTHER, 1, index=n) for n in range(count)]))
        third = broker.roles.in_turn(lambda: broker.roles.become([state(ME, 1, index=0)]))
        first.cancel()
        second.cancel()
        assert await third == {T0: ErrorCode.STALE_CONTROLLER_EPOCH}
        assert len(broker.replicas.followed) == count
        assert broker.told.led == []

    played(scenario)


def test_closing_waits_for_what_is_being_done():
    async def scenario(broker):
        broker.roles.in_turn(lambda: broker.roles.become([state(OTHER, 0, index=n) for n in range(10)]))
        await broker.roles.close()
        assert len(broker.replicas.followed) == 10
        assert broker.fetchers.sources == []

    played(scenario)


def test_the_fence_knows_the_newest_controller_and_the_own_registration():
    epoch = 100
    fence = ControllerFence(lambda: epoch)
    fence.check(5, 100)
    with pytest.raises(StaleControllerEpochError):
        fence.check(4, 100)
    epoch = 200
    with pytest.raises(StaleBrokerEpochError):
        fence.check(9, 100)
    assert fence.controller_epoch == 5
    fence.check(6, 200)
    with pytest.raises(StaleControllerEpochError):
        fence.check(5, 200)
