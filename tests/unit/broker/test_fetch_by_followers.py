"""Fetch and ListOffsets of invented followers, which drive the high watermark and the in-sync replicas."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.errors import ErrorCode
from millrace_broker.replication.shards import when_replicated
from millrace_support.broker_with_followers import BATCH, FIRST, LEADER, LONG_MS, Home, broker_with_followers, until

CONSUMER, TOOL, STRANGER = -1, -2, 9
NO_SESSION = (0, -1)
LATEST, EARLIEST, LONG_AGO_MS, NEVER_MS = -1, -2, 0, 1 << 60
Scene = Callable[[Home], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        async def whole() -> None:
            async with broker_with_followers(tmp_path) as home:
                await asyncio.wait_for(scene(home), 60)

        asyncio.run(whole())

    return run


def test_a_follower_reads_up_to_the_log_end_and_a_consumer_to_the_high_watermark(play):
    async def scene(home):
        home.lead()
        for _ in range(2):
            await home.produce(LEADER)
        of_consumer = await home.fetch(0, CONSUMER, max_wait=0)
        assert (of_consumer.records, of_consumer.high_watermark) == (b"", 0)
        followers = await home.fetch(0)
        assert followers.records.count(b"value") == 2
        assert (await home.fetch(0, TOOL, max_wait=0)).records == b""

    play(scene)


def test_where_a_follower_fetches_its_log_ends(play):
    async def scene(home):
        partition = home.lead()
        for _ in range(2):
            await home.produce(LEADER)
        assert (await home.fetch(1)).high_watermark == 1
        assert partition.high_watermark == 1
        assert (await home.fetch(0, CONSUMER)).records.count(b"value") == 1

    play(scene)


def test_a_fetch_counts_for_the_registration_that_it_names(play):
    """One that has started again since, maybe with an empty disk, can't join for it (KIP-903)."""

    async def scene(home):
        partition = home.lead()
        await home.fetch(0, replica_epoch=52, max_wait=0)
        assert partition.in_sync._followers[2].broker_epoch == 52

    play(scene)


def test_a_tool_that_compares_replicas_reads_a_follower_up_to_the_high_watermark(play):
    async def scene(home):
        home.lead()
        for _ in range(2):
            await home.produce(LEADER)
        await home.fetch(1)
        home.replicas.stop(FIRST)
        read = await home.fetch(0, TOOL)
        assert (read.error_code, read.high_watermark, read.records.count(b"value")) == (0, 1, 1)
        assert (await home.fetch(3, TOOL)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await home.fetch(0, CONSUMER)).error_code, "others read the leader"

    play(scene)


def test_a_fetch_answers_the_producer_and_the_consumer_that_wait(play):
    async def scene(home):
        home.lead()
        produced, fetched = home.produce(), asyncio.ensure_future(home.fetch(0, CONSUMER))
        await home.appended(1)
        waiting = asyncio.ensure_future(home.fetch(1))
        assert await produced == [(0, 0)]
        assert (await fetched).records.count(b"value") == 1
        await home.produce(LEADER)
        assert (await waiting).records.count(b"value") == 1

    play(scene)


def test_a_consumer_waits_for_min_bytes_below_the_high_watermark(play):
    async def scene(home):
        home.lead()
        for _ in range(3):
            await home.produce(LEADER)
        size = len((await home.fetch(0)).records) // 3
        reply = asyncio.ensure_future(home.fetch(0, CONSUMER, min_bytes=2 * size))
        await until(lambda: len(home.replicas.purgatory) == 1)
        home.fetched(1)
        assert len(home.replicas.purgatory) == 1
        home.fetched(2)
        assert len((await reply).records) == 2 * size

    play(scene)


def test_only_one_look_at_the_log_counts_for_a_follower(play):
    """The fetch is answered a second time when records come: by then the follower may be further."""

    async def scene(home):
        partition = home.lead()
        waiting = asyncio.ensure_future(home.fetch(0))
        await until(lambda: len(home.replicas.purgatory) == 1)
        home.fetched(0, follower=2)
        before = partition.in_sync._followers[2].last_fetch_ms
        await home.produce(LEADER)
        assert (await waiting).records.count(b"value") == 1
        assert partition.in_sync._followers[2].last_fetch_ms == before

    play(scene)


@pytest.mark.parametrize("is_in_session", [False, True])
def test_a_fetch_brings_what_is_appended_because_of_it(play, is_in_session):
    """A coordinator writes its next record once the followers have the one before, as it learns by this very fetch."""

    async def scene(home):
        home.lead()
        session = NO_SESSION
        if is_in_session:
            await home.fetch(0, max_wait=0, session=(0, 0))
            session = (next(iter(home.services.fetch_sessions._sessions)), 1)
        await home.produce(LEADER)
        when_replicated(home.replicas, FIRST, 0, LONG_MS, lambda _: home.replicas.append(FIRST, BATCH))
        assert (await home.fetch(1, session=session, max_wait=10 * LONG_MS)).records.count(b"value") == 1

    play(scene)


def test_what_does_not_count_moves_nothing(play):
    async def scene(home):
        partition = home.lead()
        await home.produce(LEADER)
        epoch = partition.leader_epoch
        for wanted, code in (
            ({"offset": 7}, ErrorCode.OFFSET_OUT_OF_RANGE),
            ({"offset": 1, "current_leader_epoch": epoch - 1}, ErrorCode.FENCED_LEADER_EPOCH),
            ({"offset": 1, "current_leader_epoch": epoch + 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
            ({"offset": 1, "replica_id": STRANGER}, ErrorCode.UNKNOWN_LEADER_EPOCH),
            ({"offset": 1, "replica_id": STRANGER, "current_leader_epoch": -1}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            ({"offset": 2, "last_fetched_epoch": epoch}, ErrorCode.NONE),
        ):
            answer = await home.fetch(**wanted)
            assert (answer.error_code, partition.high_watermark) == (code, 0), wanted
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (epoch, 1)

    play(scene)


def test_a_waiting_fetch_is_answered_when_the_epoch_changes(play):
    async def scene(home):
        home.lead()
        waiting = [asyncio.ensure_future(home.fetch(0, replica_id)) for replica_id in (2, CONSUMER)]
        await until(lambda: len(home.replicas.purgatory) == 2)
        home.lead()
        codes = [(await each).error_code for each in waiting]
        assert codes == [ErrorCode.FENCED_LEADER_EPOCH] * 2

    play(scene)


def test_latest_is_the_log_end_for_a_replica(play):
    async def scene(home):
        home.lead()
        await home.produce(LEADER)
        assert await home.list_offset(LATEST, 2) == (0, 1)
        assert await home.list_offset(LATEST, TOOL) == (0, 1)
        assert await home.list_offset(LATEST, CONSUMER) == (0, 0)

    play(scene)


def test_a_new_leader_tells_no_offset_below_what_the_last_one_showed(play):
    async def scene(home):
        home.lead()
        await home.produce(LEADER)
        home.lead()
        for timestamp in (LATEST, LONG_AGO_MS, NEVER_MS):
            assert await home.list_offset(timestamp, CONSUMER) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert await home.list_offset(LATEST, CONSUMER, version=4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert await home.list_offset(EARLIEST, CONSUMER) == (0, 0)
        assert await home.list_offset(LATEST, 2) == (0, 1)
        await home.fetch(1, max_wait=0)
        assert await home.list_offset(LATEST, CONSUMER) == (0, 1)
        assert await home.list_offset(NEVER_MS, CONSUMER) == (0, -1)
        assert await home.list_offset(LONG_AGO_MS, CONSUMER) == (0, 0)

    play(scene)


def test_a_fetch_of_a_topic_that_nobody_follows_is_refused_to_replicas(play):
    async def scene(home):
        assert home.replicas.partition(FIRST).in_sync is None
        assert (await home.fetch(0)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    play(scene)


THROTTLED = {"leader.replication.throttled.replicas": "0:1"}


def throttle(home, rate):
    home.services.config = replace(home.services.config, leader_replication_throttled_rate=rate)


def test_a_follower_that_is_throttled_waits_until_the_quota_allows_more(play):
    async def scene(home):
        home.lead(config=THROTTLED)
        throttle(home, 1)
        for _ in range(3):
            await home.produce(LEADER)
        first = await home.fetch(0, 3)
        assert first.records.count(b"value") == 3, "what is fetched first exceeds the quota afterwards"
        held_back = await home.fetch(1, 3, max_wait=10)
        assert (held_back.records, held_back.error_code) == (b"", 0)
        throttle(home, 1 << 40)
        assert (await home.fetch(1, 3)).records.count(b"value") == 2

    play(scene)


def test_records_that_come_do_not_answer_a_follower_that_is_throttled(play):
    async def scene(home):
        home.lead(config=THROTTLED)
        throttle(home, 1)
        await home.produce(LEADER)
        await home.fetch(0, 3)
        waiting = asyncio.ensure_future(home.fetch(0, 3, max_wait=200))
        await until(lambda: len(home.replicas.purgatory) == 1)
        produced = asyncio.ensure_future(home.produce(LEADER))
        await home.appended(2)
        assert len(home.replicas.purgatory) == 1
        assert (await waiting).records == b""
        await produced

    play(scene)


def test_a_follower_in_sync_and_a_consumer_are_not_throttled(play):
    async def scene(home):
        home.lead(isr=(2,), config=THROTTLED)
        throttle(home, 1)
        for _ in range(2):
            await home.produce(LEADER)
        for _ in range(2):
            assert (await home.fetch(0, 2)).records.count(b"value") == 2
        assert home.services.leader_quota.is_exceeded, "bytes for followers in sync are counted"
        home.fetched(2)
        assert (await home.fetch(0, CONSUMER)).records.count(b"value") == 2

    play(scene)


def test_only_listed_replicas_are_throttled(play):
    async def scene(home):
        home.lead(config={"leader.replication.throttled.replicas": "1:1,0:2"})
        throttle(home, 0)
        await home.produce(LEADER)
        for _ in range(2):
            assert (await home.fetch(0, 3)).records.count(b"value") == 1
        assert home.services.leader_quota.bytes_per_second() == 0

    play(scene)
