"""Logs of followed partitions that move between data directories, while they are fetched, cut off and deleted."""

import asyncio
import threading
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from millrace.errors import ErrorCode, NotLeaderError, StorageError
from millrace.records.batch import NO_LEADER_EPOCH
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.controller_apis import EPOCH_DURING_DELETE
from millrace_broker.replication.isr_tables import IsrTables
from millrace_broker.replication.log_dir_mover import LogDirMover
from millrace_broker.replication.partition_roles import PartitionRoles, ReplicaFetchers
from millrace_broker.replication.purgatory import Purgatory
from millrace_broker.replication.replica_fetcher import FetchSettings, FollowingBroker
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.replication_quota import ReplicationQuota
from millrace_broker.replication.roles import PartitionState, StopState
from millrace_broker.storage import LogManager, TopicPartition, moves
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.held_worker import hold_syncs
from millrace_support.leading_broker import LeadingBroker, LedLog
from millrace_support.scripted_broker import ScriptedBroker
from millrace_support.until import until

ME, OTHER, THIRD = 1, 2, 3
TOPIC_ID = UUID(int=7)
T0 = TopicPartition("t", 0)
SMALL_SEGMENTS = {"segment.bytes": "500"}
FAST = 1e12


def logs_in(*folders):
    logs = LogManager(CrashFileSystem(), ManualClock(), list(folders), {}, "c" * 22, ME)
    logs.start()
    return logs


def appended(log, count, epoch):
    for number in range(count):
        log.append(encode_batch([NewRecord(b"%d of %d" % (number, epoch))]), leader_epoch=epoch)


def content(log):
    return b"".join(segment.read_at(0, segment.size_bytes) for segment in log.segments)


class Broker:
    """Follows in two data directories; moves wait for `may_copy`."""

    def __init__(self):
        self.logs = logs_in("/data", "/more")
        self.replicas = ReplicaManager(
            self.logs, Purgatory(asyncio.get_running_loop().call_later), IsrTables(ME, ManualClock())
        )
        self.addresses = {}
        quota = ReplicationQuota(ME, ManualClock(), lambda: FAST)
        following = FollowingBroker(
            ME, lambda: -1, self.addresses.get, self.logs, self.replicas.offline.add, lambda _: None, quota
        )
        fetchers = ReplicaFetchers(FetchSettings(backoff_ms=1, wait_max_ms=10), following)
        self.mover = LogDirMover(self.logs, self.replicas, lambda _old, _new: None, lambda: FAST)
        self.roles = PartitionRoles(ME, self.replicas, fetchers, (self.mover,), lambda _: SMALL_SEGMENTS)

    async def follow(self, leader, epoch):
        state = PartitionState(T0, TOPIC_ID, leader, epoch, (leader,), epoch, (ME, OTHER, THIRD))
        await self.roles.in_turn(lambda: self.roles.become([state]))

    @property
    def log(self):
        return self.replicas.replica(T0).log

    def move(self):
        """Begins to move the log to the other folder; returns that."""
        target = "/more" if self.log.directory.startswith("/data") else "/data"
        self.mover.move(T0, target)
        return target


@asynccontextmanager
async def leader_of(broker, broker_id, log, epoch):
    async with ScriptedBroker(LeadingBroker([LedLog(log, TOPIC_ID, epoch)]).answer) as socket:
        broker.addresses[broker_id] = socket.address
        yield


def played(scenario):
    async def whole():
        broker = Broker()
        try:
            await scenario(broker)
        finally:
            await broker.mover.close()
            await broker.roles.close()

    asyncio.run(asyncio.wait_for(whole(), 120))


def test_a_followed_log_moves_and_is_fetched_further():
    async def scenario(broker):
        log = logs_in("/data").create(T0, TOPIC_ID, {})
        appended(log, 40, epoch=1)
        async with leader_of(broker, OTHER, log, 1):
            await broker.follow(OTHER, 1)
            await until(lambda: broker.log.log_end_offset == 40 == broker.log.high_watermark)
            target = broker.move()
            appended(log, 20, epoch=1)
            await until(lambda: broker.log.directory.startswith(target))
            assert broker.log.high_watermark >= 40
            appended(log, 5, epoch=1)
            await until(lambda: content(broker.log) == content(log))
            assert broker.log.leader_epochs.entries == log.leader_epochs.entries
            assert broker.mover.copies() == {}

    played(scenario)


def test_what_another_leader_has_cut_off_is_not_in_the_copy():
    async def scenario(broker):
        old, new = (logs_in("/data").create(T0, TOPIC_ID, {}) for _ in range(2))
        for log in (old, new):
            appended(log, 30, epoch=1)
        appended(old, 30, epoch=2)
        appended(new, 10, epoch=3)
        async with leader_of(broker, OTHER, old, 2), leader_of(broker, THIRD, new, 3):
            await broker.follow(OTHER, 2)
            await until(lambda: broker.log.log_end_offset == 60)
            async with broker.mover._turn:  # the copy has begun, and waits
                target = broker.move()
                (copy,) = broker.mover.copies().values()
                await asyncio.to_thread(copy.catch_up, broker.log, FAST)
                assert copy.end_offset == 60
                await broker.follow(THIRD, 3)
                await until(lambda: content(broker.log) == content(new))
            await until(lambda: broker.log.directory.startswith(target))
            assert content(broker.log) == content(new)
            assert broker.log.leader_epochs.entries == new.leader_epochs.entries

    played(scenario)


def test_the_move_of_a_log_that_is_deleted_ends():
    async def scenario(broker):
        await broker.follow(OTHER, 1)
        async with broker.mover._turn:
            broker.move()
            stop = StopState(T0, EPOCH_DURING_DELETE, deletes=True)
            await broker.roles.in_turn(lambda: broker.roles.stop([stop]))
            assert broker.mover.copies() == {}
        await until(lambda: not broker.mover._tasks)
        assert broker.logs.get(T0) is None

    played(scenario)


async def diverged(broker, leaders):
    """Has the broker follow one leader after the other, and returns once its log waits to be cut."""
    await broker.follow(OTHER, 2)
    await until(lambda: broker.log.log_end_offset == 60)
    workers = hold_syncs(broker.logs, lambda _: None)
    await broker.follow(THIRD, 3)
    await until(lambda: broker.log.is_held)
    return workers


def test_roles_and_readers_wait_while_a_log_is_cut():
    async def scenario(broker):
        old, new = (logs_in("/data").create(T0, TOPIC_ID, {}) for _ in range(2))
        for log in (old, new):
            appended(log, 30, epoch=1)
        appended(old, 30, epoch=2)
        appended(new, 10, epoch=3)
        async with leader_of(broker, OTHER, old, 2), leader_of(broker, THIRD, new, 3):
            workers = await diverged(broker, (old, new))
            followed = broker.replicas.followed[T0]
            with pytest.raises(NotLeaderError):
                followed.check_leader_epoch(NO_LEADER_EPOCH)
            assert list(broker.logs.retention()) == []
            role = asyncio.create_task(broker.follow(ME, 4))
            for _ in range(10):
                await asyncio.sleep(0)  # it would be done by now
            stop = StopState(T0, EPOCH_DURING_DELETE, deletes=True)
            stopping = asyncio.ensure_future(broker.roles.in_turn(lambda: broker.roles.stop([stop])))
            for _ in range(10):
                await asyncio.sleep(0)
            assert broker.replicas.followed[T0] is followed
            assert [worker.work() for worker in workers].count(1) == 1
            await role
            assert list((await stopping).values()) == [ErrorCode.NONE]
            assert broker.logs.get(T0) is None

    played(scenario)


@pytest.mark.parametrize("is_led", [False, True])
def test_the_last_step_of_a_move_keeps_nobody_but_the_partitions_producers(monkeypatch, *, is_led):
    begun, goes_on, swap = threading.Event(), threading.Event(), moves.swap

    def slow_swap(*args):
        begun.set()
        assert goes_on.wait(60)
        return swap(*args)

    monkeypatch.setattr(moves, "swap", slow_swap)

    async def scenario(broker):
        await broker.follow(ME if is_led else OTHER, 1)
        log = broker.replicas.replica(T0).log
        appended(log, 3, epoch=1)
        target = broker.move()
        await until(begun.is_set)
        with pytest.raises(StorageError, match="try again"):
            broker.mover.drop(T0)
        with pytest.raises(NotLeaderError):
            appended(log, 1, epoch=1)
        assert log.read(0, 1, up_to_offset=3)
        log.high_watermark = 3
        log.raise_log_start_offset(2)
        goes_on.set()
        await until(lambda: not broker.mover._tasks)
        moved = broker.replicas.replica(T0).log
        assert moved is broker.logs.get(T0)
        assert moved.directory.startswith(target)
        assert (moved.log_start_offset, moved.log_end_offset) == (2, 3)
        appended(moved, 1, epoch=1)

    played(scenario)


@pytest.mark.parametrize("operation", ["mkdir", "rename"])
def test_a_move_that_the_disk_refuses_ends_and_says_why(operation):
    async def scenario(broker):
        await broker.follow(ME, 1)
        log = broker.replicas.replica(T0).log
        appended(log, 3, epoch=1)
        async with broker.mover._turn:  # so that nothing is copied
            if operation == "rename":
                copies = broker.mover.move(T0, "/more")
                await broker.mover.settle()
                assert broker.mover.copies() == {T0: copies[0]}
                broker.logs._fs.fail(operation)
                assert broker.mover.drop(T0) == copies
            else:
                broker.logs._fs.fail(operation)
                copies = broker.mover.move(T0, "/more")
            await broker.mover.settle()
        await until(lambda: not broker.mover._tasks)
        assert [type(copy.refusal) for copy in copies] == [StorageError]
        assert broker.mover.copies() == {}
        assert broker.replicas.replica(T0).log is log
        appended(log, 1, epoch=1)

    played(scenario)
