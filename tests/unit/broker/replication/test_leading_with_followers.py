"""A broker that leads partitions with followers: its high watermark, its in-sync replicas, and its next epoch."""

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

import pytest

from millrace.errors import ErrorCode, InconsistentTopicIdError, NotEnoughReplicasError, NotLeaderError
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.replication.in_sync_replicas import Proposal
from millrace_broker.replication.isr_tables import Accepted, IsrTables
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.purgatory import Purgatory
from millrace_broker.replication.replica_manager import ReplicaManager
from millrace_broker.replication.roles import Leadership
from millrace_broker.storage import LogManager, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem

KEY = TopicPartition("events", 0)
TOPIC_ID = UUID(int=7)
LAG_MS = 1000
BATCH = encode_batch([NewRecord(b"value")])


class NoTimer:
    def cancel(self) -> None:
        """Stops nothing."""


def never(_: float, __: Callable[[], None]) -> NoTimer:
    return NoTimer()


class Proposed(NamedTuple):
    topic_partition: TopicPartition
    topic_id: UUID
    leader_epoch: int
    proposal: Proposal


class Door:
    """Notes what the controller is asked for."""

    def __init__(self) -> None:
        self.proposed: list[Proposed] = []

    def propose(self, topic_partition: TopicPartition, topic_id: UUID, leader_epoch: int, proposal: Proposal) -> None:
        self.proposed.append(Proposed(topic_partition, topic_id, leader_epoch, proposal))


class Home:
    """Broker 1, whose folders outlive it."""

    def __init__(self, fs: CrashFileSystem) -> None:
        self.clock = ManualClock()
        self.logs = LogManager(fs, self.clock, ["/data"], {}, "c" * 22, 1)
        self.logs.start()
        self.door = Door()
        self.replicas = ReplicaManager(self.logs, Purgatory(never), IsrTables(1, self.clock, LAG_MS, self.door.propose))
        self.replicas.take_live_brokers({1, 2, 3})

    def lead(
        self, leader_epoch: int, replicas: tuple[int, ...], isr: tuple[int, ...], config: dict[str, str] | None = None
    ) -> Partition:
        self.replicas.lead(KEY, TOPIC_ID, config or {}, Leadership(leader_epoch, 0, replicas, isr))
        return self.replicas.partition(KEY)

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            self.replicas.append(KEY, BATCH)


@pytest.fixture
def fs() -> CrashFileSystem:
    return CrashFileSystem()


@pytest.fixture
def home(fs: CrashFileSystem) -> Home:
    return Home(fs)


def test_the_high_watermark_waits_for_the_in_sync_replicas(home: Home) -> None:
    partition = home.lead(1, (1, 2, 3), (1, 2))
    home.append(3)
    assert partition.high_watermark == 0
    for offset in (1, 3):
        home.replicas.fetched(partition, 2, offset)
        assert partition.high_watermark == partition.log.high_watermark == offset


def test_the_only_replica_commits_at_once_also_after_it_had_followers(home: Home) -> None:
    partition = home.lead(1, (1, 2), (1, 2))
    home.append(2)
    assert home.lead(2, (1,), (1,)) is partition
    assert partition.high_watermark == partition.log.high_watermark == 2
    home.append()
    assert partition.high_watermark == partition.log.high_watermark == 3


def test_retention_keeps_what_no_follower_has(home: Home) -> None:
    partition = home.lead(1, (1, 2), (1, 2))
    home.append(2)
    home.replicas.fetched(partition, 2, 1)
    assert partition.log.high_watermark == 1


def test_a_new_epoch_forgets_what_followers_had_and_keeps_the_high_watermark(home: Home) -> None:
    partition = home.lead(1, (1, 2), (1, 2))
    home.append(2)
    home.replicas.fetched(partition, 2, 2)
    home.append()
    assert home.lead(3, (1, 2), (1, 2)) is partition
    assert (partition.leader_epoch, partition.high_watermark) == (3, 2)
    home.append()
    assert partition.high_watermark == 2
    assert partition.end_of_epoch(1) == (1, 3)


def test_an_old_leadership_changes_nothing(home: Home) -> None:
    partition = home.lead(4, (1, 2), (1, 2))
    in_sync = partition.in_sync
    home.lead(4, (1,), (1,))
    home.lead(3, (1,), (1,))
    assert (partition.leader_epoch, partition.in_sync) == (4, in_sync)


@pytest.mark.parametrize("is_led", [True, False])
def test_the_log_of_another_topic_of_this_name_is_left_alone(fs: CrashFileSystem, home: Home, is_led: bool) -> None:
    home.lead(1, (1,), (1,))
    home.append(3)
    if not is_led:
        home = Home(fs.after_kill())
    other = UUID(int=8)
    with pytest.raises(InconsistentTopicIdError, match=str(TOPIC_ID)):
        home.replicas.lead(KEY, other, {}, Leadership.alone(1))
    with pytest.raises(InconsistentTopicIdError, match=str(TOPIC_ID)):
        home.replicas.follow(KEY, other, {}, leader=2, leader_epoch=5)
    assert (KEY in home.replicas.partitions) is is_led
    assert home.replicas.offline == set()
    assert home.lead(2, (1,), (1,)).log.log_end_offset == 3


def test_an_epoch_without_records_is_known_to_who_asks(home: Home) -> None:
    home.lead(1, (1, 2), (1, 2))
    home.append(2)
    partition = home.lead(5, (1, 2), (1, 2))
    assert partition.end_of_epoch(5) == (5, 2)
    assert partition.end_of_epoch(4) == (1, 2)


@pytest.mark.parametrize(("isr", "high_watermark"), [((1, 2), 2), ((1,), 3)])
def test_a_start_begins_at_the_checkpoint_unless_the_leader_alone_is_in_sync(
    fs: CrashFileSystem, home: Home, isr: tuple[int, ...], high_watermark: int
) -> None:
    partition = home.lead(1, (1, 2), (1, 2))
    home.append(3)
    home.replicas.fetched(partition, 2, 2)
    home.logs.checkpoint_high_watermarks(home.replicas.high_watermarks())
    home.logs.close()
    assert Home(fs).lead(2, (1, 2), isr).high_watermark == high_watermark


def test_a_follower_that_has_all_joins_once_the_controller_says_so(home: Home) -> None:
    partition = home.lead(1, (1, 2, 3), (1, 2))
    assert partition.in_sync is not None
    home.append()
    home.replicas.fetched(partition, 2, 1, broker_epoch=52)
    home.replicas.fetched(partition, 3, 1, broker_epoch=53)
    proposal = Proposal(frozenset({1, 2, 3}), 0, {2: 52, 3: 53})
    assert home.door.proposed == [(KEY, TOPIC_ID, 1, proposal)]
    home.replicas.isr_answered(KEY, proposal, Accepted(proposal.isr, 1, 1))
    assert (partition.in_sync.committed, partition.in_sync.partition_epoch) == ({1, 2, 3}, 1)


def test_a_follower_that_lags_leaves_and_the_high_watermark_moves_with_the_answer(home: Home) -> None:
    partition = home.lead(1, (1, 2), (1, 2))
    home.append()
    home.replicas.check_in_sync_replicas()
    assert home.door.proposed == []
    home.clock.advance(LAG_MS + 1)
    home.replicas.check_in_sync_replicas()
    ((_, _, _, proposal),) = home.door.proposed
    assert (proposal.isr, partition.high_watermark) == ({1}, 0)
    home.replicas.isr_answered(KEY, proposal, Accepted(proposal.isr, 1, 1))
    assert partition.high_watermark == 1


def test_a_change_that_could_not_be_made_is_asked_for_again(home: Home) -> None:
    partition = home.lead(1, (1, 2), (1, 2))
    home.append()
    home.clock.advance(LAG_MS + 1)
    home.replicas.check_in_sync_replicas()
    ((_, _, _, proposal),) = home.door.proposed
    home.replicas.isr_answered(KEY, proposal, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert [one.proposal for one in home.door.proposed] == [proposal, proposal]
    home.replicas.resign(KEY)
    home.replicas.isr_answered(KEY, proposal, Accepted(proposal.isr, 1, 1))
    assert partition.high_watermark == 0


def test_a_broker_that_is_not_alive_does_not_join(home: Home) -> None:
    home.replicas.take_live_brokers({1, 2})
    partition = home.lead(1, (1, 2, 3), (1, 2))
    home.replicas.fetched(partition, 3, 0)
    assert home.door.proposed == []
    home.replicas.take_live_brokers({1, 2, 3})
    home.replicas.fetched(partition, 3, 0)
    assert [one.proposal.isr for one in home.door.proposed] == [{1, 2, 3}]


def test_a_follower_that_no_longer_counts_sets_the_high_watermark_free(home: Home) -> None:
    """Broker 3 is caught up, so it is about to join and holds the high watermark back, until it dies."""
    home.replicas.take_live_brokers({1, 3})
    partition = home.lead(1, (1, 2, 3), (1,))
    home.replicas.fetched(partition, 3, 0)
    home.append()
    assert partition.high_watermark == 0
    home.replicas.isr_answered(KEY, home.door.proposed[0].proposal, ErrorCode.INELIGIBLE_REPLICA)
    home.replicas.take_live_brokers({1})
    assert partition.high_watermark == 1


def test_a_broker_without_a_replica_is_refused(home: Home) -> None:
    for replicas in ((1, 2), (1,)):
        with pytest.raises(NotLeaderError):
            home.replicas.fetched(home.lead(len(replicas), replicas, (1,)), 9, 0)


def test_too_few_in_sync_refuse_and_hold_the_high_watermark(home: Home) -> None:
    partition = home.lead(1, (1, 2), (1,), {"min.insync.replicas": "2"})
    home.append()
    assert partition.high_watermark == 0
    with pytest.raises(NotEnoughReplicasError, match=r"replicas in sync: 1, needed: 2"):
        partition.check_in_sync_replicas()
    home.lead(1, (1, 2), (1,), {"min.insync.replicas": "1"})
    partition.check_in_sync_replicas()
    assert partition.high_watermark == 1


def test_who_resigns_leaves_the_high_watermark_to_the_log(home: Home) -> None:
    log = home.lead(1, (1,), (1,)).log
    home.append(2)
    home.replicas.resign(KEY)
    assert (log.has_high_watermark, log.high_watermark, KEY in home.replicas.partitions) == (True, 2, False)
    assert home.lead(3, (1, 2), (1, 2)).high_watermark == 2


def test_changes_of_the_in_sync_replicas_are_counted(home: Home) -> None:
    partition, counts = home.lead(1, (1, 2, 3), (1, 2)), home.replicas.isr.counts
    home.replicas.fetched(partition, 3, 0)
    joins = home.door.proposed[-1].proposal
    home.replicas.isr_answered(KEY, joins, Accepted(joins.isr, 1, 1))
    assert (counts.expands, counts.shrinks, counts.failed) == (1, 0, 0)
    home.append()
    home.clock.advance(10 * LAG_MS)
    home.replicas.check_in_sync_replicas()
    leave = home.door.proposed[-1].proposal
    home.replicas.isr_answered(KEY, leave, ErrorCode.OPERATION_NOT_ATTEMPTED)
    assert (counts.expands, counts.shrinks, counts.failed) == (1, 0, 1)
    home.replicas.check_in_sync_replicas()
    home.replicas.isr_answered(KEY, leave, Accepted(leave.isr, 1, 2))
    assert (counts.expands, counts.shrinks, counts.failed) == (1, 1, 1)


def test_replicas_that_a_reassignment_adds_are_not_missing(home: Home) -> None:
    for adding, is_under_replicated in (((), True), ((3,), False)):
        leadership = Leadership(1 + len(adding), 0, (1, 2, 3), (1, 2), adding)
        home.replicas.lead(KEY, TOPIC_ID, {}, leadership)
        in_sync = home.replicas.partition(KEY).in_sync
        assert in_sync is not None
        assert in_sync.is_under_replicated is is_under_replicated
