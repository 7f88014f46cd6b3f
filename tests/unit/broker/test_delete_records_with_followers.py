"""DeleteRecords waits for followers that are alive or in sync: its answers, through the sockets of a whole broker."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from millrace.errors import ErrorCode
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace_broker.replication.in_sync_replicas import Proposal
from millrace_broker.replication.isr_tables import Accepted
from millrace_support.broker_with_followers import FIRST, LEADER, LONG_MS, Home, broker_with_followers, until

VERSION = 2
RECORDS = 4
Scene = Callable[[Home], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scene], None]:
    """Plays a scene with four records that are committed, and two live followers in sync."""

    def run(scene: Scene) -> None:
        async def whole() -> None:
            async with broker_with_followers(tmp_path) as home:
                home.replicas.take_live_brokers({home.broker_id, 2, 3})
                home.lead(isr=(2, 3))
                for _ in range(RECORDS):
                    await home.produce(LEADER)
                for each in (2, 3):
                    told(home, each, 0)
                await asyncio.wait_for(scene(home), 60)

        asyncio.run(whole())

    return run


def told(home, follower, log_start_offset):
    """Notes where the log of a follower begins, which has all records."""
    home.replicas.fetched(home.replicas.partition(FIRST), follower, RECORDS, log_start_offset)


async def delete(home, offset, timeout_ms=LONG_MS):
    """Returns the error and the low watermark that answer DeleteRecords."""
    topics = [{"name": FIRST.topic, "partitions": [{"partition_index": FIRST.partition, "offset": offset}]}]
    body = encode(ApiKey.DELETE_RECORDS, VERSION, Direction.REQUEST, {"topics": topics, "timeout": timeout_ms})
    reply = await home.link.exchange(ApiKey.DELETE_RECORDS, VERSION, body)
    (partition,) = decode(ApiKey.DELETE_RECORDS, VERSION, Direction.RESPONSE, reply).topics[0].partitions
    return partition.error_code, partition.low_watermark


async def begun(home, offset):
    """Sends the request, and returns its answer to come once that waits."""
    answer = asyncio.ensure_future(delete(home, offset))
    await until(lambda: len(home.replicas.purgatory) == 1)
    assert home.replicas.partition(FIRST).log.log_start_offset == offset, "the leader does not wait"
    return answer


def test_the_answer_comes_when_all_followers_begin_there(play):
    async def scene(home):
        answer = await begun(home, 3)
        told(home, 2, 3)
        told(home, 3, 2)
        assert len(home.replicas.purgatory) == 1
        told(home, 3, 3)
        assert await answer == (ErrorCode.NONE, 3)
        assert await delete(home, 1) == (ErrorCode.NONE, 3), "all begin above it already"

    play(scene)


def test_it_is_an_error_where_a_follower_takes_too_long(play):
    async def scene(home):
        told(home, 2, 1)
        told(home, 3, 2)
        assert await delete(home, 3, timeout_ms=20) == (ErrorCode.REQUEST_TIMED_OUT, 1)
        assert home.replicas.partition(FIRST).log.log_start_offset == 3

    play(scene)


def test_nobody_waits_for_a_follower_that_is_neither_alive_nor_in_sync(play):
    async def scene(home):
        answer = await begun(home, 3)
        told(home, 2, 3)
        home.replicas.take_live_brokers({home.broker_id, 2})
        assert len(home.replicas.purgatory) == 1, "it may be elected while it is in sync"
        epoch = home.replicas.partition(FIRST).leader_epoch
        accepted = Accepted(frozenset({home.broker_id, 2}), epoch, partition_epoch=1)
        home.replicas.isr_answered(FIRST, Proposal(accepted.isr, 0), accepted)
        assert await answer == (ErrorCode.NONE, 3)

    play(scene)


def test_a_leader_that_becomes_a_follower_meanwhile_is_no_leader(play):
    async def scene(home):
        answer = await begun(home, 3)
        topic_id = home.replicas.partition(FIRST).topic_id
        home.replicas.follow(FIRST, topic_id, {}, leader=2, leader_epoch=99)
        assert await answer == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    play(scene)
