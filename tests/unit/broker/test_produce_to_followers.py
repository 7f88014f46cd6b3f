"""Produce with acks=all to partitions with followers, through sockets of a whole broker in the test's event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from millrace.errors import ErrorCode
from millrace_support.broker_with_followers import FIRST, LEADER, SECOND, Home, broker_with_followers, until

Scene = Callable[[Home], Awaitable[None]]


@pytest.fixture(params=[3, 7, 10, 13])  # decoded from the schema, by name, by name in flexible form, by topic id
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        async def whole() -> None:
            async with broker_with_followers(tmp_path) as home:
                home.produce_version = request.param
                await asyncio.wait_for(scene(home), 60)

        asyncio.run(whole())

    return run


def test_the_answer_comes_when_the_in_sync_replicas_have_the_record(play):
    async def scene(home):
        home.lead(isr=(2, 3))
        produced = home.produce()
        await home.appended(1)
        home.fetched(1, follower=2)
        assert len(home.replicas.purgatory) == 1
        home.fetched(1, follower=3)
        assert await produced == [(0, 0)]
        assert len(home.replicas.purgatory) == 0

    play(scene)


def test_acks_of_the_leader_wait_for_nobody(play):
    async def scene(home):
        home.lead()
        assert await home.produce(LEADER) == [(0, 0)]
        assert home.replicas.partition(FIRST).high_watermark == 0

    play(scene)


def test_several_requests_are_answered_in_their_order(play):
    async def scene(home):
        home.lead()
        produced = [home.produce(), home.produce(LEADER), home.produce()]
        await home.appended(3)
        home.fetched(1)
        home.fetched(3)
        assert await asyncio.gather(*produced) == [[(0, 0)], [(0, 1)], [(0, 2)]]

    play(scene)


def test_a_request_waits_for_all_of_its_partitions(play):
    async def scene(home):
        home.lead()
        home.lead(SECOND)
        produced = home.produce(keys=(FIRST, SECOND))
        await home.appended(1, SECOND)
        home.fetched(1, SECOND)
        assert len(home.replicas.purgatory) == 1
        home.fetched(1, FIRST)
        assert await produced == [(0, 0), (0, 0)]

    play(scene)


def test_the_partition_without_followers_does_not_wait(play):
    async def scene(home):
        home.lead(SECOND)
        produced = home.produce(keys=(FIRST, SECOND), timeout_ms=1)
        assert await produced == [(0, 0), (ErrorCode.REQUEST_TIMED_OUT, 0)]

    play(scene)


def test_followers_that_take_too_long_leave_the_record_in_the_log(play):
    async def scene(home):
        partition = home.lead()
        assert await home.produce(timeout_ms=1) == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
        assert partition.log.log_end_offset == 1

    play(scene)


def test_too_few_in_sync_refuse_before_the_append(play):
    async def scene(home):
        partition = home.lead(isr=(), config={"min.insync.replicas": "2"})
        assert await home.produce() == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
        assert partition.log.log_end_offset == 0
        assert await home.produce(LEADER) == [(0, 0)]
        assert partition.high_watermark == 0

    play(scene)


def test_too_few_in_sync_after_the_append_are_told(play):
    async def scene(home):
        home.lead(config={"min.insync.replicas": "2"})
        produced = home.produce()
        await home.appended(1)
        partition = home.replicas.partition(FIRST)
        partition.in_sync.min_isr = 3
        partition.in_sync.high_watermark = 1
        home.replicas.purgatory.check(FIRST)
        assert await produced == [(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 0)]

    play(scene)


def test_a_leader_no_more_says_so(play):
    async def scene(home):
        home.lead()
        produced = home.produce()
        await home.appended(1)
        home.replicas.resign(FIRST)
        assert await produced == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)]

    play(scene)


def test_a_record_that_was_cut_off_is_not_acknowledged_for_the_one_in_its_place(play):
    """The broker leads, follows and is cut, and leads again: another record lies at the offset."""

    async def scene(home):
        partition = home.lead()
        produced = home.produce()
        await home.appended(1)
        partition.log.truncate_to(0)
        home.lead()
        again = home.produce(LEADER)
        await home.appended(1)
        home.fetched(1)
        assert await produced == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)]
        assert await again == [(0, 0)]

    play(scene)


def test_a_record_that_the_next_epoch_keeps_is_acknowledged_in_it(play):
    async def scene(home):
        home.lead()
        produced = home.produce()
        await home.appended(1)
        home.lead()
        assert len(home.replicas.purgatory) == 1
        home.fetched(1)
        assert await produced == [(0, 0)]

    play(scene)


def test_nothing_waits_for_a_client_that_has_gone(play):
    async def scene(home):
        home.lead()
        produced = [home.produce(), home.produce()]
        await home.appended(2)
        home.link.close()
        await asyncio.gather(*produced, return_exceptions=True)
        await until(lambda: len(home.replicas.purgatory) == 0)

    play(scene)


def test_a_broker_that_stops_answers_what_waits(tmp_path):
    async def run():
        async with broker_with_followers(tmp_path) as home:
            home.lead()
            produced = home.produce()
            await home.appended(1)
            closes, home.link.close = home.link.close, lambda: None
        assert await produced == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
        closes()

    asyncio.run(run())
