"""A partition that this broker leads: what is appended, and the high watermark up to which that is committed.

The high watermark is the smallest log end offset of the in-sync replicas. Where the leader has the only replica, an
append moves it at once; else the table of the in-sync replicas says when (`in_sync_replicas`). In either case it stays
below what the leader still has to sync (`Log.committable_offset`). Readers see it as any other replica (`replica`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from millrace.errors import ErrorCode, NotEnoughReplicasError
from millrace.internal_topics import INTERNAL_TOPICS
from millrace.records.batch import Buffer
from millrace_broker.replication.epoch_ends import Entries
from millrace_broker.replication.in_sync_replicas import InSyncReplicas, ReadReplica
from millrace_broker.replication.replica import Replica
from millrace_broker.storage import AppendOrigin, AppendOutcome, Log, LogAppendInfo, Prepared


class Partition(Replica):
    """A partition that this broker leads. `appended_bytes` counts all bytes appended since it is led.

    `in_sync` has the state of its replicas; None where this broker has the only one. `commits_later` says whether an
    append is not committed at once, but later by followers or a sync.
    """

    __slots__ = ("commits_later", "high_watermark", "in_sync")

    high_watermark: int

    def __init__(self, log: Log, topic_id: UUID, leader_epoch: int, config: Mapping[str, str]) -> None:
        super().__init__(log, topic_id, leader_epoch, config)
        self.in_sync: InSyncReplicas | None = None
        self.commits_later = False
        self.high_watermark = log.log_end_offset

    @property
    def has_in_sync_replicas(self) -> bool:
        """Whether a write with acks=all is accepted: the ISR is no smaller than the effective min ISR."""
        return self.in_sync is None or self.in_sync.has_enough

    def check_in_sync_replicas(self) -> None:
        """Raises NotEnoughReplicasError where too few replicas are in sync for a write with acks=all."""
        if self.in_sync is not None and not self.in_sync.has_enough:
            raise NotEnoughReplicasError(
                f"{self.log.topic_partition}: replicas in sync: {len(self.in_sync.committed)}, "
                f"needed: {self.in_sync.min_isr} (min.insync.replicas={self.log.config.min_insync_replicas})"
            )

    @property
    def mirror(self) -> str:
        """The name of the mirror that alone writes the partition, empty for any other; internal topics have none."""
        return "" if self.log.topic_partition.topic in INTERNAL_TOPICS else self.log.config.mirror_source

    def is_in_sync(self, broker_id: int) -> bool:
        """Returns whether another broker's replica is in the ISR that the controller has confirmed."""
        return self.in_sync is not None and broker_id in self.in_sync.committed

    def read_replicas(self, offset: int) -> list[ReadReplica]:
        """Returns the followers in sync whose logs hold `offset`, so that consumers may read there (KIP-392)."""
        return [] if self.in_sync is None else self.in_sync.read_replicas(offset)

    @property
    def low_watermark(self) -> int:
        """The least log start offset of all replicas that are alive or in sync: records below it are deleted there."""
        start = self.log.log_start_offset
        return start if self.in_sync is None else self.in_sync.low_watermark(start)

    def has_kept(self, offset: int, leader_epoch: int) -> bool:
        """Returns whether the record that was appended at `offset` in this leader epoch was not cut off since."""
        return leader_epoch == self.leader_epoch or self.epoch_of(offset) == leader_epoch

    def outcome_of(self, next_offset: int, *, acks_all: bool = True) -> ErrorCode | None:
        """Returns NONE for a write that ends before `next_offset`, or an error; None while it has to wait.

        A write waits for the sync that it owes, and with acks=all for the high watermark.
        """
        code: ErrorCode | None = None
        if not self.log.owes_sync(next_offset):
            code = self._committed(next_offset) if acks_all else ErrorCode.NONE
        return ErrorCode.KAFKA_STORAGE_ERROR if code is None and self.log.is_offline else code

    def _committed(self, next_offset: int) -> ErrorCode | None:
        if self.in_sync is not None:
            return self.in_sync.outcome_of(next_offset)
        return ErrorCode.NONE if self.high_watermark >= next_offset else None

    def lead(self, leader_epoch: int, in_sync: InSyncReplicas | None, *, commits_synced: bool = False) -> None:
        """Begins to lead in an epoch; `in_sync` is the state of the replicas, None for the only replica.

        All that is in the log of the only replica is committed, and what has to be synced of it is synced soon. With
        `commits_synced` it commits what is synced, and nothing else, from now on.
        """
        self.log.commit_synced(commits_synced=commits_synced)
        self.commits_later = commits_synced or in_sync is not None
        self.leader_epoch = leader_epoch
        self.in_sync = in_sync
        if in_sync is None:
            self.log.forget_high_watermark()
            self.high_watermark = self.log.log_end_offset
        else:
            self.follow_in_sync(in_sync)

    def follow_in_sync(self, in_sync: InSyncReplicas) -> None:
        """Copies the high watermark of `in_sync` to the log, whose retention and compaction stop there."""
        self.high_watermark = self.log.high_watermark = in_sync.high_watermark

    def moved(self) -> None:
        """Raises the high watermark after a sync or an append if this is the only replica (else see `IsrTables`)."""
        if self.in_sync is None:
            self.high_watermark = max(self.high_watermark, self.log.committable_offset)

    @property
    def is_behind_its_epoch(self) -> bool:
        """Whether the high watermark is still below the log end at this leader's election (KIP-207).

        The leader before may have shown consumers records above it.
        """
        return self.in_sync is not None and self.high_watermark < self.in_sync.start_offset

    def append(self, batches: Buffer, origin: AppendOrigin = AppendOrigin.CLIENT) -> LogAppendInfo:
        """Appends batches as the leader; raises RecordError, ProducerError or StorageError (`Log.append`)."""
        end_offset = self.log.log_end_offset
        info = self.log.append(batches, leader_epoch=self.leader_epoch, origin=origin)
        self.moved()
        self._count(len(batches), self.log.log_end_offset - end_offset)
        return info

    def append_all(self, appends: Sequence[Buffer | Prepared]) -> Sequence[AppendOutcome]:
        """Appends batches of several requests; returns for each its offsets, or the error that it failed with."""
        log = self.log
        end_offset = log.log_end_offset
        outcomes = log.append_all(appends, leader_epoch=self.leader_epoch)
        if self.in_sync is None and (committable := log.committable_offset) > self.high_watermark:
            self.high_watermark = committable  # as `moved` does: a call costs more
        appended_bytes = 0
        for batches, outcome in zip(appends, outcomes, strict=True):
            if type(outcome) is LogAppendInfo:
                appended_bytes += len(batches)
        self._count(appended_bytes, log.log_end_offset - end_offset)
        return outcomes

    def mirrored(self, appended_bytes: int, records: int) -> None:
        """Counts what was appended as a mirror has sent it; nothing below the log's start waits for replicas."""
        start_offset = self.log.log_start_offset
        if self.in_sync is None:
            self.moved()
        elif self.high_watermark < start_offset:
            self.in_sync.begin_at(start_offset)
            self.follow_in_sync(self.in_sync)
        self._count(appended_bytes, records)

    def _count(self, appended_bytes: int, records: int) -> None:
        self.appended_bytes += appended_bytes
        self.traffic.bytes_in += appended_bytes
        self.traffic.records_in += records

    @property
    def _epochs(self) -> Entries:
        """The log's (epoch, start offset) pairs, with the current epoch even if nothing was written in it yet."""
        entries = self.log.leader_epochs.entries
        if self.log.leader_epochs.latest < self.leader_epoch:
            return *entries, (self.leader_epoch, self.log.log_end_offset)
        return entries
