"""Brings what happens to led partitions into their tables of in-sync replicas, and carries out what the tables decide.

    leads, appends, a follower's fetch, brokers that live or die, the controller's answer, time that passes
        → `in_sync_replicas` → the partition's high watermark, a proposal to the controller (`isr_change_sender`)

Each method returns whether the partition's high or low watermark has moved, for which requests may wait. Runs on the
event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple
from uuid import UUID

from millrace.clock import Clock
from millrace.errors import ErrorCode, NotLeaderError
from millrace_broker.metrics import IsrCounts
from millrace_broker.replication.in_sync_replicas import Decision, Election, InSyncReplicas, Proposal
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.roles import Leadership
from millrace_broker.storage import TopicPartition

REPLICA_LAG_TIME_MAX_MS = 30_000

Propose = Callable[[TopicPartition, UUID, int, Proposal], None]  # the number is the leader epoch


class Accepted(NamedTuple):
    """The controller's answer to a proposal that it accepts: the ISR and epochs that the partition has now."""

    isr: frozenset[int]
    leader_epoch: int
    partition_epoch: int


class IsrTables:
    """Passes events to the `InSyncReplicas` of led partitions, and carries out what these decide.

    The methods that return a bool say whether a watermark of the partition may have moved, so that requests may go on.

    Args:
        broker_id: the id of this broker, which leads.
        clock: measures how far followers lag.
        lag_time_max_ms: how long a follower may lag and stay in sync (`replica.lag.time.max.ms`).
        propose: takes proposals to the controller; without other brokers there is none, and no ISR changes.
        syncs_single_replica: whether the only replica commits what is synced, and nothing else.

    Attributes:
        counts: How often in-sync replicas have changed.
    """

    def __init__(
        self,
        broker_id: int,
        clock: Clock,
        lag_time_max_ms: int = REPLICA_LAG_TIME_MAX_MS,
        propose: Propose | None = None,
        *,
        syncs_single_replica: bool = False,
    ) -> None:
        self._broker_id = broker_id
        self._now_ms = clock.monotonic_ms
        self._lag_time_max_ms = lag_time_max_ms
        self._propose = propose
        self._eligible: frozenset[int] = frozenset()
        self._syncs_single_replica = syncs_single_replica
        self.counts = IsrCounts()

    def lead(self, partition: Partition, leadership: Leadership, high_watermark: int) -> None:
        """Has a partition begin a leader epoch, with new `InSyncReplicas` and the high watermark known so far.

        A leader that alone is in sync commits all that it has.
        """
        if len(leadership.replicas) == 1:
            partition.lead(leadership.leader_epoch, None, commits_synced=self._syncs_single_replica)
            return
        log, now_ms = partition.log, self._now_ms()
        election = Election(
            self._broker_id, leadership.replicas, frozenset(leadership.isr), leadership.leader_epoch,
            leadership.partition_epoch, log.log_end_offset, high_watermark, leadership.adding,
        )  # fmt: skip
        in_sync = InSyncReplicas(
            election, log.config.min_insync_replicas, self._lag_time_max_ms, self._eligible, now_ms
        )
        in_sync.appended(log.log_end_offset, now_ms, log.committable_offset)
        partition.lead(leadership.leader_epoch, in_sync)

    def appended(self, partition: Partition) -> bool:
        """Moves the high watermark, if it can, after a partition's log has grown or was synced further."""
        in_sync, log = partition.in_sync, partition.log
        if in_sync is None:
            return True
        decision = in_sync.appended(log.log_end_offset, self._now_ms(), log.committable_offset)
        return self._carry_out(partition, in_sync, decision)

    def fetched(
        self, partition: Partition, follower: int, offset: int, log_start_offset: int, broker_epoch: int
    ) -> bool:
        """Updates a follower by a fetch from `offset`, its log end; raises NotLeaderError if it has no replica."""
        if partition.in_sync is None:
            raise NotLeaderError(f"broker {follower} has no replica of {partition.log.topic_partition}")
        in_sync = partition.in_sync
        decision = in_sync.fetched(follower, offset, self._now_ms(), log_start_offset, broker_epoch)
        return self._carry_out(partition, in_sync, decision)

    def reconfigured(self, partition: Partition) -> bool:
        """Applies the `min.insync.replicas` that a partition's topic has now."""
        in_sync = partition.in_sync
        if in_sync is None:
            return False
        wanted = partition.log.config.min_insync_replicas
        return self._carry_out(partition, in_sync, in_sync.reconfigured(wanted, self._now_ms()))

    def answered(self, partition: Partition, proposal: Proposal, outcome: Accepted | ErrorCode) -> bool:
        """Applies the controller's answer, or an error, to a proposed ISR; one that is too late changes nothing."""
        in_sync = partition.in_sync
        if in_sync is None:
            return False
        if isinstance(outcome, Accepted):
            before = len(in_sync.committed)
            decision = in_sync.accepted(*outcome, self._now_ms())
            self.counts.expands += len(in_sync.committed) > before
            self.counts.shrinks += len(in_sync.committed) < before
        else:
            decision = in_sync.refused(proposal, outcome, self._now_ms())
            self.counts.failed += 1
        return self._carry_out(partition, in_sync, decision)

    def take_live_brokers(self, brokers: Iterable[int], partitions: Iterable[Partition]) -> list[Partition]:
        """Sets the brokers alive and not shutting down; returns the partitions whose watermarks may have moved."""
        eligible = frozenset(brokers)
        if eligible == self._eligible:
            return []
        self._eligible = eligible
        return [
            partition
            for partition in partitions
            if (in_sync := partition.in_sync) is not None
            and self._carry_out(partition, in_sync, in_sync.eligible(eligible, self._now_ms()))
        ]

    def check(self, partitions: Iterable[Partition]) -> None:
        """Proposes ISRs without followers that lag too long; called every half of `replica.lag.time.max.ms`."""
        for partition in partitions:
            if (in_sync := partition.in_sync) is not None:
                self._carry_out(partition, in_sync, in_sync.check(self._now_ms()))

    def _carry_out(self, partition: Partition, in_sync: InSyncReplicas, decision: Decision) -> bool:
        if decision.moves_high_watermark:
            partition.follow_in_sync(in_sync)
        if decision.proposal is not None and self._propose is not None:
            self._propose(partition.log.topic_partition, partition.topic_id, partition.leader_epoch, decision.proposal)
        return decision.moves_high_watermark or decision.moves_low_watermark
