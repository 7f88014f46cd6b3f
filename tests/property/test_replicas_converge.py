"""Replicas whose leaders change, cleanly or not, end with the same bytes as the last leader, whatever happened before.

Leaders append, followers fetch a little or nothing, brokers die, and machines lose what they have not synced. Any
replica may be elected, the last leader again too (KAFKA-7164), with less than others have (an unclean election). Then
everyone follows one leader to the end.
"""

from random import Random
from uuid import UUID

import pytest

from millrace.errors import OffsetOutOfRangeError
from millrace.records.batch import walk
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.encoder import contents
from millrace_broker.replication.epoch_ends import cut_for, fetch_position
from millrace_broker.replication.partition import Partition
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem

FOLDER = "/data/t-0"
CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100, retention_ms=-1)
REPLICAS = 3
MAX_STEPS = 300


class Replica:
    """One broker's log; `flushed` is what its checkpoint says, which a truncation lowers."""

    def __init__(self) -> None:
        self.fs = CrashFileSystem()
        self.fs.mkdir(FOLDER)
        self.fs.fsync_dir("/")
        self.fs.fsync_dir("/data")
        self.flushed = 0
        self.open()

    def open(self) -> None:
        self.log = Log(self.fs, ManualClock(), FOLDER, TopicPartition("t", 0), CONFIG, recovery_point=self.flushed)

    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.log.recovery_point

    def die(self, chance: Random | None) -> None:
        """Ends the process; with `chance` the machine loses power."""
        self.fs = self.fs.after_kill() if chance is None else self.fs.after_cut(chance)
        self.open()

    def truncate(self, offset: int) -> None:
        self.flushed = min(self.flushed, offset)
        self.log.truncate_to(offset)

    @property
    def content(self) -> bytes:
        return b"".join(segment.read_at(0, segment.size_bytes) for segment in self.log.segments)


class Cluster:
    """Three replicas of a partition, of which one leads."""

    def __init__(self, *, asks_for_epochs: bool) -> None:
        self.replicas = [Replica() for _ in range(REPLICAS)]
        self.asks_for_epochs = asks_for_epochs
        self.epoch = 0
        self.written = 0
        self.elect(0)

    def elect(self, number: int) -> None:
        self.epoch += 1
        self.leader = self.replicas[number]
        self.partition = Partition(self.leader.log, UUID(int=1), self.epoch, {})

    def append(self, count: int) -> None:
        for _ in range(count):
            self.written += 1
            value = b"%d" % self.written
            self.partition.append(encode_batch([NewRecord(value)] * (1 + self.written % 3)))

    def fetch(self, follower: Replica, max_bytes: int) -> bool:
        """Fetches once; returns whether the follower then has all that the leader has."""
        log = follower.log
        offset, epoch = fetch_position(log.leader_epochs.entries, log.log_end_offset, high_watermark=0)
        if epoch < 0:
            follower.truncate(offset)
        elif self.diverges(follower, offset, epoch):
            return False
        read = self.partition.read(offset, max_bytes, at_least_one=True)
        log.append_as_follower(bytes(contents(read.records)), leader_epoch=self.epoch)
        return log.log_end_offset == self.leader.log.log_end_offset

    def diverges(self, follower: Replica, offset: int, epoch: int) -> bool:
        """Compares and truncates as the answer to a Fetch says, or that to OffsetForLeaderEpoch."""
        if self.asks_for_epochs:
            answer: tuple[int, int] | None = self.partition.end_of_epoch(epoch)
        else:
            answer = self.partition.diverging_epoch(offset, epoch)
        if answer is None:
            return False
        log = follower.log
        cut = cut_for(log.leader_epochs.entries, log.log_end_offset, 0, answer)
        assert cut >= common_end(follower, self.leader), "what both have is never cut"
        follower.truncate(cut)
        return log.log_end_offset < offset

    def settle(self) -> None:
        """Lets everyone fetch until all have what the leader has."""
        for follower in self.replicas:
            if follower is not self.leader:
                assert any(self.fetch(follower, 200) for _ in range(MAX_STEPS))


def common_end(one: Replica, other: Replica) -> int:
    """Returns the offset at which the batches end that both logs begin with."""
    end = 0
    for (_, left), (_, right) in zip(walk(one.content), walk(other.content), strict=False):
        if left != right:
            break
        end = left.next_offset
    return end


def play(cluster: Cluster, chance: Random) -> None:
    number = chance.randrange(REPLICAS)
    replica = cluster.replicas[number]
    match chance.choices(["append", "fetch", "elect", "die", "flush"], [30, 40, 15, 10, 5])[0]:
        case "append":
            cluster.append(chance.randint(1, 4))
        case "elect":
            cluster.elect(number)
        case "flush":
            replica.flush()
        case "die":
            replica.die(chance if chance.random() < 0.5 else None)
            if replica is cluster.leader:
                cluster.elect(number)  # the same one again, with what it has left
        case _ if replica is not cluster.leader:
            steps = chance.choice([1, 1, 2, 5, MAX_STEPS])
            any(cluster.fetch(replica, 150) for _ in range(steps))


@pytest.mark.parametrize("asks_for_epochs", [False, True])
@pytest.mark.soak(rounds=60, minutes=2)
def test_all_replicas_become_what_the_last_leader_is(rounds, record_property, *, asks_for_epochs: bool) -> None:
    for seed in rounds:
        chance = Random(seed)
        cluster = Cluster(asks_for_epochs=asks_for_epochs)
        for _ in range(chance.randint(10, 120)):
            play(cluster, chance)
        cluster.elect(chance.randrange(REPLICAS))
        before = cluster.leader.content
        cluster.append(chance.randint(0, 1))
        cluster.settle()
        assert cluster.leader.content.startswith(before)
        for each in cluster.replicas:
            assert each.content == cluster.leader.content
            assert each.log.leader_epochs.entries == cluster.leader.log.leader_epochs.entries
            assert each.log.verify().findings == ()
    record_property("seeds", seed + 1)


def test_the_same_leader_in_a_new_epoch_with_less_than_its_follower() -> None:
    """KAFKA-7164: a leader loses its tail with the power, leads again, and writes other records there."""
    cluster = Cluster(asks_for_epochs=False)
    leader, follower, _ = cluster.replicas
    cluster.append(3)
    leader.flush()
    cluster.append(3)
    assert cluster.fetch(follower, 10_000) or cluster.fetch(follower, 10_000)
    leader.fs = leader.fs.after_cut()
    leader.open()
    cluster.elect(0)
    cluster.append(5)
    assert follower.log.log_end_offset < leader.log.log_end_offset
    cluster.settle()
    assert follower.content == leader.content


def test_an_epoch_that_the_leader_does_not_know_is_out_of_range() -> None:
    cluster = Cluster(asks_for_epochs=False)
    cluster.append(1)
    with pytest.raises(OffsetOutOfRangeError):
        cluster.partition.diverging_epoch(1, cluster.epoch + 1)
