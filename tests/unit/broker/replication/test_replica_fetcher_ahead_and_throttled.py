"""A fetcher that is far behind asks ahead of what it has written, and a throttled partition is fetched by its quota."""

import asyncio
from random import Random

from millrace.wire.fetch import decode_fetch_request
from millrace_broker.replication import replica_fetcher
from millrace_broker.storage import TopicPartition
from millrace_support.following_broker import (
    LEADER,
    SETTINGS,
    SMALL_SEGMENTS,
    TOPIC_ID,
    Machine,
    append,
    following,
    led,
    played,
    same,
)
from millrace_support.leading_broker import LeadingBroker
from millrace_support.until import until


class WatchedLeader:
    """A leader that notes the offset of each fetch of partition 0, and where the follower's log ends at that time.

    After `answers` fetches it holds its answers until `free` is set.
    """

    def __init__(self, leading, answers=1_000_000):
        self.leading, self.answers = leading, answers
        self.log = None  # the follower's
        self.fetches = []  # (fetch offset, the end of the follower's log)
        self.free = asyncio.Event()

    async def answer(self, header, message):
        wanted = decode_fetch_request(header.api_version, message).wanted
        self.fetches += [
            (one.fetch_offset, self.log.log_end_offset) for key, one in wanted.items() if not key.partition
        ]
        if len(self.fetches) > self.answers:
            await self.free.wait()
        return await self.leading.answer(header, message)

    def ahead(self):
        return [(offset, end) for offset, end in self.fetches if offset > end]


FAR_BEHIND = SETTINGS._replace(max_bytes=1000)


def test_a_follower_that_is_far_behind_asks_ahead_and_never_for_what_is_not_committed():
    async def scenario():
        leader = Machine(LEADER)
        (one,) = led(leader)
        append(one.log, 300, chance=Random(5))
        one.high_watermark = one.log.log_end_offset // 2
        watched = WatchedLeader(LeadingBroker([one]))
        async with following(watched.answer, FAR_BEHIND) as (follower, _):
            watched.log = follower.log()
            follower.fs.capacity_bytes = 0  # so that nothing is written before the leader has the next request
            followed = follower.follow()
            await until(lambda: followed.retry_at_s)
            follower.fs.capacity_bytes = None
            await until(lambda: same(followed.log, one.log))
            assert watched.ahead()
            assert all(offset < one.high_watermark for offset, _ in watched.ahead())

    played(scenario)


def test_an_answer_that_was_asked_for_ahead_is_dropped_where_the_log_does_not_end_as_told():
    """The disk is full when the answer before it is written."""

    async def scenario():
        leader = Machine(LEADER)
        (one,) = led(leader)
        append(one.log, 100, chance=Random(6))
        watched = WatchedLeader(LeadingBroker([one]))
        async with following(watched.answer, FAR_BEHIND._replace(backoff_ms=50)) as (follower, _):
            watched.log = follower.log()
            follower.fs.capacity_bytes = 0
            followed = follower.follow()
            await until(watched.ahead)
            follower.fs.capacity_bytes = None  # what was asked for ahead could be written now, behind a gap
            await until(lambda: same(followed.log, one.log))
            assert followed.failure is None

    played(scenario)


def test_an_answer_that_was_asked_for_ahead_is_dropped_after_a_change_of_leaders(monkeypatch):
    """KAFKA-6880, where the log ends in the new epoch where the request in the old one said."""

    async def scenario():
        leader = Machine(LEADER)
        one, empty = led(leader, 2)
        append(one.log, 100, chance=Random(7))
        watched = WatchedLeader(LeadingBroker([one, empty]), answers=1)
        async with following(watched.answer, FAR_BEHIND) as (follower, broker):
            watched.log = follower.log()
            follower.follow(1)  # keeps the fetcher
            followed = follower.follow(0)

            async def let_others(_):  # behind the first append
                if not watched.free.is_set():
                    await until(lambda: len(watched.fetches) == 2)
                    follower.follow(0, epoch=2)
                    watched.free.set()

            monkeypatch.setattr(replica_fetcher, "_let_others", let_others)
            await until(lambda: len(broker.requests) > 5)
            assert followed.log.log_end_offset == watched.fetches[1][0] < one.log.log_end_offset

    played(scenario)


def test_a_throttled_partition_is_not_asked_for_ahead():
    async def scenario():
        leader = Machine(LEADER)
        (one,) = led(leader)
        append(one.log, 100, chance=Random(8))
        watched = WatchedLeader(LeadingBroker([one]))
        async with following(watched.answer, FAR_BEHIND) as (follower, _):
            throttled = {"follower.replication.throttled.replicas": "*"}
            watched.log = follower.logs.create(TopicPartition("t", 0), TOPIC_ID, SMALL_SEGMENTS)
            follower.fs.capacity_bytes = 0
            followed = follower.follow()
            follower.logs.create(followed.topic_partition, TOPIC_ID, SMALL_SEGMENTS | throttled)
            await until(lambda: followed.retry_at_s)
            follower.fs.capacity_bytes = None
            await until(lambda: same(followed.log, one.log))
            assert watched.ahead() == []

    played(scenario)


def test_a_partition_that_is_throttled_is_fetched_again_once_the_quota_allows_it():
    async def scenario():
        leader = Machine(LEADER)
        one, other = led(leader, 2)
        one.high_watermark = 1000  # so that the follower is not in sync
        append(one.log, 10)
        async with following(LeadingBroker([one, other])) as (follower, _):
            follower.rate = 1
            throttled, free = follower.follow(0), follower.follow(1)
            listed = {"follower.replication.throttled.replicas": "0:1"}
            follower.logs.create(throttled.topic_partition, TOPIC_ID, SMALL_SEGMENTS | listed)
            await until(lambda: same(throttled.log, one.log))
            for each in (one, other):
                append(each.log, 10)
            await until(lambda: same(free.log, other.log))
            assert throttled.log.log_end_offset < one.log.log_end_offset
            one.high_watermark = None
            await until(lambda: follower.quota_clock.advance(1_000_000) or throttled.is_in_sync)
            append(one.log, 1)
            await until(lambda: same(throttled.log, one.log))

    played(scenario)


def test_a_throttled_partition_that_is_in_sync_is_fetched_and_counted():
    async def scenario():
        leader = Machine(LEADER)
        (one,) = led(leader)
        async with following(LeadingBroker([one])) as (follower, _):
            follower.rate = 1
            followed = follower.follow()
            listed = {"follower.replication.throttled.replicas": "*"}
            follower.logs.create(followed.topic_partition, TOPIC_ID, SMALL_SEGMENTS | listed)
            for _ in range(3):
                append(one.log, 1)  # of one segment, so that one fetch gets all
                await until(lambda: same(followed.log, one.log))
            assert follower.fetchers._broker.quota.bytes_per_second() == one.log.size_bytes

    played(scenario)
