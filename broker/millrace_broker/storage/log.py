"""The log of one partition: batches in order, each at an offset that never changes (spec B2, B3, B4, B6).

    log start offset        recovery point         log end offset
          |  synced to the disk   |   in the page cache  |
          [ segment ][ segment ][ segment ][ active segment

`append` gives offsets and writes to the active segment; `read` finds the segment in an immutable list, then the
batch through the sparse index; `flush` moves the recovery point; `apply_retention` takes whole segments
from the front. A crash may cost what lies above the recovery point, from the first damaged byte on, and nothing below.

Threads: `append`, `read`, the offset look-ups, `apply_retention`, `raise_log_start_offset`, `release_replaced` and
`close` belong to one thread, the event loop's. `flush`, `verify` and `remove_deleted` may run on one other thread at
the same time: they read the log end offset *before* the segments, hold each segment by `retain`, and flushes exclude
one another by a lock.

Compaction has a worker thread of its own, and comes here for `replace_segments` alone. It and whatever else gives
names to segment files or closes them, retention and `close`, exclude one another by the lock of names; appends and
reads never take it. Whoever puts another list in the place of the list of segments holds the lock of segments for that
assignment. A replaced segment stays open until the log's own thread, which may be reading it, calls
`release_replaced`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from threading import Lock

from millrace.clock import Clock
from millrace.errors import OffsetOutOfRangeError, RecordTooLargeError, StorageError
from millrace.fs import Buffer, FileSystem
from millrace.records.batch import NO_PRODUCER_ID, NO_TIMESTAMP, read_header
from millrace.records.control import EndTransactionMarker, encode_marker
from millrace_broker.storage import lookup
from millrace_broker.storage.append_time import stamped
from millrace_broker.storage.config import LOG_APPEND_TIME, LogConfig
from millrace_broker.storage.failures import storage_error, storage_errors
from millrace_broker.storage.filenames import DELETED_FILE_SUFFIX, TopicPartition
from millrace_broker.storage.health import DirHealth
from millrace_broker.storage.leader_epochs import LeaderEpochs
from millrace_broker.storage.loading import load_log
from millrace_broker.storage.offsets_before import offsets_before
from millrace_broker.storage.placement import Batches, LogAppendInfo, place
from millrace_broker.storage.producer_state import BatchMetadata
from millrace_broker.storage.producer_state_manager import ProducerStateManager
from millrace_broker.storage.reports import LogRecovery, RetentionReport, VerifyReport
from millrace_broker.storage.retention import deletable, policies_of
from millrace_broker.storage.rolling import Rolling
from millrace_broker.storage.segment import LogSegment
from millrace_broker.storage.segment_swap import swap_in
from millrace_broker.storage.segments import Segments, facts_of
from millrace_broker.storage.transaction_index import AbortedTransaction, find_aborted
from millrace_broker.storage.validation import check_records, looks_at_records, validate_produced
from millrace_broker.storage.verification import verify_log


class Log:
    """One partition's batches on the disk."""

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
        clean: bool = False,
        health: DirHealth | None = None,
    ) -> None:
        """Open the log of an existing folder, recovering it unless the shutdown was clean; StorageError."""
        self.topic_partition = topic_partition
        self.directory = directory
        self._fs = fs
        self._clock = clock
        self._flush_lock = Lock()
        self._names_lock = Lock()
        self._segments_lock = Lock()
        self._replaced: deque[LogSegment] = deque()
        self._rolling = Rolling(clock, config, seed=str(topic_partition))
        self._health = health or DirHealth(directory)
        self._closed = False
        self._names_changed = True
        self._deleted: deque[tuple[int, str]] = deque()
        self.reconfigure(config)
        self.producers = ProducerStateManager(fs, directory)
        with storage_errors(directory):
            loaded = load_log(
                fs, directory, config, recovery_point=recovery_point, log_start_offset=log_start_offset, clean=clean
            )
        self._segments = Segments(loaded.segments)
        self.log_start_offset = max(log_start_offset, loaded.segments[0].base_offset)
        self.log_end_offset = loaded.next_offset
        self.recovery_point = self.log_end_offset if clean else min(recovery_point, self.log_end_offset)
        with ExitStack() as undo:
            undo.callback(self._release_files)
            self._load_state()
            undo.pop_all()
        self._last_flush_ms = clock.monotonic_ms()
        self.recovery = LogRecovery(
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            segments=len(self._segments),
            recovered_segments=loaded.recovered_segments,
            truncated_bytes=loaded.truncated_bytes,
            dropped_segments=loaded.dropped_segments,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
        )

    def _load_state(self) -> None:
        """What is known beside the batches: leaders, producers, the active segment's age."""
        self.leader_epochs = LeaderEpochs(self._fs, self.directory)
        self.leader_epochs.truncate(self.log_end_offset)
        with storage_errors(self.directory):
            self._rolling.begin(self._segments.active)
            self.producers.load(
                tuple(self._segments), log_start_offset=self.log_start_offset, log_end_offset=self.log_end_offset
            )
        self.expire_producers()

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segment_count(self) -> int:
        """Segments, the active one included."""
        return len(self._segments)

    @property
    def starts_inside_segment(self) -> bool:
        """Whether the log start offset can't be told from the segments alone."""
        return self.log_start_offset > self._segments[0].base_offset

    def reconfigure(self, config: LogConfig) -> None:
        """Take other settings from the next append on; an open segment keeps its index sizes."""
        self.config = self._rolling.config = config
        self._looks_at_records = looks_at_records(config)
        self._stamps_append_time = config.message_timestamp_type == LOG_APPEND_TIME

    # Appending.

    def append(self, batches: Buffer, *, leader_epoch: int) -> LogAppendInfo:
        """Validate what a producer sent and put it at the end of the log, as one write.

        A batch that its producer sent before is not appended again: its place of then is the answer (KIP-98).
        Raises RecordError for bytes that break a rule, ProducerError for a batch out of its producer's sequence, and
        StorageError where the disk fails; the log is then as before.
        A batch that is written but can't be synced as `flush.messages` demands takes its data folder offline:
        what the disk holds is unknown until the folder is opened again.
        """
        if self._health.reason is not None or self._closed:
            raise self._not_open()
        view = memoryview(batches)
        found: Batches = validate_produced(view, self.config.max_message_bytes)
        if self._looks_at_records:
            check_records(view, found, self.config, self._clock.now_ms())
        has_producer = found[0][1].producer_id != NO_PRODUCER_ID
        if has_producer and (duplicate := self.producers.check(found[0][1])) is not None:
            return self._place_of(duplicate)
        append_time_ms = NO_TIMESTAMP
        if self._stamps_append_time:
            append_time_ms = self._clock.now_ms()
            view, found = stamped(view, found, append_time_ms)
        first_offset = self.log_end_offset
        max_timestamp = self._write(view, found, leader_epoch)
        if has_producer:
            self.producers.append(found[0][1], first_offset)
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush()
        return LogAppendInfo(first_offset, self.log_end_offset - 1, append_time_ms, max_timestamp)

    def append_control(
        self, marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, leader_epoch: int
    ) -> LogAppendInfo:
        """Append the marker that ends a producer's transaction; an abort goes into the transaction index.

        Raises ProducerError for a marker that is out of date, StorageError; the log is then as before.
        """
        if self._health.reason is not None or self._closed:
            raise self._not_open()
        self.producers.check_marker(producer_id, producer_epoch, marker)
        now_ms = self._clock.now_ms()
        batch = encode_marker(marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=now_ms)
        header, offset = read_header(batch), self.log_end_offset
        self._write(memoryview(batch), [(0, header)], leader_epoch)
        aborted = self.producers.append_marker(header, marker, offset)
        if aborted is not None:
            self._segments.active.transaction_index.append(aborted)
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush()
        return LogAppendInfo(offset, offset, NO_TIMESTAMP, now_ms)

    def _not_open(self) -> StorageError:
        return StorageError(f"{self.directory}: offline: {self._health.reason or 'closed'}")

    def _place_of(self, batch: BatchMetadata) -> LogAppendInfo:
        append_time_ms = batch.timestamp if self._stamps_append_time else NO_TIMESTAMP
        return LogAppendInfo(batch.first_offset, batch.last_offset, append_time_ms, batch.timestamp)

    def _write(self, view: memoryview, found: Batches, leader_epoch: int) -> int:
        """Give offsets and write; returns the largest timestamp."""
        if leader_epoch > self.leader_epochs.latest:
            self.leader_epochs.assign(leader_epoch, self.log_end_offset)
        buffers, placed = place(view, found, self.log_end_offset, leader_epoch)
        _, _, last_offset, max_timestamp = placed[-1]
        segment = self._segment_for(len(view), last_offset, max_timestamp)
        try:
            start = segment.write(buffers, len(view))
        except OSError as error:
            self._undo_write(segment)
            raise storage_error(segment.path, error) from error
        for position, size_bytes, last_offset, max_timestamp in placed:
            segment.add(start + position, size_bytes, last_offset, max_timestamp)
        self.log_end_offset = last_offset + 1
        return max_timestamp

    def _segment_for(self, size_bytes: int, last_offset: int, max_timestamp: int) -> LogSegment:
        """The active segment, rolled first where the batches don't belong in it."""
        if size_bytes > self.config.segment_bytes:
            raise RecordTooLargeError(
                f"{size_bytes} bytes in one append are above segment.bytes={self.config.segment_bytes}"
            )
        active = self._segments.active
        return self._roll() if self._rolling.is_due(active, size_bytes, last_offset, max_timestamp) else active

    def _roll(self) -> LogSegment:
        """Finish the active segment and begin the next; nothing is synced here, `flush` does it in order."""
        with storage_errors(self.directory):
            self.producers.take_snapshot(self.log_end_offset)
            segment = LogSegment(self._fs, self.directory, self.log_end_offset, self.config)
            with ExitStack() as undo:
                undo.callback(segment.release)
                segment.recover(truncate=True)
                self._rolling.begin(segment)
                undo.pop_all()
        self._segments.active.finish()
        self._names_changed = True
        with self._segments_lock:
            self._segments = self._segments.with_added(segment)
        return segment

    def _undo_write(self, segment: LogSegment) -> None:
        try:
            segment.undo_write()
        except OSError as error:
            self._health.fail(f"{segment.path}: a failed write could not be undone: {error}")

    # Flushing.

    def flush(self) -> None:
        """Block until all that is appended so far is on the disk; a closed log has nothing to flush.

        Raises StorageError. A failed fsync takes the data folder offline: the kernel may have dropped what it could not
        write.
        """
        with self._flush_lock:
            if not self._closed:
                self._flush()

    def is_flush_due(self, now_ms: int) -> bool:
        """Whether `flush.ms` has passed (monotonic `now_ms`), or a closed segment waits to be synced."""
        if self.recovery_point >= self.log_end_offset or self._health.reason is not None:
            return False
        overdue = now_ms - self._last_flush_ms >= self.config.flush_ms
        return overdue or self.recovery_point < self._segments.active.base_offset

    def _flush(self, *, closing: bool = False) -> None:
        if self._health.reason is not None:
            raise StorageError(f"{self.directory}: offline: {self._health.reason}")
        end, segments = self.log_end_offset, self._segments
        self._last_flush_ms = self._clock.monotonic_ms()
        for segment in segments[segments.floor_index(self.recovery_point - 1) :]:
            if not segment.is_sealed and segment.retain():
                try:
                    if not self._sync(segment, is_growing=segment is segments.active and not closing):
                        end = min(end, segment.next_offset)
                finally:
                    segment.release()
        with self._health.guard(self.directory):
            self.producers.sync_snapshots()
            if self._names_changed:
                self._names_changed = False
                self._fs.fsync_dir(self.directory)
        self.recovery_point = max(self.recovery_point, end)

    def _sync(self, segment: LogSegment, *, is_growing: bool) -> bool:
        """Sync a segment; false where the disk has no room for its indexes, so that a crash must have them made anew.

        Those of a growing segment may wait: whatever the recovery point, it is walked after a crash.
        """
        with self._health.guard(segment.path):
            has_room = segment.write_indexes()
            if is_growing or not has_room:
                segment.sync_batches()
            else:
                segment.sync()
                segment.seal()
        return is_growing or has_room

    # Reading.

    def read(self, offset: int, max_bytes: int, *, up_to_offset: int, at_least_one: bool = True) -> bytes:
        """The bytes of whole batches from the one that holds `offset`, as they are in the file, from one segment.

        At most `max_bytes`, but a first batch above that comes whole if `at_least_one` (KIP-74); never a
        batch at or above `up_to_offset`, the high watermark. Empty where there is nothing to read yet.
        Raises OffsetOutOfRangeError below the log start offset and above the log end offset, StorageError.
        """
        log_end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self.topic_partition}: offset {offset} is not in {self.log_start_offset}..{log_end_offset}"
            )
        end_offset = min(up_to_offset, log_end_offset)
        if offset >= end_offset:
            return b""
        segments = self._segments
        with storage_errors(self.directory):
            return lookup.read(segments, offset, max_bytes, end_offset, at_least_one=at_least_one)

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record not older than `timestamp_ms`; None if there is none."""
        with storage_errors(self.directory):
            return lookup.offset_for_timestamp(self._segments, timestamp_ms, self.log_start_offset)

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record with the largest timestamp (KIP-734); None where there is none."""
        with storage_errors(self.directory):
            return lookup.offset_of_max_timestamp(self._segments, self.log_start_offset)

    def offsets_before(self, timestamp_ms: int, max_count: int, *, up_to_offset: int | None = None) -> list[int]:
        """Where a reader may begin, newest first: getOffsetsBefore of Kafka 0.7 and 0.8 (`storage.offsets_before`)."""
        end = self.log_end_offset if up_to_offset is None else min(up_to_offset, self.log_end_offset)
        starts = lookup.segment_starts(self._segments, self.log_start_offset, end)
        return offsets_before(starts, (end, self._clock.now_ms()), timestamp_ms, max_count)

    # Producers and transactions.

    def last_stable_offset(self, high_watermark: int) -> int:
        """The end of what a `read_committed` reader may see: the first open transaction, or the high watermark."""
        return self.producers.last_stable_offset(high_watermark)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that reach into the offsets from start up to end; StorageError."""
        segments = self._segments
        with storage_errors(self.directory):
            indexes = (each.transaction_index for each in segments[segments.floor_index(start_offset) :])
            return find_aborted(indexes, start_offset, end_offset)

    def expire_producers(self) -> int:
        """Forget producers that have been silent for `producer.id.expiration.ms`; returns how many."""
        return self.producers.expire(self._clock.now_ms(), self.config.producer_id_expiration_ms)

    # Retention.

    def raise_log_start_offset(self, offset: int) -> None:
        """Records below `offset` are gone from now on; OffsetOutOfRangeError above the log end offset."""
        if offset > self.log_end_offset:
            raise OffsetOutOfRangeError(f"{self.topic_partition}: offset {offset} is above {self.log_end_offset}")
        self.log_start_offset = max(self.log_start_offset, offset)

    def apply_retention(self, *, up_to_offset: int | None = None) -> RetentionReport:
        """Delete the segments that the settings let go, below `up_to_offset` (the high watermark) only; StorageError.

        Their files get another name now and are removed by `remove_deleted` after `file.delete.delay.ms`.
        """
        self.release_replaced()
        with self._names_lock:
            return self._apply_retention(up_to_offset)

    def _apply_retention(self, up_to_offset: int | None) -> RetentionReport:
        facts = [facts_of(segment) for segment in self._segments]
        reasons = deletable(
            facts,
            policies_of(self.config),
            log_start_offset=self.log_start_offset,
            up_to_offset=self.log_end_offset if up_to_offset is None else up_to_offset,
            now_ms=self._clock.now_ms(),
        )
        if len(reasons) == len(facts):
            self._roll()
        for _ in reasons:
            self._delete_first()
        return RetentionReport(
            topic=self.topic_partition.topic,
            partition=self.topic_partition.partition,
            segments=len(self._segments),
            deleted_segments=len(reasons),
            deleted_bytes=sum(fact.size_bytes for fact in facts[: len(reasons)]),
            reasons=tuple(reasons),
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
        )

    def remove_deleted(self) -> int:
        """Remove the files whose delay is over; returns how many. StorageError."""
        removed = 0
        while self._deleted and self._deleted[0][0] <= self._clock.monotonic_ms():
            _, path = self._deleted.popleft()
            with storage_errors(path):
                if self._fs.exists(path):
                    self._fs.unlink(path)
                    removed += 1
        return removed

    def _delete_first(self) -> None:
        """Take the oldest segment out. Its names are synced before the next goes, so a crash leaves no gap."""
        segment = self._segments[0]
        with self._segments_lock:
            self._segments = self._segments.without_first(1)
        self.log_start_offset = max(self.log_start_offset, self._segments[0].base_offset)
        due_ms = self._clock.monotonic_ms() + self.config.file_delete_delay_ms
        with storage_errors(segment.path):
            snapshot = self.producers.snapshot_path(segment.base_offset)
            for path in (*segment.file_paths(), *([snapshot] if self._fs.exists(snapshot) else [])):
                self._fs.rename(path, path + DELETED_FILE_SUFFIX)
                self._deleted.append((due_ms, path + DELETED_FILE_SUFFIX))
            self._fs.fsync_dir(self.directory)
        segment.release()

    # Compaction.

    @property
    def closed_segments(self) -> tuple[LogSegment, ...]:
        """The segments that nothing is appended to any more, oldest first."""
        return self._segments[:-1]

    def replace_segments(self, old: Sequence[LogSegment], new: LogSegment) -> bool:
        """Put a compacted segment in the place of those that it was made of, on compaction's thread.

        False, and nothing is changed, where one of them is no longer here. StorageError takes the folder offline:
        which of them the disk has in place is told only by opening it again.
        """
        with self._names_lock:
            if self._closed or self._health.reason is not None or not self._segments.holds(old):
                return False
            try:
                deleted = swap_in(self._fs, self.directory, old, new)
            except OSError as error:
                self._health.fail(f"a compacted segment could not be put in place: {error}")
                raise storage_error(self.directory, error) from error
            with self._segments_lock:
                self._segments = self._segments.with_replaced(old, new)
            due_ms = self._clock.monotonic_ms() + self.config.file_delete_delay_ms
            self._deleted.extend((due_ms, path) for path in deleted)
            self._replaced.extend(old)
        return True

    def release_replaced(self) -> None:
        """Close the segments that compaction has replaced; readers that hold one by `retain` keep it."""
        while self._replaced:
            self._replaced.popleft().release()

    # The rest.

    def verify(self) -> VerifyReport:
        """Read every batch that is in the log now and check bytes, offsets and indexes; StorageError."""
        end, segments = self.log_end_offset, self._segments
        with storage_errors(self.directory):
            return verify_log(self._fs, self.topic_partition, self.log_start_offset, end, segments[:])

    def close(self) -> None:
        """Flush, and give the files back; closing again does nothing. StorageError where the flush fails."""
        self.release_replaced()
        with self._names_lock, self._flush_lock:
            if self._closed:
                return
            self._closed = True
            try:
                if self._health.reason is None:
                    self._close_segments()
            finally:
                self._release_files()

    def abandon(self) -> None:
        """Give the files back without a flush, for a log that is deleted."""
        self.release_replaced()
        with self._names_lock, self._flush_lock:
            if not self._closed:
                self._closed = True
                self._release_files()

    def _release_files(self) -> None:
        self.producers.close()
        for segment in self._segments:
            segment.release()

    def _close_segments(self) -> None:
        self._segments.active.finish()
        with storage_errors(self.directory):
            self._names_changed |= self.producers.take_snapshot(self.log_end_offset)
        self._flush(closing=True)
        if not self._segments.active.is_sealed:
            raise StorageError(f"{self.directory}: no room for the indexes")
