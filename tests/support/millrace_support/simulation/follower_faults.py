"""Faults of followers that are planted for a simulation to find; each function plants the one that its name tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millrace.records.batch import NO_LEADER_EPOCH
from millrace_broker.replication import followed_partition
from millrace_broker.replication.followed_partition import FollowedPartition
from millrace_broker.replication.follower_session import Asked
from millrace_broker.replication.replica_fetcher import ReplicaFetcher
from millrace_broker.storage import Log, LogManager
from millrace_broker.storage.segments.segment import LogSegment
from millrace_support.simulation.planting import Plants

if TYPE_CHECKING:
    import pytest

FAULTS = Plants()


# Where its log parts from the leader's.


@FAULTS.add
def cuts_nothing(patch: pytest.MonkeyPatch) -> None:
    """Keeps what the leader does not have, and goes on at the log's end."""
    patch.setattr(FollowedPartition, "cut_at", lambda self, _: self.log.log_end_offset)


@FAULTS.add
def cuts_at_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """Cuts in each epoch all that it does not know to be committed, as before KIP-101."""
    real = FollowedPartition.asked
    begun: set[FollowedPartition] = set()

    def asked(self: FollowedPartition) -> Asked:
        if self in begun:
            return real(self)
        begun.add(self)
        offset = min(self.high_watermark, self.log.log_end_offset)
        return Asked(offset, NO_LEADER_EPOCH, self.leader_epoch, self.log.log_start_offset)

    patch.setattr(FollowedPartition, "asked", asked)


@FAULTS.add
def does_not_ask_where_logs_part(patch: pytest.MonkeyPatch) -> None:
    """Fetches without the epoch of its last record, so that the leader can't compare (KIP-595)."""
    patch.setattr(followed_partition, "fetch_position", lambda _, end, __: (end, NO_LEADER_EPOCH))


@FAULTS.add
def compares_only_with_another_leader(patch: pytest.MonkeyPatch) -> None:
    """Does not ask where the logs part when the same broker leads in another epoch (KAFKA-7164)."""
    real = FollowedPartition.asked
    leaders: dict[Log, tuple[int, int]] = {}
    with_the_same: set[FollowedPartition] = set()

    def asked(self: FollowedPartition) -> Asked:
        leader, epoch = leaders.get(self.log, (-1, -1))
        if leader == self.leader and epoch < self.leader_epoch:
            with_the_same.add(self)
        leaders[self.log] = self.leader, self.leader_epoch
        position = real(self)
        return position._replace(last_fetched_epoch=NO_LEADER_EPOCH) if self in with_the_same else position

    patch.setattr(FollowedPartition, "asked", asked)


# How it goes on fetching.


@FAULTS.add
def takes_the_answers_of_former_leaders(patch: pytest.MonkeyPatch) -> None:
    """Goes on fetching from a broker after another one was elected (KAFKA-6880)."""
    patch.setattr(ReplicaFetcher, "unfollow", lambda *_: None)


@FAULTS.add
def gives_up_a_leader_that_is_away(patch: pytest.MonkeyPatch) -> None:
    """Fetches nothing more in this epoch from a leader that could not be reached once."""
    real = ReplicaFetcher._back_off  # noqa: SLF001  faults are planted inside

    async def back_off(self: Any) -> None:
        await real(self)
        for followed in self._partitions.values():
            followed.failure = "its leader was away"
            self._stale.add(followed.key)

    patch.setattr(ReplicaFetcher, "_back_off", back_off)


# How it starts.


@FAULTS.add
def loses_its_last_batch_at_a_start(patch: pytest.MonkeyPatch) -> None:
    """Cuts what was valid when it opens its logs."""
    real = LogManager.start

    def start(self: LogManager) -> Any:
        report = real(self)
        self.truncate_to({key: max(log.log_end_offset - 1, 0) for key, log in self.logs().items()})
        return report

    patch.setattr(LogManager, "start", start)


@FAULTS.add
def cuts_at_its_checkpoint_when_it_starts(patch: pytest.MonkeyPatch) -> None:
    """Cuts what it had not noted as committed, though it was in sync, and others count on it."""
    real = LogManager.start

    def start(self: LogManager) -> Any:
        report = real(self)
        noted = {key: self.checkpoints.high_watermark(key) for key in self.logs()}
        self.truncate_to({key: min(noted[key], log.log_end_offset) for key, log in self.logs().items()})
        return report

    patch.setattr(LogManager, "start", start)


@FAULTS.add
def flushes_nothing(patch: pytest.MonkeyPatch) -> None:
    """Writes records to the disk's cache, and takes them for durable."""
    patch.setattr(LogSegment, "sync_batches", lambda _: None)
