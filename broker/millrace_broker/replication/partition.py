"""A partition that this broker leads: its log, and the offsets up to which readers may see it.

    log start offset ≤ last stable offset ≤ high watermark ≤ log end offset

The high watermark is the smallest log end offset of the in-sync replicas. The leader alone is in sync, so an append
moves the high watermark at once. The last stable offset is the first offset of the oldest open transaction in the log;
where none is open, it is the high watermark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from millrace.errors import (
    FencedLeaderEpochError,
    MillraceError,
    NotEnoughReplicasError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
)
from millrace.records.batch import NO_LEADER_EPOCH, Buffer, walk
from millrace.records.control import EndTransactionMarker
from millrace.wire.encoder import Part, contents
from millrace_broker.replication.epoch_ends import UNKNOWN, Entries, end_of_epoch, epoch_of_offset
from millrace_broker.replication.produced import PRODUCER_CODEC, in_codec_of_topic
from millrace_broker.storage import AbortedTransaction, AppendOutcome, Log, LogAppendInfo

READ_AT_ONCE_BYTES = 64 << 10


class PartitionRead(NamedTuple):
    """What a reader gets; large records stay in the file until the socket takes them.

    `aborted` has the aborted transactions as (producer id, first offset), for `read_committed` readers only.
    """

    records: Part
    aborted: list[tuple[int, int]] | None = None


class Partition:
    """One led partition. `appended_bytes` counts all bytes that were appended since it is led.

    `replica_count` is the number of assigned replicas with this one; topics that Kafka made may have several.
    """

    __slots__ = ("appended_bytes", "config", "high_watermark", "leader_epoch", "log", "replica_count", "topic_id")

    def __init__(
        self, log: Log, topic_id: UUID, leader_epoch: int, config: Mapping[str, str], replica_count: int = 1
    ) -> None:
        self.config = config
        self.log = log
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.replica_count = replica_count
        self.high_watermark = log.log_end_offset
        self.appended_bytes = 0

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which a `read_committed` reader may see the log."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def has_in_sync_replicas(self) -> bool:
        """Whether a write with acks=all is accepted, though the leader alone is in sync.

        `min.insync.replicas` never asks for more replicas than the partition has (Kafka since 3.7, KIP-966).
        """
        return self.replica_count <= 1 or self.log.config.min_insync_replicas <= 1

    def check_in_sync_replicas(self) -> None:
        """Raises NotEnoughReplicasError where a write with acks=all is not accepted."""
        if not self.has_in_sync_replicas:
            raise NotEnoughReplicasError(
                f"{self.log.topic_partition}: 1 of {self.replica_count} replicas is in sync, "
                f"min.insync.replicas={self.log.config.min_insync_replicas}"
            )

    def visible_end(self, *, committed: bool) -> int:
        """Returns the offset up to which a reader may see the log."""
        return self.last_stable_offset if committed else self.high_watermark

    def append(self, batches: Buffer) -> LogAppendInfo:
        """Appends batches as leader, in the codec that `compression.type` asks for.

        Raises as `Log.append` does; the log is unchanged then.
        """
        (outcome,) = self.append_all((batches,))
        if isinstance(outcome, MillraceError):
            raise outcome
        return outcome

    def append_all(self, appends: Sequence[Buffer]) -> Sequence[AppendOutcome]:
        """Appends what came together, and returns the outcome of each as `Log.append_all` does."""
        log = self.log
        if log.config.compression_type == PRODUCER_CODEC:
            outcomes: Sequence[AppendOutcome] = log.append_all(appends, leader_epoch=self.leader_epoch)
        else:
            outcomes = [self._append_recompressed(batches) for batches in appends]
        self.high_watermark = log.log_end_offset
        for batches, outcome in zip(appends, outcomes, strict=True):
            if type(outcome) is LogAppendInfo:
                self.appended_bytes += len(batches)
        return outcomes

    def append_in_transaction(self, batches: Buffer) -> LogAppendInfo:
        """Appends a coordinator's batch as `Log.append_in_transaction` does."""
        info = self.log.append_in_transaction(batches, leader_epoch=self.leader_epoch)
        self.high_watermark = self.log.log_end_offset
        self.appended_bytes += len(batches)
        return info

    def append_marker(self, marker: EndTransactionMarker, producer_id: int, producer_epoch: int) -> LogAppendInfo:
        """Appends the end of a producer's transaction as `Log.append_control` does."""
        info = self.log.append_control(
            marker, producer_id=producer_id, producer_epoch=producer_epoch, leader_epoch=self.leader_epoch
        )
        self.high_watermark = self.log.log_end_offset
        return info

    def _append_recompressed(self, batches: Buffer) -> AppendOutcome:
        try:
            return self.log.append(in_codec_of_topic(batches, self.log.config), leader_epoch=self.leader_epoch)
        except MillraceError as error:
            return error

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool, committed: bool = False) -> PartitionRead:
        """Returns whole batches from `offset` on, up to what the reader may see. Raises as `Log.read` does.

        Where nothing fits, the offset is checked without a read of the disk.
        """
        end = self.visible_end(committed=committed) if max_bytes or at_least_one else offset
        records: Part = self.log.read_or_find(
            offset, max_bytes, up_to_offset=end, at_least_one=at_least_one, read_at_once_bytes=READ_AT_ONCE_BYTES
        )
        if not committed:
            return PartitionRead(records)
        aborted = self.log.aborted_transactions(offset, end) if len(records) else []
        return PartitionRead(records, _aborted_in(records, aborted) if aborted else [])

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raises FencedLeaderEpochError for an older epoch, UnknownLeaderEpochError for a newer one (KIP-320)."""
        if current_leader_epoch in (NO_LEADER_EPOCH, self.leader_epoch):
            return
        message = f"leader epoch is {self.leader_epoch}, the request says {current_leader_epoch}"
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpochError(message)
        raise UnknownLeaderEpochError(message)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns (epoch, end offset) of the newest epoch up to `epoch`; (-1, -1) where it is not known."""
        return end_of_epoch(self._epochs, epoch, self.log.log_end_offset)

    def epoch_of(self, offset: int) -> int:
        """Returns the leader epoch in which an offset was written; -1 where that is not known."""
        return epoch_of_offset(self._epochs, offset)

    def diverging_epoch(self, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Returns (epoch, end offset) where a reader's log diverges from this one; None where it does not (KIP-595).

        OffsetOutOfRangeError where that is not known, and below the log start offset.
        """
        if last_fetched_epoch == NO_LEADER_EPOCH:
            return None
        epoch, end = self.end_of_epoch(last_fetched_epoch)
        if (epoch, end) == UNKNOWN:
            raise OffsetOutOfRangeError(f"the end of epoch {last_fetched_epoch} is not known")
        if fetch_offset < self.log.log_start_offset:
            raise OffsetOutOfRangeError(f"offset {fetch_offset} is below {self.log.log_start_offset}")
        return (epoch, end) if epoch < last_fetched_epoch or end < fetch_offset else None

    @property
    def _epochs(self) -> Entries:
        """The log's epochs with the current one, though nothing may have been written in it yet."""
        entries = self.log.leader_epochs.entries
        if self.log.leader_epochs.latest < self.leader_epoch:
            return *entries, (self.leader_epoch, self.log.log_end_offset)
        return entries


def _aborted_in(records: Part, found: Sequence[AbortedTransaction]) -> list[tuple[int, int]]:
    """Returns the transactions that begin in the records or before, as (producer id, first offset)."""
    end = max((header.next_offset for _, header in walk(contents(records))), default=0)
    return [(one.producer_id, one.first_offset) for one in found if one.first_offset < end]
