"""The log of one partition: batches in order, each at an offset that never changes (docs/formats/segment.md).

    log start offset        recovery point         log end offset
          |  synced to the disk   |   in the page cache  |
          [ segment ][ segment ][ segment ][ active segment

A crash may cost what lies above the recovery point, from the first damaged byte on, and nothing below
(docs/durability.md).

`Log` is what others use; its parts do the work:

| part | what it does |
|---|---|
| `log_segments` | holds the segments and the offsets at which the log starts and ends, and replaces files |
| `deleted_files` | renames and removes the files of deleted segments |
| `leader_append` | checks what is sent, gives it offsets and writes it, by way of `SegmentWriter`, which rolls |
| `follower_append` | writes what was fetched from the leader as it is; by `truncation` cuts the end off, or all |
| `log_reader` | finds and reads batches, times and aborted transactions |
| `flushing` | syncs, and moves the recovery point |
| `healing` | puts what other replicas have in the place of damaged ranges |
| `producer_state_manager`, `leader_epochs` | know who has written |
| `checks`, `verification` | check every byte, of all segments or of one at a time for the scrubber |
| `loading` | opens the folder |

Threads: `append`, `read`, the offset look-ups, `apply_retention`, `raise_log_start_offset`, `release_replaced` and
`close` belong to the event loop's; truncations, `hand_over` and appends that may wait for the disk to a worker that has
the log for itself (`is_held`). `flush`, `verify`, `scrub` and `remove_deleted` may run on others: they read the log end
offset *before* the segments, hold each segment by `retain`, and flushes exclude one another. Compaction's own calls
`replace_segments` and `aborted_transactions` only; `log_segments` says how they keep out of one another's way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millrace.clock import Clock
from millrace.errors import OffsetOutOfRangeError
from millrace.fs import Buffer, FileSystem
from millrace_broker.storage.batches.placement import AppendOrigin, LogAppendInfo, only_place
from millrace_broker.storage.batches.preparation import Prepared
from millrace_broker.storage.config import LogConfig
from millrace_broker.storage.failures import DirHealth, storage_errors
from millrace_broker.storage.filenames import TopicPartition
from millrace_broker.storage.log.checks import Scrubbed, SegmentScrub, verify
from millrace_broker.storage.log.flushing import Flushing
from millrace_broker.storage.log.follower_append import FollowerAppend
from millrace_broker.storage.log.healing import LogHealing
from millrace_broker.storage.log.leader_append import AppendOutcome, LeaderAppend
from millrace_broker.storage.log.leader_epochs import LeaderEpochs
from millrace_broker.storage.log.log_reader import LogReader, LogSlice
from millrace_broker.storage.log.log_segments import LogSegments, Rolling, SegmentWriter
from millrace_broker.storage.log.truncation import apply_retention
from millrace_broker.storage.producers.producer_state_manager import ProducerStateManager
from millrace_broker.storage.recovery.loading import Promises, load_log
from millrace_broker.storage.recovery.range_files import note
from millrace_broker.storage.recovery.verification import Pace
from millrace_broker.storage.reports import RetentionReport, VerifyReport
from millrace_broker.storage.segments.damage import DamagedRange
from millrace_broker.storage.segments.indexes import AbortedTransaction
from millrace_broker.storage.segments.segment import LogSegment
from millrace_broker.storage.segments.segment_sequence import SegmentSequence
from millrace_broker.storage.sync_lane import SyncLane


class Log:
    """One partition's batches on the disk."""

    __slots__ = (
        "_clock", "_flushing", "_follower", "_fs", "_leader", "_noted", "_reader", "_segments", "_writer",
        "config", "deleted", "directory", "healing", "leader_epochs", "producers", "recovery", "topic_partition",
    )  # fmt: skip

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        clean: bool = False,
        is_start_known: bool = False,
        first_dirty_offset: int | None = None,
        health: DirHealth | None = None,
        lane: SyncLane | None = None,
    ) -> None:
        """Opens the log in an existing folder, recovering it unless the shutdown was clean; raises StorageError.

        The offsets are those of the data folder's checkpoints. With a first dirty offset compaction was at work, and a
        segment may end before the next one begins. Without a lane the log syncs at once what has to be synced.
        """
        self.topic_partition = topic_partition
        self.directory = directory
        self.config = config
        self._fs = fs
        self._clock = clock
        promises = Promises(
            recovery_point=recovery_point, high_watermark=high_watermark, log_start_offset=log_start_offset,
            was_clean=clean, is_start_known=is_start_known, may_end_early=first_dirty_offset is not None,
        )  # fmt: skip
        with storage_errors(directory):
            loaded = load_log(fs, directory, config, promises)
        self._segments = segments = LogSegments(
            fs, clock, directory, topic_partition, loaded.segments,
            start_offset=loaded.log_start_offset, end_offset=loaded.next_offset, health=health or DirHealth(directory),
            gaps=loaded.offset_gaps(fs, directory, first_dirty_offset), deleted=loaded.deleted,
        )  # fmt: skip
        # After a clean shutdown names are synced too, but for those of files that had to be rebuilt.
        segments.names_changed = not clean or any(segment.was_recovered for segment in loaded.segments)
        self.producers = ProducerStateManager(fs, directory)
        try:
            self._wire(lane or SyncLane(), segments.end_offset if clean else recovery_point)
        except BaseException:
            self._release_files()
            raise
        self.deleted = segments.deleted
        noted = {*loaded.noted.damage, *(one.base_offset for one in segments.now if one.damage)}
        self.healing = LogHealing(fs, segments, self._writer, self._follower, self.producers, self.leader_epochs, noted)
        self._noted = loaded.noted
        self.recovery = loaded.report(topic_partition, segments.start_offset)
        segments.gaps.learn(config, segments.end_offset)

    def _wire(self, lane: SyncLane, recovery_point: int) -> None:
        """Reads leader epochs and producers' state, and makes the parts of the log. Raises StorageError."""
        fs, clock, segments, config = self._fs, self._clock, self._segments, self.config
        recovery_point = min(recovery_point, segments.end_offset)
        self.leader_epochs = LeaderEpochs(fs, self.directory, segments.headers_from)
        self.leader_epochs.truncate(segments.end_offset)
        self.leader_epochs.take_from(segments.led_from(recovery_point))
        self.leader_epochs.begin_at(segments.start_offset, segments.headers_from)
        rolling = Rolling(clock, config, seed=str(self.topic_partition))
        with storage_errors(self.directory):
            rolling.resume(segments.now.active)
            self.producers.load(
                tuple(segments.now), log_start_offset=segments.start_offset, log_end_offset=segments.end_offset
            )
        self.expire_producers()
        self._flushing = Flushing(
            fs, clock, segments, self.producers, self.leader_epochs, lane,
            recovery_point=recovery_point, flush_messages=config.flush_messages,
        )  # fmt: skip
        self._writer = SegmentWriter(segments, rolling, self.producers, self.leader_epochs)
        self._leader = LeaderAppend(clock, segments, self._writer, self.producers, self._flushing, config)
        self._follower = FollowerAppend(fs, segments, self._writer, self.producers, self.leader_epochs, self._flushing)
        self._reader = LogReader(fs, segments, self.leader_epochs)

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read: records below it are deleted."""
        return self._segments.start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._segments.end_offset

    @property
    def high_watermark(self) -> int:
        """The offset below which all is committed: nothing at or above it is deleted, compacted or made the start.

        It is `committable_offset` until a partition that waits for followers sets it. A truncation lowers it.
        """
        known = self._segments.high_watermark
        return self.committable_offset if known is None else known

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self._segments.high_watermark = max(min(offset, self.log_end_offset), self.log_start_offset)

    @property
    def has_high_watermark(self) -> bool:
        """Whether a high watermark was set since the log was opened."""
        return self._segments.high_watermark is not None

    def forget_high_watermark(self) -> None:
        """Makes the high watermark `committable_offset` again, as a partition without followers has it."""
        self._segments.high_watermark = None

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is on the disk."""
        return self._flushing.recovery_point

    @property
    def committable_offset(self) -> int:
        """The offset below which records may count as committed, as far as syncs are concerned.

        It is the log end offset unless a sync is demanded (`flush.messages`, `commit_synced`) and not done yet.
        """
        end, flushing = self._segments.end_offset, self._flushing
        # Nearly always the former: one comparison, as every append comes here.
        return end if end - flushing.recovery_point < flushing.commit_limit else flushing.committable_offset

    def owes_sync(self, offset: int | None = None) -> bool:
        """Returns whether an append up to `offset`, by default the newest, needs a sync before its acknowledgement."""
        flushing, end = self._flushing, self._segments.end_offset if offset is None else offset
        return end - flushing.recovery_point >= flushing.flush_messages and flushing.owes(end)

    @property
    def is_offline(self) -> bool:
        """Whether the data directory has failed, so that the log takes no append and no sync any more."""
        return self._flushing.is_offline

    @property
    def is_held(self) -> bool:
        """Whether a worker thread truncates or moves the log, so that appends raise NotLeaderError."""
        return self._segments.is_held

    @is_held.setter
    def is_held(self, is_held: bool) -> None:
        self._segments.is_held = is_held

    @property
    def size_bytes(self) -> int:
        """The size of all batches in bytes, without indexes."""
        return sum(segment.size_bytes for segment in self._segments.now)

    @property
    def segments(self) -> SegmentSequence:
        """All segments, in a sequence that later changes of the log leave as it is."""
        return self._segments.now

    @property
    def closed_segments(self) -> tuple[LogSegment, ...]:
        """The segments that nothing is appended to any more, oldest first."""
        return self._segments.now[:-1]

    @property
    def truncations(self) -> int:
        """The number of truncations since the log was opened, by which a reader on another thread notices one."""
        return self._segments.truncations

    def reconfigure(self, config: LogConfig) -> None:
        """Sets the log's settings, from the next append on; an open segment keeps its index sizes.

        Raises StorageError where there is no lane, and a sync that `flush.messages` now demands fails.
        """
        self.config = config
        self._segments.gaps.learn(config, self.log_end_offset)
        self._writer.reconfigure(config)
        self._leader.reconfigure(config)
        self._flushing.reconfigure(config.flush_messages)

    @property
    def gapless_from(self) -> int:
        """The offset from which on the log leaves out none: a gap there is damage (`offset_gaps`)."""
        return self._segments.gaps.told

    def commit_synced(self, *, commits_synced: bool) -> None:
        """Sets whether records must be synced to be committed, as no other replica has them. Raises StorageError."""
        self._flushing.commit_synced(commits_synced=commits_synced)

    def append(
        self, batches: Buffer, *, leader_epoch: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> LogAppendInfo:
        """Validates what a producer or a coordinator sent, and appends it as one write; returns its offsets.

        A batch that its producer sent before is not appended again: the offsets that it got then are returned (KIP-98).
        Raises RecordError for bytes that break a rule, ProducerError for a batch out of its producer's sequence and for
        a marker of an older epoch, and StorageError where the disk fails; the log is then unchanged. A sync that
        `flush.messages` demands is left to the sync lane of the data folder: the caller acknowledges the append once
        `owes_sync` is false. Without a lane it is made here, and one that fails takes the data folder offline: what the
        disk holds is unknown until the folder is opened again.
        """
        if origin is AppendOrigin.COORDINATOR:
            return self._leader.append_as_coordinator(batches, leader_epoch)
        return only_place(self._leader.append_all((batches,), leader_epoch))

    def append_all(self, appends: Sequence[Buffer | Prepared], *, leader_epoch: int) -> Sequence[AppendOutcome]:
        """Appends batches of several requests in order; returns each one's offsets, or the error of `append`.

        One write takes as many as the active segment has room for, of one idempotent producer at most, and fails them
        all; what is invalid fails alone.
        """
        return self._leader.append_all(appends, leader_epoch)

    def append_as_follower(
        self, batches: Buffer, *, leader_epoch: int, may_wait: bool = True, gapless_from: int | None = None
    ) -> LogAppendInfo | None:
        """Appends batches as they were fetched from the leader, whose epoch is `leader_epoch`; returns their place.

        The leader's log leaves out no offset from `gapless_from` on, if it has said so. None where there is no whole
        batch, or the first one is of a newer epoch. Raises RecordError for bytes that break a rule
        (`validate_fetched`), a gap where there may be none, and a first batch below the log's end; nothing is changed.
        Raises StorageError where the disk fails: the log then holds the batches below its log end offset.
        Raises AppendWaitsError, with nothing changed, for an append that has to wait for the disk first and may not.
        """
        return self._follower.append(batches, leader_epoch, may_wait=may_wait, gapless_from=gapless_from)

    # Truncating. The checkpoints are lowered first: `LogManager.truncate_to` does both.

    def end_if_truncated(self, offset: int) -> int:
        """Returns where `truncate_to(offset)` would end the log: at a batch's end. Raises StorageError."""
        return self._follower.end_at(offset)

    def truncate_to(self, offset: int) -> bool:
        """Cuts off all batches that reach above `offset`, synced; returns false where there is none.

        A log of which nothing would be left goes on, empty, at `offset`. Raises OffsetOutOfRangeError for a negative
        one, and StorageError: once a file was changed, that takes the data folder offline, as only opening it again
        tells how much is left.
        """
        self.release_replaced()
        is_truncated = self._follower.truncate_to(offset)
        self.expire_producers()
        return is_truncated

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Removes all batches, synced, to go on at `offset`. Raises OffsetOutOfRangeError if < 0, or StorageError."""
        self.release_replaced()
        self._follower.start_at(offset, offset)

    def flush(self) -> None:
        """Blocks until all that is appended so far is on the disk; a closed log has nothing to flush.

        Raises StorageError: a failed fsync takes the data folder offline, as the kernel may have dropped the bytes.
        """
        self._flushing.flush()

    def is_flush_due(self, now_ms: int) -> bool:
        """Returns whether `flush.ms` has passed (monotonic `now_ms`), or a closed segment is not synced."""
        return self._flushing.is_due(now_ms, self.config.flush_ms)

    def flush_soon(self) -> None:
        """Puts the log into the sync lane, which flushes it; without a lane, flushes it and may raise StorageError."""
        self._flushing.flush_soon()

    # Reading.

    def read(self, offset: int, max_bytes: int, *, up_to_offset: int, at_least_one: bool = True) -> bytes:
        """Returns the bytes of whole batches from the one that holds `offset`, all from one segment.

        They are at most `max_bytes`, but if `at_least_one` the first batch comes even if it is larger (KIP-74). Batches
        at or above `up_to_offset`, such as the high watermark, are left out. Returns b"" where there is nothing to read
        yet. Raises OffsetOutOfRangeError below the log start offset and above the log end offset, StorageError.
        """
        return self._reader.read(offset, max_bytes, up_to_offset, at_least_one=at_least_one)

    def read_or_find(
        self, offset: int, max_bytes: int, *, up_to_offset: int, at_least_one: bool = True, read_at_once_bytes: int
    ) -> bytes | LogSlice:
        """Returns the bytes as `read` does; if they are above `read_at_once_bytes`, a slice of the file instead."""
        return self._reader.read_or_find(offset, max_bytes, up_to_offset, read_at_once_bytes, at_least_one=at_least_one)

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Returns (timestamp, offset) of the first record not older than `timestamp_ms`; None if there is none."""
        return self._reader.offset_for_timestamp(timestamp_ms)

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """Returns (timestamp, offset) of the first record with the largest timestamp (KIP-734); None without records.

        The timestamp is -1 where no record has one. Raises StorageError.
        """
        return self._reader.offset_of_max_timestamp()

    def newest_timestamp_ms(self) -> int:
        """Returns the largest timestamp of the segments, though its record may be deleted by now; -1 without any."""
        return self._reader.newest_timestamp_ms()

    def offsets_before(self, timestamp_ms: int, max_count: int, *, up_to_offset: int | None = None) -> list[int]:
        """Returns up to `max_count` first offsets of segments, newest first, as in Kafka 0.8. Raises StorageError."""
        end_offset = self.log_end_offset if up_to_offset is None else up_to_offset
        return self._reader.offsets_before(timestamp_ms, max_count, end_offset, self._clock.now_ms())

    # Producers and transactions.

    def last_stable_offset(self, high_watermark: int) -> int:
        """Returns where `read_committed` readers stop: at the first open transaction, or else the high watermark."""
        return max(self.producers.last_stable_offset(high_watermark), self._segments.start_offset)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions with records from `start_offset` up to `end_offset`; raises StorageError."""
        return self._reader.aborted_transactions(start_offset, end_offset)

    def expire_producers(self) -> int:
        """Forgets producers that have been silent for `producer.id.expiration.ms`; returns how many."""
        return self.producers.expire(self._clock.now_ms(), self.config.producer_id_expiration_ms)

    # Retention and compaction.

    def raise_log_start_offset(self, offset: int) -> None:
        """Moves the log start up to `offset`; raises OffsetOutOfRangeError above the high watermark."""
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(f"{self.topic_partition}: offset {offset} is above {self.high_watermark}")
        self._segments.start_offset = max(self._segments.start_offset, offset)
        self.leader_epochs.raise_start(self._segments.start_offset)

    def apply_retention(self, *, dry_run: bool = False) -> RetentionReport:
        """Deletes the segments that the settings let go, all below the high watermark; returns what it deleted and why.

        `remove_deleted` later removes their files. A dry run only reports. Raises StorageError.
        """
        self.release_replaced()
        names_lock = self._segments.names_lock
        has_lock = names_lock.acquire(blocking=False)
        try:
            report = apply_retention(
                self._segments, self._writer, self.producers, self.config,
                up_to_offset=self.high_watermark if has_lock else 0, now_ms=self._clock.now_ms(), dry_run=dry_run,
            )  # fmt: skip
        finally:
            if has_lock:
                names_lock.release()
        self.leader_epochs.raise_start(self._segments.start_offset)
        return report

    def remove_deleted(self) -> int:
        """Does without checkpoints what `LogManager.remove_deleted` does. Raises StorageError."""
        self.deleted.rename_dropped()
        return self.deleted.remove(self.deleted.take_due())

    def replace_segments(self, old: Sequence[LogSegment], new: LogSegment, *, truncations: int) -> bool:
        """Puts a compacted segment in place of `old`; returns false if the log has changed (`LogSegments.replace`)."""
        self._segments.gaps.begin(old[-1].next_offset)
        return self._segments.replace(old, new, truncations, self.config.file_delete_delay_ms)

    def release_replaced(self) -> None:
        """Closes the segments that compaction has replaced; readers may keep them by `LogSegment.retain`."""
        self._segments.release_replaced()

    def verify(self, *, dry_run: bool = False) -> VerifyReport:
        """Checks all bytes, offsets and indexes; a dry run says how much there is to read. Raises StorageError."""
        return verify(self._fs, self._segments, self.leader_epochs, dry_run=dry_run)

    def scrub(self, segment: LogSegment, pace: Pace) -> Scrubbed:
        """Checks one segment, and mends what can be mended here. Raises StorageError, and what `pace` raises."""
        with storage_errors(segment.path):
            return SegmentScrub(
                self._fs, self._segments, self.config, segment, self.leader_epochs,
                recovery_point=self.recovery_point, pace=pace,
            ).run()  # fmt: skip

    @property
    def damage(self) -> list[tuple[str, DamagedRange]]:
        """The damaged ranges that reads pass over, each with the path of its segment."""
        return self.healing.damage()

    def set_damage_aside(self, offset: int) -> bool:
        """Sets aside the first damage in a segment from an offset on; false without one. Raises StorageError."""
        return self._reader.set_damage_aside(offset)

    def name_damage(self) -> None:
        """Writes damaged ranges and checksums of indexes to their files, if they have changed. Raises StorageError."""
        with storage_errors(self.directory):
            self._noted = note(self._fs, self.directory, self._segments.now, self._noted)

    # Moving and closing.

    def take_over(self, other: Log) -> None:
        """Takes producers' state, high watermark and log start from `other`, whose moved copy this log is."""
        self.producers.take_over(other.producers)
        self._segments.high_watermark = other._segments.high_watermark
        self._segments.gaps.take_over(other._segments.gaps)
        self.raise_log_start_offset(other.log_start_offset)
        self.leader_epochs.is_written_first = other.leader_epochs.is_written_first
        self.commit_synced(commits_synced=other._flushing.commits_synced)

    def hand_over(self, take: Callable[[SegmentSequence], None]) -> None:
        """Calls `take` with the log's segments, all closed and synced, while no file is renamed; the log stays open.

        Raises StorageError, and what `take` raises.
        """
        self.release_replaced()
        with self._segments.names_lock:
            self._segments.check_writable(by_holder=True)
            if self._segments.now.active.size_bytes:
                self._writer.roll()
            self.flush()
            self._flushing.check_all_flushed()
            self.name_damage()
            take(self._segments.now)

    def close(self) -> None:
        """Flushes and closes the files; closing again does nothing. Raises StorageError where the flush fails."""
        self.release_replaced()
        with self._segments.names_lock, self._flushing.lock:
            if self._segments.is_closed:
                return
            try:
                if self._segments.health.reason is None:
                    self.deleted.rename_dropped()
                    self._flushing.finish()
                    self.name_damage()
            finally:
                self._release_files()

    def abandon(self) -> None:
        """Closes the files without a flush, as for a log that is deleted."""
        self.release_replaced()
        with self._segments.names_lock, self._flushing.lock:
            if not self._segments.is_closed:
                self._release_files()

    def _release_files(self) -> None:
        self.producers.close()
        self._segments.close()
