"""A follower whose batches say wrong offsets, which no CRC covers, heals: its log is its leader's again.

A wrong offset of the last batch moves the log's end, too, and what is fetched next may begin elsewhere at the leader.
"""

import asyncio
from itertools import product, starmap
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from millrace.addresses import Address
from millrace.records.batch import walk
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.metrics import MaintenanceCounts
from millrace_broker.replication.broker_link import BrokerLink
from millrace_broker.replication.healer import Healer
from millrace_broker.replication.range_fetch import Sources
from millrace_broker.storage import Log, TopicPartition
from millrace_support import following_broker
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.damaged_log import flip
from millrace_support.following_broker import LEADER, Follower, Machine, content, following, led, played, same
from millrace_support.leading_broker import LeadingBroker
from millrace_support.until import until

pytestmark = pytest.mark.usefixtures("without_logs")
EPOCH = 1
LOWEST_BYTE, RECORD = 7, 66  # of a batch
PAUSE_MS = 60_000
FROM_END, BITS = range(4), range(4)
SIZES = {"one record each": (1,), "one to three records": (1, 2, 3), "three records each": (3,)}


class Case(NamedTuple):
    """Which batch is misplaced by which bit, whether the one in front is torn, and how many the leader appends then."""

    sizes: str
    from_end: int
    bit: int
    is_torn: bool
    more: int
    is_known: bool  # that it is synced, by checkpoints


CASES = list(starmap(Case, product(SIZES, FROM_END, BITS, (False, True), range(4), (False, True))))


def append(log: Log, sizes: tuple[int, ...], count: int) -> None:
    for number in range(count):
        first = log.log_end_offset
        values = [b"%d" % (first + one) for one in range(sizes[number % len(sizes)])]
        records = [NewRecord(value, key=value) for value in values]
        log.append(encode_batch(records), leader_epoch=EPOCH)


async def copied(leading: LeadingBroker, leader: Log, *, is_known: bool) -> CrashFileSystem:
    """Returns the synced disk of a killed follower; checkpoints say that it is synced where that `is_known`."""
    async with following(leading) as (follower, _):
        followed = follower.follow()
        await until(lambda: same(followed.log, leader) and followed.high_watermark == leader.log_end_offset)
        if not is_known:
            follower.logs.checkpoint()
        followed.log.flush()
        if is_known:
            follower.logs.checkpoint()
        return follower.fs.after_kill()


def healer_of(follower: Follower, address: Address, clock: ManualClock) -> Healer:
    replicas = cast("Any", SimpleNamespace(replica=lambda key: follower.followed[key.partition]))

    async def nobody(_: TopicPartition) -> tuple[int, ...]:
        return ()

    return Healer(
        1, follower.logs, replicas, lambda _: Sources((LEADER,), EPOCH), nobody, lambda _: address, BrokerLink.connect,
        clock, MaintenanceCounts(),
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_follower_with_a_misplaced_batch_gets_its_leaders_log(case: Case) -> None:
    sizes, from_end, bit, is_torn, more, is_known = case

    async def scenario() -> None:
        (one,) = led(Machine(LEADER))
        append(one.log, SIZES[sizes], 9)
        leading = LeadingBroker([one])
        disk = await copied(leading, one.log, is_known=is_known)
        at = [position for position, _ in walk(content(one.log))][-1 - from_end :]

        def misplaced(data: bytearray) -> None:
            data[:] = flip(bytes(data), at[0] + LOWEST_BYTE, bit)

        def torn(data: bytearray) -> None:
            positions = [position for position, _ in walk(content(one.log))]
            data[:] = flip(bytes(data), positions[-2 - from_end] + RECORD, 3)

        path = one.log.segments[0].path
        disk.damage(path, misplaced)
        if is_torn:
            disk.damage(path, torn)
        append(one.log, SIZES[sizes][::-1], more)
        async with following(leading, fs=disk) as (follower, broker):
            log = follower.log()
            follower.follow(high_watermark=log.high_watermark)
            clock = ManualClock()
            healer = healer_of(follower, broker.address, clock)
            while log.healing.is_due or not same(log, one.log):  # `played` ends what never heals
                await healer.heal_all()
                clock.advance(PAUSE_MS)
                await asyncio.sleep(0)
            assert log.damage == []
            assert content(log) == content(one.log)

    played(scenario)


@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.parametrize("bit", BITS)
@pytest.mark.parametrize("number", range(5))
def test_a_compacted_log_gets_its_leaders_batches_where_one_in_a_closed_segment_is_misplaced(
    number: int, bit: int, is_torn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets may be left out there, and the batch in front may be torn: no other replica's ends where damage does."""
    monkeypatch.setitem(following_broker.SMALL_SEGMENTS, "cleanup.policy", "compact")

    async def scenario() -> None:
        (one,) = led(Machine(LEADER))
        append(one.log, (3,), 30)
        assert len(one.log.segments) > 2
        leading = LeadingBroker([one])
        disk = await copied(leading, one.log, is_known=True)
        path, at = one.log.segments[0].path, [position for position, _ in walk(content(one.log))]
        if is_torn:
            disk.damage(path, lambda data: data.__setitem__(slice(None), flip(bytes(data), at[number] + RECORD, 3)))
        misplaced = at[number + 1] + LOWEST_BYTE
        disk.damage(path, lambda data: data.__setitem__(slice(None), flip(bytes(data), misplaced, bit)))
        async with following(leading, fs=disk) as (follower, broker):
            log = follower.log()
            follower.follow(high_watermark=log.high_watermark)
            log.verify()
            assert log.damage
            clock = ManualClock()
            healer = healer_of(follower, broker.address, clock)
            while log.healing.is_due:
                await healer.heal_all()
                clock.advance(PAUSE_MS)
            assert content(log) == content(one.log)

    played(scenario)
