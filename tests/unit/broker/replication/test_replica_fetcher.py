"""A fetcher against leaders that answer well, badly, with every error, or not at all. The logs are real."""

import asyncio
from contextlib import asynccontextmanager
from random import Random
from uuid import UUID

import pytest

from millrace.addresses import Address
from millrace.config import MAX_LONG
from millrace.errors import ErrorCode, MillraceError
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.api import ApiKey
from millrace.wire.fetch import PartitionFetched, TopicFetched, encode_fetch_response
from millrace.wire.fetch_answer import decode_fetch_answer
from millrace.wire.fetch_request import decode_fetch_request
from millrace_broker.replication import replica_fetcher
from millrace_broker.replication.fetch_sessions import FetchSessions
from millrace_broker.replication.followed_partition import FIRST_PAUSE_MS, FollowedPartition
from millrace_broker.replication.replica_fetcher import FetchSettings, FollowingBroker
from millrace_broker.replication.replica_fetchers import ReplicaFetchers
from millrace_broker.replication.replication_quota import ReplicationQuota
from millrace_broker.storage import LogManager, TopicPartition
from millrace_broker.storage.batches.fetched import validate_fetched
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.leading_broker import LeadingBroker, LedLog
from millrace_support.scripted_broker import ScriptedBroker, answer_frame
from millrace_support.until import until

TOPIC_ID = UUID(int=7)
SETTINGS = FetchSettings(backoff_ms=1, wait_max_ms=10)
SMALL_SEGMENTS = {"segment.bytes": "1000", "index.interval.bytes": "100"}
LEADER = 2
HEAD_BYTES = 9  # size, correlation id, no tagged fields


class Machine:
    """A broker's logs on a disk of its own."""

    def __init__(self, broker_id):
        self.fs = CrashFileSystem()
        self.logs = LogManager(self.fs, ManualClock(), ["/data"], {}, "c" * 22, broker_id)
        self.logs.start()

    def log(self, index=0, topic_id=TOPIC_ID):
        return self.logs.create(TopicPartition("t", index), topic_id, SMALL_SEGMENTS)


class Follower(Machine):
    """A broker that follows."""

    def __init__(self, settings=SETTINGS):
        super().__init__(1)
        self.addresses = {}
        self.offline = []
        self.quota_clock = ManualClock()
        self.rate = MAX_LONG
        quota = ReplicationQuota(1, self.quota_clock, lambda: self.rate)
        self.committed = []
        broker = FollowingBroker(
            1, lambda: 5, self.addresses.get, self.logs, self.offline.append, self.committed.append, quota
        )
        self.fetchers = ReplicaFetchers(settings, broker)
        self.followed = {}

    def follow(self, index=0, *, epoch=1, leader=LEADER, high_watermark=0):
        old = self.followed.get(index)
        log = self.log(index)
        log.high_watermark = old.high_watermark if old else high_watermark
        if old is not None:
            self.fetchers.unfollow(old)
        new = FollowedPartition(log, TOPIC_ID, {}, leader=leader, leader_epoch=epoch)
        self.followed[index] = new
        self.fetchers.follow(new)
        return new


@asynccontextmanager
async def following(leader, settings=SETTINGS):
    """Yields (a follower, the leader's socket)."""
    answer = leader.answer if isinstance(leader, LeadingBroker) else leader
    async with ScriptedBroker(answer) as broker:
        follower = Follower(settings)
        follower.addresses[LEADER] = broker.address
        try:
            yield follower, broker
        finally:
            await follower.fetchers.close()


def played(scenario):
    return asyncio.run(asyncio.wait_for(scenario(), 120))


def append(log, count, epoch=1, chance=None):
    for number in range(count):
        value = b"%d" % number if chance is None else chance.randbytes(chance.randint(0, 200))
        log.append(encode_batch([NewRecord(value)] * (1 + number % 3)), leader_epoch=epoch)


def content(log):
    return b"".join(segment.read_at(0, segment.size_bytes) for segment in log.segments)


def same(one, other):
    return one.log_end_offset == other.log_end_offset and content(one) == content(other)


def batches(value=b"v", base_offset=0):
    data = bytearray(encode_batch([NewRecord(value)]))
    data[:8] = base_offset.to_bytes(8, "big")
    data[12:16] = (1).to_bytes(4, "big")  # the leader epoch, which the CRC does not cover
    return bytes(data)


def fetch_answer(header, *fetched, error_code=0, session_id=0):
    topics = [TopicFetched("", TOPIC_ID, fetched)] if fetched else []
    parts = encode_fetch_response(header.api_version, topics, error_code, session_id=session_id)
    return answer_frame(header, b"".join(parts))


def led(machine, count=1, **options):
    return [LedLog(machine.log(index), TOPIC_ID, 1, **options) for index in range(count)]


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
        for one in decode_fetch_answer(body).fetched.values():
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
