"""Cutting a log: its end, which another leader's log does not have, or all of it (KIP-101); and its oldest segments.

    before    [ segment 0 ][ segment 42 ......][ segment 97 ][ active 130 ...
    cut at 60 [ segment 0 ][ segment 42 .. ][ active 60

    step                                                            what a crash behind it leaves
    1  give up repaired ranges above the offset                     the log as it was
    2  remove segments above the offset, the last one first,        the log up to one of them
       each with a sync of the folder; of the first one of all
       the .log stays, emptied, as .log.deleted
    3  cut the .log of the segment that holds the offset, sync it   the log up to the offset
       cut .index and .timeindex, replace .txnindex, sync all       the same, with indexes that fit or are rebuilt
    4  begin a new active segment there; where it is the first,     the same
       its name is synced, as a log begins at the first name
    5  drop leader epochs and producers' snapshots above it         the same: a start drops them too

Where all are removed, the log may go on above its first segment, and the checkpoint's log start offset lies below that
until it is written again. The `.log.deleted` tells a start that nothing in between is lost (`log_checkpoints`).

At every step the log is a prefix of what it was, and nothing is appended before the last one. The caller lowers the
checkpoints in the data folder first (`LogManager.truncate_to`): what they call synced is never cut at a start. Where
the disk has no room for the indexes, they wait in memory, and a start rebuilds them.

A batch that holds the offset is cut off whole. So the log may end below the offset, as it does where compaction has
left offsets out.

**No byte of what was cut, nor of what takes its place, reaches a reader who has found batches before**
(`LogSlice`). The files of removed segments are emptied, and so are those that compaction has replaced and a reader
still holds. A file that was cut is never appended to again. So a reader comes to the end of a file, which
is an error, and can't tell what else may have been there.

Policies decide which of the oldest segments retention may delete (`storage.retention`); here they are taken out of the
log, and their files go on another thread (`deleted_files`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import islice

from millrace.config import MAX_LONG
from millrace.errors import CorruptRecordError, OffsetOutOfRangeError, RecordError, StorageError
from millrace.fs import FileSystem
from millrace_broker.storage.config import LogConfig
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.log.flushing import Flushing
from millrace_broker.storage.log.leader_epochs import LeaderEpochs
from millrace_broker.storage.log.log_segments import LogSegments, SegmentWriter
from millrace_broker.storage.producers.producer_state_manager import ProducerStateManager
from millrace_broker.storage.recovery.range_files import cut_repaired
from millrace_broker.storage.reports import RetentionReport, SegmentReport
from millrace_broker.storage.retention import deletable, policies_of
from millrace_broker.storage.segments.damage import AllowedGaps, Synced, intact_bytes, valid_batches
from millrace_broker.storage.segments.damage_search import add_known_holes, note_missing, past_damage, walk_of
from millrace_broker.storage.segments.indexes import AbortedTransaction
from millrace_broker.storage.segments.segment import LogSegment
from millrace_broker.storage.segments.segment_sequence import facts_of
from millrace_broker.storage.segments.time_entries import ends_with_newest


def end_below(fs: FileSystem, segment: LogSegment, offset: int, gapless_from: int) -> tuple[int, int]:
    """Returns (position, offset) where the batches and damaged ranges wholly below `offset` end.

    The batches are checked, as the log is to end where the last of them does. Raises RecordError or OSError.
    """
    damage = segment.damage
    ends = [(one.end_position, one.end_offset) for one in damage if one.end_offset <= offset]
    begin, expected = _start_below(segment, offset)
    for start, end in intact_bytes(damage, begin, segment.size_bytes):
        expected = max([expected, *(one.end_offset for one in damage if one.end_position <= start)])
        for at, header in valid_batches(fs, segment.fd, walk_of(segment, start, end, expected, gapless_from)):
            if header.next_offset > offset:
                return max(ends, default=(0, segment.base_offset))
            ends.append((at + header.size_bytes, expected := header.next_offset))
    return max(ends, default=(0, segment.base_offset))


def _start_below(segment: LogSegment, offset: int) -> tuple[int, int]:
    """Returns (position, base offset) of a batch that ends at or below `offset`, by an index entry that leads to one.

    An entry may be damaged, and lead behind the file's end, or into a batch; then it is the segment's beginning.
    """
    floor = segment.offset_index.floor(offset - 1 - segment.base_offset) if segment.trusts_index else None
    if floor is not None:
        last_offset, position = segment.base_offset + floor[0], floor[1]
        with suppress(RecordError):
            for at, one in islice(segment.headers(position), 1):
                if at == position and one.last_offset <= last_offset:
                    return position, one.base_offset
    return 0, segment.base_offset


def cut_segment(  # noqa: PLR0917 -- a segment, where it ends, and what opens it
    fs: FileSystem, directory: str, segment: LogSegment, position: int, end_offset: int, config: LogConfig
) -> LogSegment:
    """Cuts a segment at a batch's end, and returns another over the same files, closed and synced.

    Raises OSError.

    `segment` itself stays open for readers, and ends where the file does. `position` and `end_offset` are where the
    batches to keep end, as `end_below` returns it.
    """
    aborted = _aborted_below(segment, end_offset)
    has_indexes = segment.write_indexes()
    segment.size_bytes, segment.next_offset = position, end_offset
    fs.truncate(segment.fd, position)
    fs.fsync(segment.fd)
    cut = LogSegment(fs, directory, segment.base_offset, config)
    with ExitStack() as undo:
        undo.callback(cut.release)
        cut.damage = tuple(one for one in segment.damage if one.end_offset <= end_offset)
        cut.repaired = segment.repaired
        cut.offset_index.cut(position)
        cut.time_index.cut(end_offset - cut.base_offset)
        if not (has_indexes and cut.load_active() and ends_with_newest(cut)):
            holes = [one for one in cut.damage if one.is_hole]
            cut.recover(AllowedGaps(end_offset), truncate=False, synced=Synced(MAX_LONG, end_offset, is_end=True))
            add_known_holes(fs, cut, holes)
        cut.finish()
        if aborted is None:
            cut.transaction_index.is_changed = True  # so it is not read before it is made again
        if (aborted is None or cut.transaction_index.replace(aborted)) and cut.write_indexes():
            cut.sync()
            cut.seal()
        else:
            cut.time_index.withdraw()
        undo.pop_all()
    return cut


def _aborted_below(segment: LogSegment, end_offset: int) -> list[AbortedTransaction] | None:
    """Returns the transactions that were aborted below an offset; None where the index is not as it was written."""
    try:
        return [each for each in segment.transaction_index.entries() if each.last_offset < end_offset]
    except CorruptRecordError:
        return None


class Truncation:
    """Truncates one log; callers must hold the log (`Replica.hold`), and locks keep flushes and compaction out."""

    __slots__ = ("_epochs", "_flushing", "_fs", "_producers", "_segments", "_writer")

    def __init__(  # noqa: PLR0917 -- the parts of a log, wired once
        self,
        fs: FileSystem,
        segments: LogSegments,
        writer: SegmentWriter,
        producers: ProducerStateManager,
        epochs: LeaderEpochs,
        flushing: Flushing,
    ) -> None:
        self._fs = fs
        self._segments = segments
        self._writer = writer
        self._producers = producers
        self._epochs = epochs
        self._flushing = flushing

    def truncate_to(self, offset: int) -> bool:
        """Cuts off batches above `offset`; returns whether any was. Raises OffsetOutOfRangeError or StorageError."""
        segments = self._segments
        with segments.names_lock, self._flushing.lock:
            segments.check_writable(by_holder=True)
            _check_offset(offset)
            if offset >= segments.end_offset:
                return False
            index = segments.now.floor_index(offset)
            holder = segments.now[index]
            position, end_offset = self._end_below(holder, offset)
            if offset < holder.base_offset or end_offset < segments.start_offset:
                self._start_at(offset, offset)
                return True
            with segments.health.guard(segments.directory):
                self._begin(end_offset)
                cut_repaired(self._fs, segments.directory, end_offset)
                self._remove(segments.now[index + bool(position) :])
                cut = [self._cut(holder, position, end_offset)] if position else []
                self._go_on(segments.now[:index], cut, end_offset)
                self._epochs.truncate(end_offset)
                self._producers.truncate(
                    segments.now[:], log_start_offset=segments.start_offset, log_end_offset=end_offset
                )
        return True

    def end_at(self, offset: int) -> int:
        """Returns where the log would end if it was cut at `offset`, which lies below its end. Raises StorageError."""
        segments = self._segments
        segments.check_writable(by_holder=True)
        holder = segments.now[segments.now.floor_index(offset)]
        end_offset = self._end_below(holder, offset)[1] if holder.base_offset <= offset else offset
        return offset if end_offset < segments.start_offset else end_offset

    def extend_damaged_end(self, offset: int) -> None:
        """Moves the end of a log up to `offset`; what is missing in front of that is damage, at its last segment's end.

        Nothing may have been appended since that segment was closed. Raises StorageError. A crash leaves the end where
        it was, or moved.
        """
        segments = self._segments
        with segments.names_lock, self._flushing.lock:
            segments.check_writable(by_holder=True)
            *kept, empty = segments.now[:]
            if not kept or empty.size_bytes or offset <= segments.end_offset:
                return
            with segments.health.guard(segments.directory):
                self._remove([empty])
                note_missing(kept[-1], offset)
                segments.end_offset = offset
                self._go_on(kept, (), offset)

    def start_at(self, offset: int, log_start_offset: int) -> None:
        """Removes all batches, to go on at `offset`. Raises OffsetOutOfRangeError if it is negative, StorageError."""
        with self._segments.names_lock, self._flushing.lock:
            self._segments.check_writable(by_holder=True)
            _check_offset(offset)
            self._start_at(offset, log_start_offset)

    def _start_at(self, offset: int, log_start_offset: int) -> None:
        segments = self._segments
        with segments.health.guard(segments.directory):
            self._begin(offset)
            cut_repaired(self._fs, segments.directory, 0)
            self._remove(segments.now[:])
            self._go_on((), (), offset)
            segments.start_offset = log_start_offset
            if segments.high_watermark is not None:
                segments.high_watermark = log_start_offset
            self._epochs.truncate(0)
            self._producers.forget_all(offset)

    def _begin(self, end_offset: int) -> None:
        """Lowers the log end, high watermark and recovery point to `end_offset`: nothing above is read any more."""
        segments = self._segments
        segments.deleted.rename_dropped()  # or else one of these names may be given again
        segments.truncations += 1
        segments.end_offset = end_offset
        segments.gaps.cut(end_offset)
        if segments.high_watermark is not None:
            segments.high_watermark = min(segments.high_watermark, end_offset)
        self._flushing.recovery_point = min(self._flushing.recovery_point, end_offset)
        segments.empty_replaced(end_offset)

    def _remove(self, removed: Sequence[LogSegment]) -> None:
        for segment in reversed(removed):
            if segment is self._segments.now[0]:
                self._segments.deleted.leave_name(segment)
            self._fs.truncate(segment.fd, 0)
            for path in segment.file_paths():
                self._fs.unlink(path)
            self._fs.fsync_dir(self._segments.directory)

    def _cut(self, segment: LogSegment, position: int, end_offset: int) -> LogSegment:
        return cut_segment(self._fs, self._segments.directory, segment, position, end_offset, self._writer.config)

    def _go_on(self, kept: Sequence[LogSegment], cut: Sequence[LogSegment], end_offset: int) -> None:
        """Replaces the log's segments by `kept`, `cut` and a new active one, and closes the others."""
        old = self._segments.now[len(kept) :]
        try:
            self._writer.restart([*kept, *cut], end_offset)
        except OSError:
            old = tuple(cut)
            raise
        finally:
            for segment in old:
                segment.release()
        if len(self._segments.now) == 1:
            self._fs.fsync_dir(self._segments.directory)

    def _end_below(self, segment: LogSegment, offset: int) -> tuple[int, int]:
        try:
            with storage_errors(segment.path):
                gapless_from = self._segments.gaps.gapless_from
                find = partial(end_below, self._fs, segment, offset, gapless_from)
                return past_damage(self._fs, segment, offset, gapless_from, find)
        except RecordError as error:
            raise StorageError(f"{segment.path}: {error}") from error


def _check_offset(offset: int) -> None:
    if offset < 0:
        raise OffsetOutOfRangeError(f"no log ends at {offset}")


def apply_retention(
    segments: LogSegments,
    writer: SegmentWriter,
    producers: ProducerStateManager,
    config: LogConfig,
    *,
    up_to_offset: int,
    now_ms: int,
    dry_run: bool,
) -> RetentionReport:
    """Deletes the segments below `up_to_offset` that `config` lets go; a dry run only reports. Raises StorageError.

    The caller holds `names_lock`. A log that is closed keeps what it has.
    """
    before = [] if segments.is_closed else [facts_of(segment) for segment in segments.now]
    policies, start_offset = policies_of(config), segments.start_offset
    reasons = deletable(before, policies, log_start_offset=start_offset, up_to_offset=up_to_offset, now_ms=now_ms)
    deleted = tuple(
        SegmentReport(base_offset=each.base_offset, size_bytes=each.size_bytes, reason=reason)
        for each, reason in zip(before, reasons, strict=False)
    )
    if not dry_run:
        _delete_oldest(len(deleted), segments, writer, producers, config.file_delete_delay_ms)
    return RetentionReport(
        topic=segments.topic_partition.topic,
        partition=segments.topic_partition.partition,
        segments=len(segments.now),
        deleted_segments=len(deleted),
        deleted_bytes=sum(each.size_bytes for each in deleted),
        reasons=tuple(reasons),
        by_segment=deleted,
        log_start_offset=segments.start_offset,
        log_end_offset=segments.end_offset,
    )


def _delete_oldest(
    count: int, segments: LogSegments, writer: SegmentWriter, producers: ProducerStateManager, delay_ms: int
) -> None:
    for _ in range(count):
        if len(segments.now) == 1:  # last, as a full disk may have no room for another
            writer.roll()
        segments.drop_first(producers.snapshot_path(segments.now[0].base_offset), delay_ms)
