"""A whole broker that leads and a real follower that fetches from it by its socket: what is acknowledged, both have."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from millrace_broker.replication.followed_partition import FollowedPartition
from millrace_broker.replication.partition_roles import ReplicaFetchers
from millrace_broker.replication.replica_fetcher import FetchSettings, FollowingBroker
from millrace_broker.replication.replication_quota import ReplicationQuota
from millrace_broker.storage import Log, LogManager, TopicPartition
from millrace_support.broker_with_followers import FIRST, LEADER, SECOND, Home, broker_with_followers
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.until import until

FOLLOWER = 2
SETTINGS = FetchSettings(backoff_ms=1, wait_max_ms=100)


class Follower:
    """Broker 2: its logs, and what fetches."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.logs = LogManager(CrashFileSystem(), ManualClock(), ["/data"], {}, "c" * 22, FOLLOWER)
        self.logs.start()
        addresses = {home.broker_id: home.link.address}
        broker = FollowingBroker(
            FOLLOWER,
            lambda: -1,
            addresses.get,
            self.logs,
            lambda _: None,
            lambda _: None,
            ReplicationQuota(FOLLOWER, ManualClock()),
        )
        self.fetchers = ReplicaFetchers(SETTINGS, broker)
        self.followed: dict[TopicPartition, FollowedPartition] = {}

    def follow(self, key: TopicPartition = FIRST) -> Log:
        """Follows the leader in its current epoch."""
        led = self.home.replicas.partition(key)
        old = self.followed.pop(key, None)
        if old is not None:
            self.fetchers.unfollow(old)
        log = self.logs.create(key, led.topic_id, {})
        if not log.has_high_watermark:
            log.high_watermark = 0
        followed = FollowedPartition(log, led.topic_id, {}, leader=self.home.broker_id, leader_epoch=led.leader_epoch)
        self.followed[key] = followed
        self.fetchers.follow(followed)
        return log


Scene = Callable[[Home, Follower], Awaitable[None]]


@asynccontextmanager
async def both(folder: Path) -> AsyncIterator[tuple[Home, Follower]]:
    async with broker_with_followers(folder) as home:
        follower = Follower(home)
        try:
            yield home, follower
        finally:
            await follower.fetchers.close()


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        async def whole() -> None:
            async with both(tmp_path) as (home, follower):
                await asyncio.wait_for(scene(home, follower), 120)

        asyncio.run(whole())

    return run


def content(log: Log) -> bytes:
    return log.read(0, 1 << 20, up_to_offset=log.log_end_offset)


def test_what_is_acknowledged_both_have(play):
    async def scene(home, follower):
        for key in (FIRST, SECOND):
            home.lead(key)
            follower.follow(key)
        for _ in range(5):
            answers = await asyncio.gather(*(home.produce(keys=(FIRST, SECOND)) for _ in range(10)))
            assert all(code == 0 for answer in answers for code, _ in answer)
            for key in (FIRST, SECOND):
                led = home.replicas.partition(key)
                assert content(led.log) == content(follower.followed[key].log)
                assert led.high_watermark == led.log.log_end_offset
        assert led.log.log_end_offset == 50

    play(scene)


def test_the_follower_learns_what_is_committed(play):
    async def scene(home, follower):
        home.lead()
        log = follower.follow()
        assert await home.produce() == [(0, 0)]
        await until(lambda: log.high_watermark == 1)

    play(scene)


def test_a_follower_that_was_ahead_is_cut_and_what_is_acknowledged_then_both_have(play):
    """The leader has lost what the follower has of the last epoch, as after an unclean election."""

    async def scene(home, follower):
        led = home.lead()
        log = follower.follow()
        assert await home.produce() == [(0, 0)]
        for _ in range(2):
            await home.produce(LEADER)
        await until(lambda: log.log_end_offset == 3)
        follower.fetchers.unfollow(follower.followed[FIRST])
        led.log.truncate_to(1)
        home.lead()
        produced = home.produce()
        await home.appended(2)
        follower.follow()
        assert await produced == [(0, 1)]
        assert (content(led.log), led.high_watermark) == (content(log), 2)
        assert log.leader_epochs.entries == led.log.leader_epochs.entries

    play(scene)


def test_a_follower_that_comes_back_joins(play):
    async def scene(home, follower):
        proposed = []
        home.replicas.isr._propose = lambda *one: proposed.append(one)
        home.replicas.take_live_brokers({home.broker_id, FOLLOWER})
        led = home.lead(isr=())
        assert await home.produce() == [(0, 0)]
        follower.follow()
        await until(lambda: proposed)
        ((key, _, leader_epoch, proposal),) = proposed
        assert (key, leader_epoch, proposal.isr) == (FIRST, led.leader_epoch, {home.broker_id, FOLLOWER})

    play(scene)


def test_the_leaders_low_watermark_follows_the_followers_log(play):
    async def scene(home, follower):
        partition = home.lead()
        home.replicas.take_live_brokers({home.broker_id, FOLLOWER})
        log = follower.follow()
        for _ in range(3):
            await home.produce()
        home.replicas.raise_log_start_offset(partition, 2)
        await until(lambda: partition.low_watermark == 2)
        assert log.log_start_offset == 2

    play(scene)
