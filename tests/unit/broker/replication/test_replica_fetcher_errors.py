"""A fetcher whose leader answers with errors, with garbage, too late or not at all asks again and loses nothing."""

import asyncio
from random import Random

import pytest

from millrace.addresses import Address
from millrace.errors import ErrorCode, MillraceError
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.api import ApiKey
from millrace.wire.fetch import PartitionFetched, decode_fetch_response
from millrace_broker.replication import replica_fetcher
from millrace_broker.replication.followed_partition import FIRST_PAUSE_MS, FollowedPartition
from millrace_broker.replication.replica_fetcher import FetchSettings
from millrace_broker.storage.log.follower_append import validate_fetched
from millrace_support.following_broker import (
    LEADER,
    SETTINGS,
    TOPIC_ID,
    Follower,
    Machine,
    append,
    content,
    fetch_answer,
    following,
    led,
    played,
    same,
)
from millrace_support.leading_broker import LeadingBroker, LedLog
from millrace_support.scripted_broker import ScriptedBroker
from millrace_support.until import until

HEAD_BYTES = 9  # size, correlation id, no tagged fields


def batches(value=b"v", base_offset=0):
    data = bytearray(encode_batch([NewRecord(value)]))
    data[:8] = base_offset.to_bytes(8, "big")
    data[12:16] = (1).to_bytes(4, "big")  # the leader epoch, which the CRC does not cover
    return bytes(data)


@pytest.mark.parametrize("code", [code for code in ErrorCode if code not in (0, ErrorCode.FENCED_LEADER_EPOCH)])
def test_a_partition_with_an_error_is_asked_for_again_and_does_not_hold_up_others(code):
    async def scenario():
        leader = Machine(LEADER)
        bad, good = led(leader, 2)
        bad.error_code = code
        append(bad.log, 3)
        append(good.log, 3)
        leading = LeadingBroker([bad, good])
        async with following(leading) as (follower, broker):
            follower.follow(0)
            followed = follower.follow(1)
            await until(lambda: same(followed.log, good.log))
            fetches = leading.fetches
            await until(lambda: leading.fetches > fetches + 5)
            bad.error_code = 0
            await until(lambda: same(follower.log(0), bad.log))
            assert broker.connections == 1

    played(scenario)


def test_a_leader_that_has_not_heard_of_its_role_yet_is_asked_again_soon_and_then_less_often():
    async def scenario():
        leader = Machine(LEADER)
        (one,) = led(leader)
        append(one.log, 3)
        one.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        async with following(LeadingBroker([one]), FetchSettings(backoff_ms=3_600_000, wait_max_ms=10)) as (
            follower,
            _,
        ):
            followed = follower.follow(0)
            await until(lambda: followed.next_pause_ms >= 4 * FIRST_PAUSE_MS)
            one.error_code = 0
            await until(lambda: same(followed.log, one.log))
            assert followed.next_pause_ms == FIRST_PAUSE_MS

    played(scenario)


def test_a_fenced_partition_waits_for_a_newer_epoch():
    async def scenario():
        leader = Machine(LEADER)
        fenced, good = led(leader, 2)
        fenced.leader_epoch = 2
        append(fenced.log, 3)
        leading = LeadingBroker([fenced, good])
        async with following(leading) as (follower, _):
            followed = follower.follow(0)
            follower.follow(1)
            await until(lambda: followed.failure)
            fetches = leading.fetches
            await until(lambda: leading.fetches > fetches + 20)
            assert followed.log.log_end_offset == 0
            newer = follower.follow(0, epoch=2)
            await until(lambda: same(newer.log, fenced.log))

    played(scenario)


@pytest.mark.parametrize("code", [code for code in ErrorCode if code])
def test_a_request_that_is_refused_as_a_whole_is_sent_again_after_a_pause(code):
    async def scenario():
        leader = Machine(LEADER)
        (one,) = led(leader)
        append(one.log, 3)
        leading = LeadingBroker([one])
        refusals = 5

        async def answer(header, message):
            nonlocal refusals
            refusals -= 1
            return fetch_answer(header, error_code=code) if refusals >= 0 else await leading.answer(header, message)

        async with following(answer) as (follower, _):
            followed = follower.follow()
            await until(lambda: same(followed.log, one.log))
            assert refusals < 0

    played(scenario)


def test_an_answer_that_comes_after_a_change_of_leaders_is_dropped():
    """KAFKA-6880: a zombie's answer must not reach the log of the next epoch."""

    async def scenario():
        release = asyncio.Event()
        old = Machine(LEADER)
        (zombie,) = led(old)
        append(zombie.log, 10)
        leading = LeadingBroker([zombie])

        async def held(header, message):
            await release.wait()
            return await leading.answer(header, message)

        async with following(held) as (follower, broker):
            followed = follower.follow()
            other = follower.follow(1)
            await until(lambda: broker.requests)
            follower.fetchers.unfollow(followed)
            newer = FollowedPartition(followed.log, TOPIC_ID, {}, leader=LEADER, leader_epoch=2)
            follower.fetchers.follow(newer)
            release.set()
            await until(lambda: len(broker.requests) > 3)
            assert followed.log.log_end_offset == 0
            assert other.failure is None

    played(scenario)


def test_a_log_whose_role_changes_while_an_answer_is_taken_is_not_cut(monkeypatch):
    """After a long append others have their turn, as a controller that makes this broker the leader."""

    async def scenario():
        leader = Machine(LEADER)
        one, two = (LedLog(leader.log(index), TOPIC_ID, 2) for index in range(2))
        append(one.log, 3, epoch=2)
        append(two.log, 3)
        async with following(LeadingBroker([one, two])) as (follower, broker):
            mine = follower.log(0)
            append(mine, 5, epoch=1)
            end, content_before = mine.log_end_offset, content(mine)
            diverging, followed = follower.follow(0, epoch=2), follower.follow(1, epoch=2)

            async def let_others(_):
                follower.fetchers.unfollow(diverging)

            monkeypatch.setattr(replica_fetcher, "_let_others", let_others)
            await until(lambda: same(followed.log, two.log))
            await until(lambda: len(broker.requests) > 3)
            assert (mine.log_end_offset, content(mine)) == (end, content_before)

    played(scenario)


def test_a_leader_that_hangs_or_hangs_up_is_connected_to_again():
    async def scenario():
        leader = Machine(LEADER)
        (one,) = led(leader)
        append(one.log, 3)
        leading = LeadingBroker([one])
        mood = iter(["hang", "up", "up", "hang"])

        async def answer(header, message):
            match next(mood, "good"):
                case "hang":
                    await asyncio.Event().wait()
                case "good":
                    return await leading.answer(header, message)
            return None

        async with ScriptedBroker(answer) as broker:
            follower = Follower()
            # Long enough to end only the connection that hangs.
            follower.fetchers._settings = SETTINGS._replace(socket_timeout_ms=1000)
            followed = follower.follow()  # when nothing is known of the leader
            await asyncio.sleep(0.02)
            follower.addresses[LEADER] = Address("127.0.0.1", 1)
            await asyncio.sleep(0.02)
            follower.addresses[LEADER] = broker.address
            await until(lambda: same(followed.log, one.log))
            assert broker.connections == 5
            await follower.fetchers.close()

    played(scenario)


def changed(chance, data):
    """Returns bytes with something wrong in them."""
    data = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        position = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[position] ^= 1 << chance.randrange(8)
            case 1:
                data[position] = chance.choice([0, 0x7F, 0x80, 0xFF])
            case 2:
                del data[position : position + chance.randint(1, 20)]
            case _:
                data[position:position] = chance.randbytes(chance.randint(1, 10))
        if not data:
            break
    return bytes(data)


def batches_in(body):
    """Returns the bytes of each batch in an answer; none where a follower would refuse them."""
    found = set()
    try:
        for one in decode_fetch_response(body).fetched.values():
            for position, header in validate_fetched(memoryview(one.records), 1 << 30):
                found.add(bytes(one.records[position : position + header.size_bytes]))
    except MillraceError:
        pass
    return found


def passes_for_another_log(true, lie):
    """Returns whether a lie has a valid batch that the answer lacks: offset and epoch are not in the CRC."""
    return not batches_in(lie) <= batches_in(true)


@pytest.mark.soak(rounds=8, minutes=1)
def test_garbage_from_a_leader_costs_nothing_but_another_fetch(rounds):
    """Nothing stays that is not in the log of the leader: in the end the logs are equal."""

    async def scenario(seed):
        chance = Random(seed)
        leader = Machine(LEADER)
        both = led(leader, 2)
        leading = LeadingBroker(both)
        lies = 60

        async def answer(header, message):
            nonlocal lies
            append(both[0].log, 1, chance=chance)
            true = await leading.answer(header, message)
            lies -= 1
            if lies < 0 or chance.random() < 0.3:
                return true
            if chance.random() < 0.1:
                return chance.randbytes(chance.randint(1, 50))
            lie = changed(chance, true[HEAD_BYTES:])
            if header.api_key != ApiKey.FETCH or passes_for_another_log(true[HEAD_BYTES:], lie):
                return true
            return (len(lie) + HEAD_BYTES - 4).to_bytes(4, "big") + true[4:HEAD_BYTES] + lie

        async with following(answer) as (follower, _):
            follower.fetchers._settings = SETTINGS._replace(socket_timeout_ms=200)
            for index in (0, 1):
                follower.follow(index)
            await until(lambda: lies < 0)
            for index, one in enumerate(both):
                newer = follower.follow(index, epoch=1)  # as a lie may have fenced it
                await until(lambda newer=newer, one=one: same(newer.log, one.log))
                assert newer.log.verify().findings == ()
            assert follower.offline == []

    for seed in rounds:
        played(lambda seed=seed: scenario(seed))


@pytest.mark.parametrize(
    "fetched",
    [
        PartitionFetched(0, 0, 5, 5, 0, b"", diverging_epoch=(1, 50)),
        PartitionFetched(0, 0, 5, 5, 0, b"", diverging_epoch=(9, 0)),
        PartitionFetched(0, 0, 5, 5, 0, b"", diverging_epoch=(1, -7)),
        PartitionFetched(0, 0, 5, 5, 0, batches()[:30]),
        PartitionFetched(0, 0, 5, 5, 0, batches()[:-1]),
        PartitionFetched(0, 0, 5, 5, 0, batches(base_offset=1)),
        PartitionFetched(0, 0, 5, 5, 0, bytes(100)),
    ],
)
def test_an_answer_that_can_not_be_taken_is_asked_for_again_after_a_pause(fetched):
    async def scenario():
        answers = 0

        async def answer(header, message):
            nonlocal answers
            answers += 1
            return fetch_answer(header, fetched)

        async with following(answer) as (follower, _):
            log = follower.log()
            append(log, 2)
            before = content(log)
            followed = follower.follow(high_watermark=2)
            await until(lambda: answers > 3)
            assert followed.retry_at_s > 0
            assert followed.failure is None
            assert content(log) == before

    played(scenario)


def test_watermarks_that_can_not_be_are_kept_within_the_log():
    async def scenario():
        answers = 0

        async def answer(header, message):
            nonlocal answers
            answers += 1
            return fetch_answer(header, PartitionFetched(0, 0, 1 << 60, 0, 1 << 59, b"") if answers < 5 else
                                PartitionFetched(0, 0, -1, -1, -1, b""))  # fmt: skip

        async with following(answer) as (follower, _):
            append(follower.log(), 2)
            followed = follower.follow()
            await until(lambda: answers >= 4)
            assert followed.high_watermark <= followed.log.log_end_offset
            await until(lambda: answers > 6)
            assert 0 <= followed.log.log_start_offset <= followed.high_watermark <= followed.log.log_end_offset

    played(scenario)
