"""A fetcher whose leader answers well gets the leader's log as it is, cuts its own one, and shares the partitions."""

import asyncio
from random import Random

import pytest

from millrace.records.record import NewRecord, encode_batch
from millrace_broker.replication import replica_fetcher
from millrace_broker.replication.fetch_sessions import FetchSessions
from millrace_broker.storage import TopicPartition
from millrace_support.following_broker import LEADER, TOPIC_ID, Machine, append, following, led, played, same
from millrace_support.leading_broker import LeadingBroker, LedLog
from millrace_support.scripted_broker import ScriptedBroker
from millrace_support.until import until


def test_a_follower_gets_all_batches_as_they_are_and_the_high_watermark():
    async def scenario():
        leader = Machine(LEADER)
        (one,) = led(leader)
        append(one.log, 300, chance=Random(1))
        one.high_watermark = 100
        async with following(LeadingBroker([one])) as (follower, broker):
            followed = follower.follow()
            await until(lambda: same(followed.log, one.log))
            assert followed.high_watermark == 100
            assert follower.committed[-1] == followed.topic_partition
            append(one.log, 50)
            one.high_watermark = None
            await until(lambda: followed.high_watermark == one.log.log_end_offset)
            assert same(followed.log, one.log)
            assert followed.log.leader_epochs.entries == one.log.leader_epochs.entries
            assert broker.requests[0].client_id == "broker-1-fetcher-0"

    played(scenario)


def test_a_follower_whose_newest_epoch_is_wrong_looks_at_its_batches():
    async def scenario():
        leader = Machine(LEADER)
        (one,) = led(leader)
        append(one.log, 30)
        async with following(LeadingBroker([one])) as (follower, _):
            followed = follower.follow()
            await until(lambda: same(followed.log, one.log))
            follower.fetchers.unfollow(followed)
            followed.log.leader_epochs.assign(one.log.leader_epochs.latest + 70, followed.log.log_end_offset - 1)
            append(one.log, 5)
            follower.follow()
            await until(lambda: same(followed.log, one.log))
            assert followed.log.leader_epochs.entries == one.log.leader_epochs.entries

    played(scenario)


def test_the_log_start_offset_follows_the_leaders():
    async def scenario():
        leader = Machine(LEADER)
        (one,) = led(leader)
        append(one.log, 100)
        async with following(LeadingBroker([one])) as (follower, _):
            followed = follower.follow()
            await until(lambda: same(followed.log, one.log))
            one.log.raise_log_start_offset(77)
            await until(lambda: followed.log.log_start_offset == 77)

    played(scenario)


@pytest.mark.parametrize("has_sessions", [True, False])
def test_many_partitions_are_followed_and_a_session_names_only_those_with_news(has_sessions):
    async def scenario():
        leader = Machine(LEADER)
        all_led = led(leader, 50)
        for number, one in enumerate(all_led):
            append(one.log, number)
        ids = iter(range(1, 1000))
        leading = LeadingBroker(all_led, FetchSessions(10, lambda: next(ids)) if has_sessions else None)
        async with following(leading) as (follower, _):
            for index in range(50):
                follower.follow(index)
            await until(lambda: all(same(follower.log(index), one.log) for index, one in enumerate(all_led)))
            before, fetches = leading.fetched_partitions, leading.fetches
            await until(lambda: leading.fetches > fetches + 20)
            per_fetch = (leading.fetched_partitions - before) / (leading.fetches - fetches)
            assert per_fetch < 10 if has_sessions else per_fetch == 50
            append(all_led[7].log, 3)
            follower.fetchers.unfollow(follower.followed[8])
            append(all_led[8].log, 3)
            await until(lambda: same(follower.log(7), all_led[7].log))
            fetches = leading.fetches
            await until(lambda: leading.fetches > fetches + 5)
            assert not same(follower.log(8), all_led[8].log)

    played(scenario)


def test_a_session_that_the_leader_has_forgotten_begins_again_at_once():
    async def scenario():
        leader = Machine(LEADER)
        (one,) = led(leader)
        ids = iter(range(1, 1000))
        leading = LeadingBroker([one], FetchSessions(10, lambda: next(ids)))
        async with following(leading) as (follower, _):
            followed = follower.follow()
            for _ in range(5):
                append(one.log, 1)
                await until(lambda: same(followed.log, one.log))
                leading.sessions = FetchSessions(10, lambda: next(ids))

    played(scenario)


def test_a_new_leader_cuts_what_it_does_not_have():
    """Both brokers have led, and each has records that the other one lacks (KIP-101, KIP-279)."""

    async def scenario():
        first, second = Machine(LEADER), Machine(3)
        old, new = first.log(), second.log()
        for log in (old, new):
            append(log, 10, epoch=1)
            append(log, 5, epoch=2)
        append(old, 7, epoch=2)
        append(old, 3, epoch=3)
        append(new, 20, epoch=4, chance=Random(3))
        leaders = LeadingBroker([LedLog(old, TOPIC_ID, 3)]), LeadingBroker([LedLog(new, TOPIC_ID, 5)])
        async with following(leaders[0]) as (follower, _), ScriptedBroker(leaders[1].answer) as other:
            follower.addresses[3] = other.address
            followed = follower.follow(epoch=3)
            await until(lambda: same(followed.log, old))
            followed = follower.follow(epoch=5, leader=3)
            await until(lambda: same(followed.log, new))
            assert followed.log.leader_epochs.entries == new.leader_epochs.entries
            assert follower.fetchers.sources == [3]

    played(scenario)


def test_a_log_that_is_cut_to_where_its_leaders_ends_gets_the_high_watermark():
    async def scenario():
        leader = Machine(LEADER)
        one = LedLog(leader.log(), TOPIC_ID, 2)
        append(one.log, 10, epoch=1)
        async with following(LeadingBroker([one], FetchSessions(10, iter(range(1, 10)).__next__))) as (follower, _):
            append(follower.log(), 15, epoch=1)
            followed = follower.follow(epoch=2)
            await until(lambda: same(followed.log, one.log) and followed.high_watermark == one.log.log_end_offset)

    played(scenario)


def test_a_high_watermark_that_comes_while_a_worker_holds_the_log_comes_again(monkeypatch):
    async def scenario():
        leader = Machine(LEADER)
        one, two = led(leader, 2)
        append(one.log, 10)
        one.high_watermark = 5
        leading = LeadingBroker([one, two], FetchSessions(10, iter(range(1, 10)).__next__))
        held = asyncio.Event()

        async def answer(header, message):
            if two.log.log_end_offset and not held.is_set():  # the worker has the log while this answer is taken
                followed.hold()
                held.set()
            return await leading.answer(header, message)

        async def let_others(_):
            if held.is_set() and followed.log.is_held:
                followed.let_go()

        monkeypatch.setattr(replica_fetcher, "_let_others", let_others)
        async with following(answer) as (follower, _):
            followed, other = follower.follow(0), follower.follow(1)
            await until(lambda: followed.high_watermark == 5)
            one.high_watermark = 10
            append(two.log, 1)
            await until(lambda: same(other.log, two.log) and followed.high_watermark == 10)
            assert held.is_set()

    played(scenario)


def test_a_log_without_epochs_is_cut_at_its_high_watermark():
    async def scenario():
        leader = Machine(LEADER)
        (one,) = led(leader)
        append(one.log, 30)
        async with following(LeadingBroker([one])) as (follower, _):
            log = follower.log()
            append(log, 10, epoch=-1)
            assert not log.leader_epochs.entries
            followed = follower.follow(high_watermark=0)
            await until(lambda: same(followed.log, one.log))

    played(scenario)


def test_a_log_longer_than_its_leaders_is_cut_and_one_that_ends_below_its_start_begins_again():
    async def scenario():
        leader = Machine(LEADER)
        longer, later = led(leader, 2)
        append(longer.log, 5)
        later.log.truncate_fully_and_start_at(100)
        append(later.log, 5)
        async with following(LeadingBroker([longer, later])) as (follower, _):
            append(follower.log(0), 50, epoch=-1)
            append(follower.log(1), 10, epoch=-1)
            for index in (0, 1):
                follower.follow(index, high_watermark=follower.log(index).log_end_offset)
            await until(lambda: follower.log(0).log_end_offset == longer.log.log_end_offset)
            await until(lambda: same(follower.log(1), later.log))
            assert follower.log(1).log_start_offset == 100

    played(scenario)


def test_a_first_batch_may_begin_below_the_start_of_the_log():
    """KAFKA-6975: records up to the middle of a batch were deleted at the leader."""

    async def scenario():
        leader = Machine(LEADER)
        (one,) = led(leader)
        one.log.append(encode_batch([NewRecord(b"v")] * 10), leader_epoch=1)
        append(one.log, 3)
        one.log.raise_log_start_offset(5)
        async with following(LeadingBroker([one])) as (follower, _):
            followed = follower.follow()
            await until(lambda: same(followed.log, one.log))
            assert followed.log.log_start_offset == 5

    played(scenario)


def test_a_full_disk_pauses_its_partition_and_a_failing_folder_takes_it_out():
    async def scenario():
        leader = Machine(LEADER)
        (one,) = led(leader)
        append(one.log, 20)
        async with following(LeadingBroker([one])) as (follower, _):
            followed = follower.follow()
            await until(lambda: same(followed.log, one.log))
            follower.fs.capacity_bytes = 0
            append(one.log, 20)
            await until(lambda: followed.retry_at_s)
            assert followed.failure is None
            follower.fs.capacity_bytes = None
            await until(lambda: same(followed.log, one.log))
            follower.logs.health[0].fail("a test")
            append(one.log, 1)
            await until(lambda: followed.failure)
            assert follower.offline == [TopicPartition("t", 0)]

    played(scenario)


def test_fetchers_without_partitions_end_and_closing_ends_all():
    async def scenario():
        leader = Machine(LEADER)
        (one,) = led(leader)
        async with following(LeadingBroker([one])) as (follower, broker):
            followed = follower.follow()
            await until(lambda: broker.requests)
            assert follower.fetchers.sources == [LEADER]
            follower.fetchers.unfollow(followed)
            assert follower.fetchers.sources == []
            nowhere = follower.follow(leader=-1)
            follower.fetchers.unfollow(nowhere)
            assert follower.fetchers.sources == []
            await follower.fetchers.close()
            follower.follow(epoch=3)
            assert follower.fetchers.sources == []
            before = len(asyncio.all_tasks())
            assert before <= 3

    played(scenario)


def test_several_fetchers_share_the_partitions_of_a_leader_and_another_number_moves_them():
    async def scenario():
        leader = Machine(LEADER)
        all_led = led(leader, 6)
        async with following(LeadingBroker(all_led)) as (follower, broker):

            async def all_are_followed():
                for one in all_led:
                    append(one.log, 2)
                await until(lambda: all(same(follower.log(index), one.log) for index, one in enumerate(all_led)))

            follower.fetchers.resize(3)
            for index in range(6):
                follower.follow(index)
            await all_are_followed()
            assert {one.client_id for one in broker.requests} == {f"broker-1-fetcher-{number}" for number in range(3)}
            for number in (2, 2, 5, 1):
                follower.followed[0].retry_at_s = 1 << 40  # a pause ends with the fetcher that has set it
                follower.fetchers.resize(number)
                if number != 2:
                    await all_are_followed()
            assert follower.fetchers.sources == [LEADER]
            assert len(follower.fetchers._running) == 1

    played(scenario)
