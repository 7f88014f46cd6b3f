"""A coordinator's record counts once it is replicated, and never once it was cut off."""

import asyncio
from collections.abc import Callable
from uuid import UUID

import pytest

from millrace.errors import ErrorCode
from millrace.records.batch import BatchHeader, walk
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.replication.isr_tables import IsrTables
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.purgatory import Purgatory
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.roles import Leadership
from millrace_broker.replication.shards import LedShards, read_to_end, when_replicated
from millrace_broker.storage import LogManager, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem

KEY = TopicPartition("__consumer_offsets", 0)
TOPIC_ID = UUID(int=1)


class NoTimer:
    def cancel(self) -> None:
        """Stops nothing."""


def never(_: float, __: Callable[[], None]) -> NoTimer:
    return NoTimer()


@pytest.fixture
def replicas() -> ReplicaManager:
    logs = LogManager(CrashFileSystem(), ManualClock(), ["/data"], {}, "c" * 22, 1)
    logs.start()
    replicas = ReplicaManager(logs, Purgatory(never), IsrTables(1, ManualClock()))
    replicas.lead(KEY, TOPIC_ID, {}, Leadership.alone(1, 5))
    return replicas


def append(partition: Partition, value: bytes = b"value") -> int:
    """Appends a record that no follower has yet: the high watermark stays where it is."""
    return partition.log.append(encode_batch([NewRecord(value)]), leader_epoch=partition.leader_epoch).last_offset


def waiting(replicas: ReplicaManager) -> list[ErrorCode]:
    """Appends two records and waits for the second; returns a list that gets the outcome when there is one."""
    partition = replicas.partition(KEY)
    append(partition)
    outcomes: list[ErrorCode] = []
    when_replicated(replicas, KEY, append(partition), 1000, outcomes.append)
    assert outcomes == []
    return outcomes


def test_a_record_counts_when_the_high_watermark_is_past_it(replicas: ReplicaManager) -> None:
    outcomes = waiting(replicas)
    for high_watermark, expected in ((1, []), (2, [ErrorCode.NONE])):
        replicas.partition(KEY).high_watermark = high_watermark
        replicas.purgatory.check(KEY)
        assert outcomes == expected


def test_a_record_that_another_leader_has_cut_off_never_counts(replicas: ReplicaManager) -> None:
    """The broker follows in epoch 6, is cut, and leads in epoch 7, where another record lies at the offset."""
    outcomes = waiting(replicas)
    partition = replicas.partition(KEY)
    partition.log.truncate_to(1)
    partition.leader_epoch = 7
    append(partition, b"another")
    partition.high_watermark = partition.log.log_end_offset
    replicas.purgatory.check(KEY)
    assert outcomes == [ErrorCode.NOT_COORDINATOR]


def test_a_record_that_is_still_there_counts_in_a_later_epoch_too(replicas: ReplicaManager) -> None:
    outcomes = waiting(replicas)
    partition = replicas.partition(KEY)
    partition.leader_epoch = 7
    append(partition)
    replicas.purgatory.check(KEY)
    assert outcomes == []
    partition.high_watermark = 3
    replicas.purgatory.check(KEY)
    assert outcomes == [ErrorCode.NONE]


def test_a_record_of_a_partition_that_is_led_no_longer_does_not_count(replicas: ReplicaManager) -> None:
    outcomes = waiting(replicas)
    replicas.resign(KEY)
    assert outcomes == [ErrorCode.NOT_COORDINATOR]


def test_a_new_leader_reads_what_will_be_committed_too(replicas: ReplicaManager) -> None:
    """Its high watermark may lag behind that of the leader before, which has answered already."""
    partition = replicas.partition(KEY)
    replicas.lead(KEY, TOPIC_ID, {}, Leadership(6, 0, (1, 2), (1, 2)))
    for _ in range(3):
        append(partition)
    ends: list[int] = []

    def take_in(batches: bytes) -> int:
        *_, (_, last) = walk(batches)
        ends.append(last.next_offset)
        return last.next_offset

    end = asyncio.run(read_to_end(replicas, KEY, 1, take_in, lambda: False))
    assert (ends, end, partition.high_watermark) == ([1, 2, 3], 3, 0)


class Served:
    """A shard that notes when it serves."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.is_loaded = self.is_closed = False

    def replay(self, _: BatchHeader, __: memoryview) -> None:
        """Keeps nothing."""

    def loaded(self) -> None:
        """Serves."""
        self.is_loaded = True

    def close(self) -> None:
        """Serves no more."""
        self.is_closed = True


async def load(replicas: ReplicaManager, *, acts_elsewhere: bool) -> tuple[LedShards[Served], Served]:
    """Returns a shard that has read the partition, and serves or waits for replicas."""
    shards = LedShards(
        KEY.topic, replicas, Served, clock=ManualClock(), load_buffer_bytes=1, when_loaded=lambda *_: None,
        acts_elsewhere=acts_elsewhere,
    )  # fmt: skip
    shards.elected(KEY)
    shard = shards.find(KEY)
    assert shard is not None
    while not shard.is_loaded and not len(replicas.purgatory):  # noqa: ASYNC110  nothing tells that a shard waits
        await asyncio.sleep(0)
    return shards, shard


async def turns() -> None:
    """Lets all that is ready go on."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("newer_epoch", [6, 7])
def test_a_shard_upon_which_others_act_serves_once_all_that_it_has_read_is_committed(
    replicas: ReplicaManager, newer_epoch: int
) -> None:
    """Records of the former leader are committed in its own epoch, or in a later one of the same broker."""
    append(replicas.partition(KEY))
    replicas.lead(KEY, TOPIC_ID, {}, Leadership(6, 0, (1, 2), (1, 2)))

    async def elected() -> list[bool]:
        _, shard = await load(replicas, acts_elsewhere=True)
        replicas.lead(KEY, TOPIC_ID, {}, Leadership(newer_epoch, 0, (1, 2), (1, 2)))
        await turns()
        before = shard.is_loaded
        replicas.fetched(replicas.partition(KEY), 2, 1)
        await turns()
        return [before, shard.is_loaded]

    assert asyncio.run(elected()) == [False, True]


def test_a_shard_that_is_led_no_longer_never_serves_what_was_not_committed(replicas: ReplicaManager) -> None:
    append(replicas.partition(KEY))
    replicas.lead(KEY, TOPIC_ID, {}, Leadership(6, 0, (1, 2), (1, 2)))

    async def elected() -> tuple[bool, bool, Served | None]:
        shards, shard = await load(replicas, acts_elsewhere=True)
        replicas.resign(KEY)
        await turns()
        return shard.is_loaded, shard.is_closed, shards.find(KEY)

    assert asyncio.run(elected()) == (False, True, None)


def test_a_shard_upon_which_nobody_acts_serves_what_it_has_read(replicas: ReplicaManager) -> None:
    append(replicas.partition(KEY))
    replicas.lead(KEY, TOPIC_ID, {}, Leadership(6, 0, (1, 2), (1, 2)))

    async def elected() -> bool:
        _, shard = await load(replicas, acts_elsewhere=False)
        return shard.is_loaded

    assert asyncio.run(elected())


def test_a_record_counts_once_the_followers_in_sync_have_it(replicas: ReplicaManager) -> None:
    replicas.lead(KEY, TOPIC_ID, {}, Leadership(6, 0, (1, 2), (1, 2)))
    partition, info = replicas.append(KEY, encode_batch([NewRecord(b"value")]))
    outcomes: list[ErrorCode] = []
    when_replicated(replicas, KEY, info.last_offset, 1000, outcomes.append)
    replicas.fetched(partition, 2, 0)
    assert outcomes == []
    replicas.fetched(partition, 2, 1)
    assert outcomes == [ErrorCode.NONE]


def test_an_append_that_follows_from_another_one_waits_for_its_turn(replicas: ReplicaManager) -> None:
    """Where the leader alone is in sync, each append is replicated at once, and completes what waited before."""
    replicas.lead(KEY, TOPIC_ID, {}, Leadership(6, 0, (1, 2), (1,)))
    partition = replicas.partition(KEY)
    steps: list[str] = []

    def append_to_log(name: str, then: Callable[[ErrorCode], None]) -> None:
        _, info = replicas.append(KEY, encode_batch([NewRecord(b"value")]))
        when_replicated(replicas, KEY, info.last_offset, 1000, then)
        steps.append(f"{name} is appended")

    def first(_: ErrorCode) -> None:
        steps.append("first begins")
        append_to_log("third", lambda _: steps.append("third"))
        steps.append("first ends")

    for then in (first, lambda _: steps.append("second")):
        when_replicated(replicas, KEY, append(partition), 1000, then)
    assert steps == []
    append_to_log("fourth", lambda _: steps.append("fourth"))
    assert steps == [
        "first begins", "third is appended", "first ends", "second", "third", "fourth", "fourth is appended",
    ]  # fmt: skip
