"""A leader's damage has hidden leader epochs whose file is lost, and no other replica knows yet what is committed.

Whose copy is that of the committed batches, then, only the ISR and the controller's list of eligible leaders tell.
"""

from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millrace.addresses import Address
from millrace.errors import ZooKeeperError
from millrace.records.batch import walk
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.metrics import MaintenanceCounts
from millrace_broker.replication.broker_link import BrokerLink
from millrace_broker.replication.healer import Healer
from millrace_broker.replication.range_fetch import Sources
from millrace_broker.replication.replica import Replica
from millrace_broker.storage import Log, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem
from millrace_support.following_broker import LEADER, TOPIC_ID, Machine, content, following, led, played, same
from millrace_support.leading_broker import LeadingBroker
from millrace_support.scripted_broker import ScriptedBroker
from millrace_support.until import until

pytestmark = pytest.mark.usefixtures("without_logs")
OLD_EPOCH, EPOCH = 0, 1
BATCHES, OLD_BATCHES, KNOWN = 9, 5, 3  # the first so many are of the old epoch, and known as committed
HOLDERS: dict[str, tuple[tuple[int, ...], tuple[int, ...] | None]] = {
    "nobody": ((), ()),
    "in sync": ((LEADER,), ()),
    "eligible": ((), (LEADER,)),
    "another": ((3,), (4,)),
    "in sync, and ZooKeeper is gone": ((LEADER,), None),
    "ZooKeeper is gone": ((), None),
}
ARE_THERE = {"in sync", "eligible", "in sync, and ZooKeeper is gone"}
FILES = {"epochs lost": True, "epochs known": False}
PAUSE_MS = 60_000


def append(log: Log) -> None:
    for number in range(BATCHES):
        epoch = OLD_EPOCH if number < OLD_BATCHES else EPOCH
        log.append(encode_batch([NewRecord(b"%d" % number)]), leader_epoch=epoch)


async def copied(leading: LeadingBroker, leader: Log) -> CrashFileSystem:
    """Returns the disk of a killed follower whose checkpoints say that all is synced and committed."""
    async with following(leading) as (follower, _):
        followed = follower.follow()
        await until(lambda: same(followed.log, leader) and followed.high_watermark == leader.log_end_offset)
        followed.log.flush()
        follower.logs.checkpoint()
        return follower.fs.after_kill()


def healer_of(machine: Machine, replica: Replica, address: Address, clock: ManualClock, holders: str) -> Healer:
    in_sync, eligible = HOLDERS[holders]
    sources = Sources((LEADER,), EPOCH, in_sync)
    replicas = cast("Any", SimpleNamespace(replica=lambda _: replica))

    async def eligible_leaders(_: TopicPartition) -> tuple[int, ...]:
        if eligible is None:
            raise ZooKeeperError("the connection is lost")
        return eligible

    return Healer(
        1, machine.logs, replicas, lambda _: sources, eligible_leaders, lambda _: address, BrokerLink.connect, clock,
        MaintenanceCounts(),
    )  # fmt: skip


def healed_up_to(holders: str, file: str, first: int, high_watermark: int) -> int:
    """Returns up to where the log heals: all of it once it knows of the newer epoch, which a committed batch tells."""
    is_told = holders in ARE_THERE and high_watermark > OLD_BATCHES
    return BATCHES if is_told or not FILES[file] or first > OLD_BATCHES else OLD_BATCHES


@pytest.mark.parametrize("high_watermark", [KNOWN, OLD_BATCHES, OLD_BATCHES + 1, BATCHES])
@pytest.mark.parametrize("first", [1, OLD_BATCHES, OLD_BATCHES + 1])
@pytest.mark.parametrize(("holders", "file"), list(product(HOLDERS, FILES)), ids=str)
def test_batches_below_the_high_watermark_are_taken_from_who_has_them(
    holders: str, file: str, first: int, high_watermark: int
) -> None:
    """The log's end is damaged from a batch on, and the source knows of the first three batches as committed."""

    async def scenario() -> None:
        (one,) = led(Machine(LEADER))
        append(one.log)
        leading = LeadingBroker([one])
        disk = await copied(leading, one.log)
        one.high_watermark = KNOWN
        positions = [position for position, _ in walk(content(one.log))]
        folder = one.log.directory
        disk.damage(one.log.segments[0].path, lambda data: data.__delitem__(slice(positions[first] + 40, None)))
        if FILES[file]:
            disk.damage(f"{folder}/leader-epoch-checkpoint", lambda data: data.__delitem__(slice(7, None)))
        async with ScriptedBroker(leading.answer) as broker:
            machine = Machine(1, disk)
            log = machine.log()
            log.high_watermark = high_watermark
            assert log.damage
            clock = ManualClock()
            healer = healer_of(machine, Replica(log, TOPIC_ID, EPOCH, {}), broker.address, clock, holders)
            for _ in range(4):
                await healer.heal_all()
                clock.advance(PAUSE_MS)
            healed = healed_up_to(holders, file, first, high_watermark)
            left = [(healed, BATCHES)] if healed < BATCHES else []
            assert [(damaged.start_offset, damaged.end_offset) for _, damaged in log.damage] == left
            healed_bytes = [*positions, len(content(one.log))][healed]
            assert content(log)[:healed_bytes] == content(one.log)[:healed_bytes]

    played(scenario)
