"""The log of one partition: batches in order, each at an offset that never changes (spec B2, B3, B4, B6).

    log start offset        recovery point         log end offset
          |  synced to the disk   |   in the page cache  |
          [ segment ][ segment ][ segment ][ active segment

`append` gives offsets and writes to the active segment; `read` finds the segment in an immutable list, then the
batch through the sparse index; `flush` moves the recovery point; `apply_retention` takes whole segments
from the front. A crash may cost what lies above the recovery point, from the first damaged byte on, and nothing below.

Threads: `append`, `read`, the offset look-ups, `apply_retention`, `raise_log_start_offset`, `release_replaced`,
`hand_over` and `close` belong to one thread, the event loop's. `flush`, `verify` and `remove_deleted` may run on one
other thread at the same time: they read the log end offset *before* the segments, hold each segment by `retain`, and
flushes exclude one another by a lock.

Compaction has a worker thread of its own, and comes here for `replace_segments` and `aborted_transactions` only;
`storage.segment_list` says how it, retention and `close` keep out of one another's way.

Where to look: `segment_writer` rolls and writes, `lookup` finds, `flushing` syncs, `log_segments` holds the segments
and deletes their files, `retention` chooses what goes, `loading` opens a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from millrace.clock import Clock
from millrace.config import MAX_INT, MAX_LONG
from millrace.errors import MillraceError, OffsetOutOfRangeError, StorageError
from millrace.fs import Buffer, FileSystem
from millrace.records.batch import NO_PRODUCER_ID, NO_TIMESTAMP, read_header
from millrace.records.control import EndTransactionMarker, encode_marker
from millrace_broker.storage import lookup
from millrace_broker.storage.append_time import stamped
from millrace_broker.storage.config import LOG_APPEND_TIME, LogConfig
from millrace_broker.storage.delete_policies import deletable_of
from millrace_broker.storage.failures import storage_error, storage_errors
from millrace_broker.storage.filenames import TopicPartition
from millrace_broker.storage.flushing import Flushing
from millrace_broker.storage.health import DirHealth
from millrace_broker.storage.leader_epochs import LeaderEpochs
from millrace_broker.storage.loading import load_log
from millrace_broker.storage.log_segments import LogSegments
from millrace_broker.storage.log_slice import LogSlice
from millrace_broker.storage.offsets_before import offsets_before
from millrace_broker.storage.placement import Append, LogAppendInfo, Placement, place, the_place
from millrace_broker.storage.producer_state import Turn, next_turn
from millrace_broker.storage.producer_state_manager import ProducerStateManager
from millrace_broker.storage.reports import RetentionReport, VerifyReport
from millrace_broker.storage.rolling import Rolling
from millrace_broker.storage.segment import LogSegment
from millrace_broker.storage.segment_sequence import SegmentSequence, facts_of
from millrace_broker.storage.segment_writer import SegmentWriter
from millrace_broker.storage.transaction_index import AbortedTransaction
from millrace_broker.storage.validation import check_records, looks_at_records, validate_produced
from millrace_broker.storage.verification import verify_log

AppendOutcome = LogAppendInfo | MillraceError


class Log:
    """One partition's batches on the disk."""

    __slots__ = (
        "_clock", "_closed", "_flushing", "_fs", "_health", "_list", "_looks_at_records", "_stamps_append_time",
        "_syncs_by_count", "_writer", "config", "directory", "leader_epochs", "log_end_offset", "log_start_offset",
        "producers", "recovery", "topic_partition",
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
        clean: bool = False,
        health: DirHealth | None = None,
    ) -> None:
        """Open the log of an existing folder, recovering it unless the shutdown was clean; StorageError."""
        self.topic_partition = topic_partition
        self.directory = directory
        self._fs = fs
        self._clock = clock
        self._health = health or DirHealth(directory)
        self._closed = False
        self.producers = ProducerStateManager(fs, directory)
        with storage_errors(directory):
            loaded = load_log(
                fs, directory, config, recovery_point=recovery_point, log_start_offset=log_start_offset, clean=clean
            )
        self._list = LogSegments(fs, clock, directory, loaded.segments)
        self.log_start_offset = max(log_start_offset, loaded.segments[0].base_offset)
        self.log_end_offset = loaded.next_offset
        self._flushing = Flushing(fs, clock, directory, self.producers, self._health)
        self._flushing.recovery_point = self.log_end_offset if clean else min(recovery_point, self.log_end_offset)
        # After a clean shutdown names are synced too, but for those that had to be made anew.
        self._flushing.names_changed = not clean or any(segment.was_recovered for segment in loaded.segments)
        rolling = Rolling(clock, config, seed=str(topic_partition))
        self._writer = SegmentWriter(self._list, rolling, self.producers, self._flushing, self._health)
        self.reconfigure(config)
        with ExitStack() as undo:
            undo.callback(self._release_files)
            self._load_state(rolling)
            undo.pop_all()
        self.recovery = loaded.report(topic_partition, self.log_start_offset)

    def _load_state(self, rolling: Rolling) -> None:
        """What is known beside the batches: leaders, producers, the active segment's age."""
        self.leader_epochs = LeaderEpochs(self._fs, self.directory)
        self.leader_epochs.truncate(self.log_end_offset)
        with storage_errors(self.directory):
            rolling.resume(self._list.now.active)
            self.producers.load(
                tuple(self._list.now), log_start_offset=self.log_start_offset, log_end_offset=self.log_end_offset
            )
        self.expire_producers()

    @property
    def recovery_point(self) -> int:
        """Below it everything is on the disk."""
        return self._flushing.recovery_point

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size_bytes for segment in self._list.now)

    @property
    def segment_count(self) -> int:
        """Segments, the active one included."""
        return len(self._list.now)

    @property
    def starts_inside_segment(self) -> bool:
        """Whether the log start offset can't be told from the segments alone."""
        return self.log_start_offset > self._list.now[0].base_offset

    def reconfigure(self, config: LogConfig) -> None:
        """Take other settings from the next append on; an open segment keeps its index sizes."""
        self.config = self._writer.config = config
        self._looks_at_records = looks_at_records(config)
        self._stamps_append_time = config.message_timestamp_type == LOG_APPEND_TIME
        self._syncs_by_count = config.flush_messages < MAX_LONG

    # Appending.

    def append(self, batches: Buffer, *, leader_epoch: int) -> LogAppendInfo:
        """Validate what a producer sent and put it at the end of the log, as one write.

        A batch that its producer sent before is not appended again: its place of then is the answer (KIP-98).
        Raises RecordError for bytes that break a rule, ProducerError for a batch out of its producer's sequence, and
        StorageError where the disk fails; the log is then as before.
        A batch that is written but can't be synced as `flush.messages` demands takes its data folder offline:
        what the disk holds is unknown until the folder is opened again.
        """
        return the_place(self.append_all((batches,), leader_epoch=leader_epoch))

    def append_all(self, appends: Sequence[Buffer], *, leader_epoch: int) -> Sequence[AppendOutcome]:
        """The same for what came together, in order: each one's place, or the error that `append` would raise.

        One write takes as many as the active segment has room for, and fails them all; what is invalid fails alone.
        Of idempotent producers a write has one, whose batches follow on one another.
        """
        outcomes: list[AppendOutcome] = []
        run: list[Append] = []
        turn: Turn | None = None  # of the batch that goes on with the run; a run without a producer has none
        max_message_bytes, health = self.config.max_message_bytes, self._health
        for batches in appends:
            try:
                if health.reason is not None or self._closed:
                    self._check_open()
                view = memoryview(batches)
                found = validate_produced(view, max_message_bytes)
                if self._looks_at_records:
                    check_records(view, found, self.config, self._clock.now_ms())
            except MillraceError as error:
                outcomes += [*self._outcomes_of(run, leader_epoch, turn), error]
                run, turn = [], None
                continue
            # `turn_of` and `next_turn`, in place: a call costs more than what it does.
            _, _, _, _, _, attributes, last_offset_delta, _, _, producer_id, epoch, sequence, _ = header = found[0][1]
            is_plain = producer_id == NO_PRODUCER_ID
            if turn is not None if is_plain else turn != (producer_id, epoch, attributes, sequence):
                if run:
                    outcomes += self._outcomes_of(run, leader_epoch, turn)
                run, turn = [], None
                if not is_plain and (settled := self.producers.settled(header)) is not None:
                    outcomes.append(settled)
                    continue
            run.append((view, found))
            if not is_plain:
                turn = producer_id, epoch, attributes, (sequence + last_offset_delta + 1) & MAX_INT
        outcomes += self._outcomes_of(run, leader_epoch, turn)
        return outcomes

    def _outcomes_of(self, run: Sequence[Append], leader_epoch: int, turn: Turn | None) -> Sequence[AppendOutcome]:
        """Append what is valid, together if the active segment takes it all; `turn` is its producer's next."""
        if not run:
            return []
        if self._stamps_append_time:
            now_ms = self._clock.now_ms()
            run = [stamped(view, found, now_ms) for view, found in run]
        placement = place(run, self.log_end_offset, leader_epoch)
        if len(run) > 1 and not self._writer.takes(placement):
            return [outcome for batches, _ in run for outcome in self.append_all((batches,), leader_epoch=leader_epoch)]
        try:
            self._write(placement, leader_epoch)
            if turn is not None:
                self.producers.append_run(run, placement.appends, turn)
            if self._syncs_by_count:
                self._flush_as_promised()
        except MillraceError as error:
            return [error] * len(run)
        if self._stamps_append_time:
            return [info._replace(log_append_time_ms=now_ms) for info in placement.appends]
        return placement.appends

    def append_in_transaction(self, batches: Buffer, *, leader_epoch: int) -> LogAppendInfo:
        """Append what a coordinator writes for a producer: its epoch counts, not its sequence. Raises as `append`."""
        self._check_open()
        found = validate_produced(memoryview(batches), self.config.max_message_bytes)
        self.producers.check_epoch(found[0][1])
        return the_place(self._outcomes_of([(memoryview(batches), found)], leader_epoch, next_turn(found[0][1])))

    def append_control(
        self, marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, leader_epoch: int
    ) -> LogAppendInfo:
        """Append the marker that ends a producer's transaction; an abort goes into the transaction index.

        Raises ProducerError for a marker that is out of date, StorageError; the log is then as before.
        """
        self._check_open()
        self.producers.check_marker(producer_id, producer_epoch, marker)
        now_ms = self._clock.now_ms()
        batch = encode_marker(marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=now_ms)
        header, offset = read_header(batch), self.log_end_offset
        self._write(place([(memoryview(batch), [(0, header)])], offset, leader_epoch), leader_epoch)
        self.producers.append_marker(header, marker, offset, self._list.now.active.transaction_index.append)
        self._flush_as_promised()
        return LogAppendInfo(offset, offset, NO_TIMESTAMP, now_ms)

    def _check_open(self) -> None:
        if self._health.reason is not None or self._closed:
            raise StorageError(f"{self.directory}: offline: {self._health.reason or 'closed'}")

    def _write(self, placement: Placement, leader_epoch: int) -> None:
        if leader_epoch > self.leader_epochs.latest:
            self.leader_epochs.assign(leader_epoch, self.log_end_offset)
        self.log_end_offset = self._writer.write(placement, self.log_end_offset)

    def _flush_as_promised(self) -> None:
        """Keep to `flush.messages`."""
        if self.log_end_offset - self._flushing.recovery_point >= self.config.flush_messages:
            self.flush()

    # Flushing.

    def flush(self) -> None:
        """Block until all that is appended so far is on the disk; a closed log has nothing to flush.

        Raises StorageError. A failed fsync takes the data folder offline: the kernel may have dropped what it could not
        write.
        """
        with self._flushing.lock:
            if not self._closed:
                self._flushing.flush(self.log_end_offset, self._list.now)

    def is_flush_due(self, now_ms: int) -> bool:
        """Whether `flush.ms` has passed (monotonic `now_ms`), or a closed segment waits to be synced."""
        return self._flushing.is_due(now_ms, self.config.flush_ms, self.log_end_offset, self._list.now)

    # Reading.

    def read(self, offset: int, max_bytes: int, *, up_to_offset: int, at_least_one: bool = True) -> bytes:
        """The bytes of what `find_batches` finds; empty where there is nothing."""
        found = self._find(offset, max_bytes, up_to_offset, at_least_one=at_least_one)
        return b"" if found is None else self._read(found)

    def read_or_find(
        self, offset: int, max_bytes: int, *, up_to_offset: int, at_least_one: bool = True, read_at_once_bytes: int
    ) -> bytes | LogSlice:
        """The same where it is no more than `read_at_once_bytes`; what is more is left in the file."""
        found = self._find(offset, max_bytes, up_to_offset, at_least_one=at_least_one)
        if found is None:
            return b""
        segment, located = found
        if located.size_bytes <= read_at_once_bytes:
            return self._read(found)
        return LogSlice(segment, located.position, located.size_bytes)

    def find_batches(
        self, offset: int, max_bytes: int, *, up_to_offset: int, at_least_one: bool = True
    ) -> LogSlice | None:
        """Whole batches from the one that holds `offset`, as they are in the file, from one segment.

        At most `max_bytes`, but a first batch above that comes whole if `at_least_one` (KIP-74); never a
        batch at or above `up_to_offset`, the high watermark. None where there is nothing to read yet.
        Raises OffsetOutOfRangeError below the log start offset and above the log end offset, StorageError.
        """
        found = self._find(offset, max_bytes, up_to_offset, at_least_one=at_least_one)
        return None if found is None else LogSlice(found.segment, found.located.position, found.located.size_bytes)

    def _find(self, offset: int, max_bytes: int, up_to_offset: int, *, at_least_one: bool) -> lookup.Found | None:
        log_end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self.topic_partition}: offset {offset} is not in {self.log_start_offset}..{log_end_offset}"
            )
        end_offset = min(up_to_offset, log_end_offset)
        if offset >= end_offset:
            return None
        try:
            return lookup.find_batches(self._list.now, offset, max_bytes, end_offset, at_least_one=at_least_one)
        except OSError as error:
            raise storage_error(self.directory, error) from error

    def _read(self, found: lookup.Found) -> bytes:
        segment, located = found
        try:
            return segment.read(located)
        except OSError as error:
            raise storage_error(segment.path, error) from error

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record not older than `timestamp_ms`; None if there is none."""
        with storage_errors(self.directory):
            return lookup.offset_for_timestamp(self._list.now, timestamp_ms, self.log_start_offset)

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record with the largest timestamp (KIP-734); None where there is none."""
        with storage_errors(self.directory):
            return lookup.offset_of_max_timestamp(self._list.now, self.log_start_offset)

    def offsets_before(self, timestamp_ms: int, max_count: int, *, up_to_offset: int | None = None) -> list[int]:
        """Where a reader may begin, newest first: getOffsetsBefore of Kafka 0.7 and 0.8 (`storage.offsets_before`)."""
        end = self.log_end_offset if up_to_offset is None else min(up_to_offset, self.log_end_offset)
        starts = lookup.segment_starts(self._list.now, self.log_start_offset, end)
        return offsets_before(starts, (end, self._clock.now_ms()), timestamp_ms, max_count)

    # Producers and transactions.

    def last_stable_offset(self, high_watermark: int) -> int:
        """The end for `read_committed` readers: what is left of the first open transaction, or the high watermark."""
        return max(self.producers.last_stable_offset(high_watermark), self.log_start_offset)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that reach into the offsets from start up to end; StorageError."""
        with storage_errors(self.directory):
            return lookup.aborted_transactions(self._list.now, start_offset, end_offset)

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
        with self._list.names_lock:
            return self._apply_retention(up_to_offset)

    def _apply_retention(self, up_to_offset: int | None) -> RetentionReport:
        before = [] if self._closed else [facts_of(segment) for segment in self._list.now]
        reasons = deletable_of(
            self.config,
            before,
            log_start_offset=self.log_start_offset,
            up_to_offset=self.log_end_offset if up_to_offset is None else up_to_offset,
            now_ms=self._clock.now_ms(),
        )
        for _ in reasons:
            if len(self._list.now) == 1:  # last, as a full disk may have no room for another
                self._writer.roll(self.log_end_offset)
            self._delete_first()
        return RetentionReport(
            topic=self.topic_partition.topic,
            partition=self.topic_partition.partition,
            segments=len(self._list.now),
            deleted_segments=len(reasons),
            deleted_bytes=sum(each.size_bytes for each in before[: len(reasons)]),
            reasons=tuple(reasons),
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
        )

    def remove_deleted(self) -> int:
        """Remove the files whose delay is over; returns how many. StorageError."""
        return self._list.remove_deleted()

    def _delete_first(self) -> None:
        segment = self._list.drop_first()
        self.log_start_offset = max(self.log_start_offset, self._list.now[0].base_offset)
        snapshot = self.producers.snapshot_path(segment.base_offset)
        with storage_errors(segment.path):
            self._list.delete(segment, snapshot, self.config.file_delete_delay_ms)

    # Compaction.

    @property
    def segments(self) -> SegmentSequence:
        """All segments, as of now."""
        return self._list.now

    @property
    def closed_segments(self) -> tuple[LogSegment, ...]:
        """The segments that nothing is appended to any more, oldest first."""
        return self._list.now[:-1]

    def replace_segments(self, old: Sequence[LogSegment], new: LogSegment) -> bool:
        """Put a compacted segment in the place of those that it was made of, on compaction's thread.

        False, and nothing is changed, where one of them is no longer here. StorageError takes the folder offline:
        which of them the disk has in place is told only by opening it again.
        """
        with self._list.names_lock:
            if self._closed or self._health.reason is not None or not self._list.now.holds(old):
                return False
            try:
                self._list.replace(old, new, self.config.file_delete_delay_ms)
            except OSError as error:
                self._health.fail(f"a compacted segment could not be put in place: {error}")
                raise storage_error(self.directory, error) from error
        return True

    def release_replaced(self) -> None:
        """Close the segments that compaction has replaced; readers that hold one by `retain` keep it."""
        self._list.release_replaced()

    # The rest.

    def hand_over(self, take: Callable[[SegmentSequence], None]) -> None:
        """Let `take` have the log as closed and synced segments that nothing renames meanwhile, and close it then.

        What `take` raises passes, and the log stays open. StorageError.
        """
        self.release_replaced()
        with self._list.names_lock:
            self._check_open()
            if self._list.now.active.size_bytes:
                self._writer.roll(self.log_end_offset)
            self.flush()
            take(self._list.now)
            with self._flushing.lock:
                self._closed = True
                self._release_files()

    def verify(self) -> VerifyReport:
        """Read every batch that is in the log now and check bytes, offsets and indexes; StorageError."""
        end, segments = self.log_end_offset, self._list.now
        with storage_errors(self.directory):
            return verify_log(self._fs, self.topic_partition, self.log_start_offset, end, segments[:])

    def close(self) -> None:
        """Flush, and give the files back; closing again does nothing. StorageError where the flush fails."""
        self.release_replaced()
        with self._list.names_lock, self._flushing.lock:
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
        with self._list.names_lock, self._flushing.lock:
            if not self._closed:
                self._closed = True
                self._release_files()

    def _release_files(self) -> None:
        self.producers.close()
        self._list.release()

    def _close_segments(self) -> None:
        active = self._list.now.active
        active.finish()
        with storage_errors(self.directory):
            self._flushing.names_changed |= self.producers.take_snapshot(self.log_end_offset)
        self._flushing.flush(self.log_end_offset, self._list.now, closing=True)
        if not active.is_sealed:
            raise StorageError(f"{self.directory}: no room for the indexes")
