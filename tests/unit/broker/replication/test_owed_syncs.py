"""A broker commits, acknowledges and tells its leader of a record that has to be synced only once it is synced."""

import asyncio
from collections.abc import Callable
from uuid import UUID

import pytest

from millrace.errors import ErrorCode
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.api import ApiKey
from millrace.wire.fetch import decode_fetch_request
from millrace_broker.replication.isr_tables import IsrTables
from millrace_broker.replication.purgatory import Purgatory
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.roles import Leadership
from millrace_broker.replication.shards import when_replicated
from millrace_broker.storage import LogConfig, LogManager, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.following_broker import LEADER, Machine, append, following, led, played, same
from millrace_support.held_worker import HeldWorker, hold_syncs
from millrace_support.leading_broker import LeadingBroker
from millrace_support.until import until

KEY = TopicPartition("__consumer_offsets", 0)
TOPIC_ID = UUID(int=1)
BATCH = encode_batch([NewRecord(b"value")])
ALONE, WITH_FOLLOWER = Leadership.alone(1, 5), Leadership(5, 0, (1, 2), (1, 2))
SYNC_EACH = {"flush.messages": "1"}


class NoTimer:
    def cancel(self) -> None:
        """Stops nothing."""


def never(_: float, __: Callable[[], None]) -> NoTimer:
    return NoTimer()


class Home:
    """A broker that leads one partition, and whose syncs are held."""

    def __init__(self, *, syncs_single_replica: bool = False) -> None:
        self.fs = CrashFileSystem()
        self.logs = LogManager(self.fs, ManualClock(), ["/data", "/more"], {}, "c" * 22, 1)
        self.logs.start()
        tables = IsrTables(1, ManualClock(), syncs_single_replica=syncs_single_replica)
        self.replicas = ReplicaManager(self.logs, Purgatory(never), tables)
        self.worker, self.other_worker = hold_syncs(self.logs, self.replicas.synced)

    def lead(self, leadership: Leadership, config: dict[str, str]) -> None:
        self.replicas.lead(KEY, TOPIC_ID, config, leadership)
        self.worker.work()
        self.partition = self.replicas.partition(KEY)

    def append(self, count: int = 1) -> int:
        """Appends batches, which a follower has at once if there is one; returns the last offset."""
        for _ in range(count):
            _, info = self.replicas.append(KEY, BATCH)
            if self.partition.in_sync is not None:
                self.replicas.fetched(self.partition, 2, self.partition.log.log_end_offset)
        return info.last_offset


@pytest.fixture
def home() -> Home:
    return Home()


@pytest.mark.parametrize("leadership", [ALONE, WITH_FOLLOWER], ids=["alone", "with a follower"])
@pytest.mark.parametrize(
    ("flush_messages", "before", "after"), [(1, [0, 0, 0, 0], 4), (3, [1, 2, 2, 2], 4), (4, [1, 2, 3, 3], 4)]
)
def test_the_high_watermark_waits_for_the_sync(
    home: Home, leadership: Leadership, flush_messages: int, before: list[int], after: int
) -> None:
    home.lead(leadership, {"flush.messages": str(flush_messages)})
    found = [(home.append(), home.partition.high_watermark)[1] for _ in range(4)]
    assert found == before
    home.worker.work()
    assert home.partition.high_watermark == after


@pytest.mark.parametrize("leadership", [ALONE, WITH_FOLLOWER], ids=["alone", "with a follower"])
@pytest.mark.parametrize("acks_all", [False, True])
def test_a_write_is_answered_once_it_is_synced(home: Home, leadership: Leadership, acks_all: bool) -> None:
    home.lead(leadership, SYNC_EACH)
    end = home.append(3) + 1
    assert home.partition.outcome_of(end, acks_all=acks_all) is None
    home.worker.work()
    assert home.partition.outcome_of(end, acks_all=acks_all) is ErrorCode.NONE


@pytest.mark.parametrize("leadership", [ALONE, WITH_FOLLOWER], ids=["alone", "with a follower"])
def test_a_write_that_can_not_be_synced_has_a_storage_error(home: Home, leadership: Leadership) -> None:
    home.lead(leadership, SYNC_EACH)
    end = home.append() + 1
    home.fs.fail("fsync")
    home.worker.work()
    for acks_all in (False, True):
        assert home.partition.outcome_of(end, acks_all=acks_all) is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("fails", [False, True])
def test_a_coordinators_record_counts_once_it_is_synced(home: Home, fails: bool) -> None:
    home.lead(ALONE, SYNC_EACH)
    outcomes: list[ErrorCode] = []
    when_replicated(home.replicas, KEY, home.append(), 1000, outcomes.append)
    assert outcomes == []
    if fails:
        home.fs.fail("fsync")
    home.worker.work()
    assert outcomes == [ErrorCode.NOT_COORDINATOR if fails else ErrorCode.NONE]


def test_a_setting_that_demands_more_owes_a_sync_at_once(home: Home) -> None:
    home.lead(ALONE, {})
    end = home.append(3) + 1
    assert home.worker.work() == 0
    home.replicas.configure({KEY.topic: SYNC_EACH})
    assert home.partition.outcome_of(end) is None
    assert home.worker.work() == 1
    assert home.partition.outcome_of(end) is ErrorCode.NONE


def test_a_setting_that_demands_less_lets_go_at_the_next_sync(home: Home) -> None:
    home.lead(ALONE, SYNC_EACH)
    end = home.append(3) + 1
    home.replicas.configure({KEY.topic: {}})
    assert home.partition.outcome_of(end, acks_all=False) is ErrorCode.NONE
    home.worker.work()
    assert home.partition.outcome_of(end) is ErrorCode.NONE


@pytest.mark.parametrize(("leadership", "waits"), [(ALONE, True), (WITH_FOLLOWER, False)], ids=["alone", "with one"])
def test_the_only_replica_commits_what_is_synced_where_that_is_asked_for(leadership: Leadership, waits: bool) -> None:
    home = Home(syncs_single_replica=True)
    home.lead(leadership, {})
    end = home.append(3) + 1
    assert home.partition.outcome_of(end, acks_all=False) is ErrorCode.NONE
    assert home.partition.outcome_of(end) is (None if waits else ErrorCode.NONE)
    assert home.partition.high_watermark == home.partition.log.high_watermark == (0 if waits else end)
    assert home.worker.work() == waits
    assert home.partition.outcome_of(end) is ErrorCode.NONE
    assert home.partition.high_watermark == end


def test_a_log_that_was_moved_goes_on_to_commit_what_is_synced() -> None:
    home = Home(syncs_single_replica=True)
    home.lead(ALONE, {})
    end = home.append(2) + 1
    copy = home.logs.moves.begin(KEY, "/more")
    copy.catch_up(home.partition.log, 1e9)
    asyncio.run(home.replicas.finish_move(home.partition, copy))
    assert home.partition.high_watermark == end
    home.append()
    assert home.partition.high_watermark == end
    assert home.other_worker.work() == 1
    assert home.partition.high_watermark == end + 1


class WatchedLeader(LeadingBroker):
    """A leader that notes up to where a follower says that it has each partition."""

    told: dict[int, int]

    async def answer(self, header, message):
        if header.api_key == ApiKey.FETCH:
            wanted = decode_fetch_request(header.api_version, message).wanted
            self.told |= {key.partition: one.fetch_offset for key, one in wanted.items()}
        return await super().answer(header, message)


def held(follower) -> tuple[HeldWorker, ...]:
    def tell(topic_partition):
        follower.followed[topic_partition.partition].when_synced()

    return tuple(hold_syncs(follower.logs, tell))


def test_a_follower_tells_the_leader_only_what_is_synced_and_goes_on_with_the_others():
    async def scenario():
        leading = WatchedLeader(led(Machine(LEADER), 2))
        leading.told = {}
        slow, fast = (one.log for one in leading.led.values())
        async with following(leading) as (follower, _):
            (worker,) = held(follower)
            followed = follower.follow(0), follower.follow(1)
            followed[0].log.reconfigure(LogConfig(flush_messages=1))
            for _ in range(5):
                synced = followed[0].log.recovery_point
                append(slow, 1)
                await until(lambda: same(followed[0].log, slow))
                append(fast, 1)
                await until(lambda: leading.told.get(1) == fast.log_end_offset)
                assert leading.told[0] == synced
                worker.work()
                await until(lambda: leading.told[0] == slow.log_end_offset)
                assert followed[0].log.recovery_point == slow.log_end_offset

    played(scenario)


def test_a_follower_that_starts_again_owes_nothing_for_what_it_never_had():
    async def scenario():
        leading = LeadingBroker(led(Machine(LEADER), 1))
        (log,) = (one.log for one in leading.led.values())
        append(log, 5)
        log.raise_log_start_offset(log.log_end_offset)
        async with following(leading) as (follower, _):
            (worker,) = held(follower)
            followed = follower.follow(0)
            followed.log.reconfigure(LogConfig(flush_messages=1))

            def is_emptied():
                worker.work()  # the log is emptied, and begins where the leader's does
                return followed.log.log_start_offset == log.log_end_offset

            await until(is_emptied)
            append(log, 1)
            await until(lambda: followed.log.log_end_offset == log.log_end_offset)

    played(scenario)


def test_a_follower_whose_sync_fails_is_offline():
    async def scenario():
        leading = LeadingBroker(led(Machine(LEADER), 1))
        (slow,) = (one.log for one in leading.led.values())
        async with following(leading) as (follower, _):
            (worker,) = held(follower)
            followed = follower.follow(0)
            followed.log.reconfigure(LogConfig(flush_messages=1))
            append(slow, 1)
            await until(lambda: same(followed.log, slow))
            await asyncio.sleep(0)
            follower.fs.fail("fsync")
            worker.work()
            await until(lambda: follower.offline == [followed.topic_partition])
            assert followed.failure is not None

    played(scenario)
