"""The broker's compaction: chooses logs, runs passes over them, and remembers how far each one came.

`<data dir>/cleaner-offset-checkpoint` holds the first dirty offset of each compacted log, in Kafka's checkpoint
format. It is written after each pass; after a crash between a pass and its checkpoint the pass is made again.

A pass drops a value because a newer one is there. So the newer one must be on the disk first: the log is flushed, and
the recovery point checkpointed, before the first segment is rewritten. A log with more keys than the map holds takes
several passes, each of which cleans some more of it. Every pass ends before the first transaction that is still open,
and at the high watermark: what is above may be cut off yet, and the older values would be lost with it.

Where a log's end is cut off below its first dirty offset, that offset becomes the log's end, in the checkpoint too:
what is appended there is dirty. A pass that meets a truncation ends, and nothing is remembered of it.

Threads: `run` and `plan` are for worker threads, and two runs exclude one another; `stop` and `follow` may be called
from any other. A log's own thread does one thing for it: it closes segments that were replaced
(`Log.release_replaced`).
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Event, Lock
from typing import NamedTuple

from millrace.clock import Clock
from millrace.config import MAX_LONG
from millrace.errors import CompactionStoppedError, RecordError, StorageError, is_unforeseen
from millrace.fs import FileSystem
from millrace.records.batch import HEADER_BYTES, NO_TIMESTAMP, read_header
from millrace_broker.storage.batches.scan import MAX_RELATIVE_OFFSET
from millrace_broker.storage.checkpoints import read_offsets, write_offsets
from millrace_broker.storage.cleaner.batches import CleaningRules, LastRecord, OffsetMap, RecordCounts
from millrace_broker.storage.cleaner.choice import (
    Dirtiness,
    FailingLogs,
    GroupLimits,
    SegmentSizes,
    dirtiness,
    end_of_cleanable,
    first_dirty_offset,
    group_sizes,
)
from millrace_broker.storage.cleaner.cleaner import (
    CleanedTransactions,
    SegmentRewriter,
    fill_map,
    remove_stale,
)
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.filenames import CLEANER_OFFSET_CHECKPOINT, TopicPartition
from millrace_broker.storage.log.log import Log
from millrace_broker.storage.manager.log_manager import LogManager
from millrace_broker.storage.reports import CompactionReport, SegmentReport
from millrace_broker.storage.segments.damage import DamagedRangeError
from millrace_broker.storage.segments.indexes import TimeIndex
from millrace_broker.storage.segments.segment import LogSegment
from millrace_broker.storage.segments.segment_sequence import facts_of
from millrace_broker.storage.segments.segment_swap import discard
from millrace_broker.storage.throttle import Throttle, short_turns

logger = logging.getLogger(__name__)

UNLIMITED_BYTES_PER_SECOND = 1e300
DEDUPE_BUFFER_BYTES = 128 << 20
TIME_INDEX_ENTRY_BYTES = TimeIndex.ENTRY.size
ON_REQUEST = "on request"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """The limits `log.cleaner.dedupe.buffer.size` (memory for keys) and `log.cleaner.io.max.bytes.per.second`."""

    dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES
    bytes_per_second: float = UNLIMITED_BYTES_PER_SECOND


class _Choice(NamedTuple):
    """A log to compact, how dirty it is, and why it is due."""

    log: Log
    dirt: Dirtiness
    reason: str
    truncations: int  # of the log until then


@dataclass(slots=True)
class _Progress:
    """The progress of a log's compaction: the offset up to which it is done, and counts of passes and records."""

    first_dirty_offset: int
    truncations: int = 0  # of the log when it was chosen
    passes: int = 0
    dropped: int = 0
    keyless_dropped: int = 0
    kept: int = 0
    error: str = ""

    def add(self, counts: RecordCounts, end_offset: int) -> None:
        """Adds the counts of a pass that is done, and moves the first dirty offset to `end_offset`."""
        self.first_dirty_offset = end_offset
        self.passes += 1
        self.kept = counts.kept
        self.dropped += counts.dropped
        self.keyless_dropped += counts.keyless_dropped


class LogCleaner:
    """Compacts the logs of a `LogManager`, which must have been started."""

    def __init__(self, fs: FileSystem, clock: Clock, logs: LogManager, config: CleanerConfig) -> None:
        self._fs = fs
        self._clock = clock
        self._logs = logs
        self._config = config
        self._running = Lock()
        self._offsets_lock = Lock()
        self._stopping = Event()
        self._first_dirty: dict[TopicPartition, tuple[Log, int]] = {}
        self._failing = FailingLogs(clock)
        logs.when_truncated = self._truncated
        for directory in sorted({os.path.dirname(log.directory) for log in logs.logs().values()}):
            self._read_checkpoint(directory)

    def run(self, topics: Collection[str] | None = None, *, force: bool = False) -> list[CompactionReport]:
        """Compacts the logs that are due, the dirtiest first, and returns a report on each.

        With `force`, that is every log whose `cleanup.policy` has `compact`, due or not. `topics` limits it to these
        topics' logs; None means all. An error of one log is put into its report, and the log is left alone for a while
        (`FailingLogs`), unless forced.
        """
        reports: list[CompactionReport] = []
        done: set[TopicPartition] = set()

        def is_left(key: TopicPartition) -> bool:
            return key not in done and (topics is None or key.topic in topics)

        with self._running, short_turns():
            self._forget_deleted()
            while choices := list(self._choices(is_left, force=force)):
                dirtiest = max(choices, key=lambda each: each.dirt.ratio)
                done.add(dirtiest.log.topic_partition)
                try:
                    reports.append(self._compact(dirtiest))
                except CompactionStoppedError:
                    break
        return reports

    def plan(self, topics: Collection[str] | None = None, *, force: bool = False) -> list[CompactionReport]:
        """Returns reports on what `run` would rewrite, the dirtiest log first. Raises StorageError."""
        choices = self._choices(lambda key: topics is None or key.topic in topics, force=force)
        return [
            _report(
                choice,
                _sizes(choice.log),
                _Progress(choice.dirt.first_dirty_offset),
                rewritten_up_to=choice.dirt.end_offset if choice.dirt.dirty_bytes else 0,
            )
            for choice in sorted(choices, key=lambda each: each.dirt.ratio, reverse=True)
        ]

    @property
    def failing(self) -> tuple[str, ...]:
        """Each log whose last compaction has failed, as `topic-partition: reason`; any thread may ask."""
        return tuple(
            f"{one.log.topic_partition}: {one.reason}"
            for one in self._failing.failures
            if self._logs.get(one.log.topic_partition) is one.log
        )

    def reconfigure(self, config: CleanerConfig) -> None:
        """Sets other limits, which hold from the next log that is compacted."""
        self._config = config

    def follow(self, old: Log, new: Log) -> None:
        """Carries the first dirty offset of a log over to its copy in another data folder; runs on a worker thread.

        Raises StorageError.
        """
        with self._offsets_lock:
            known = self._first_dirty.get(old.topic_partition)
            if known is not None and known[0] is old:
                self._first_dirty[old.topic_partition] = new, known[1]
                self._write_checkpoints(old, new)

    def stop(self) -> None:
        """Interrupts a `run` on another thread, and waits until it has ended. No later `run` compacts anything."""
        self._stopping.set()
        with self._running:
            pass

    def _choices(self, is_wanted: Callable[[TopicPartition], bool], *, force: bool) -> Iterator[_Choice]:
        """Yields the logs for which `is_wanted` holds and whose compaction is due; with `force`, also those not due."""
        now_ms = self._clock.now_ms()
        for key, log in self._logs.configured().items():
            if self._stopping.is_set() or not log.config.is_compacted or not is_wanted(key):
                continue
            truncations = log.truncations
            dirt = self._dirtiness(key, log, now_ms)
            reason = dirt.due_reason(
                min_ratio=log.config.min_cleanable_dirty_ratio,
                max_compaction_lag_ms=log.config.max_compaction_lag_ms,
                now_ms=now_ms,
            )
            if force or (reason is not None and self._failing.is_due(log)):
                yield _Choice(log, dirt, reason or ON_REQUEST, truncations)

    def _dirtiness(self, key: TopicPartition, log: Log, now_ms: int) -> Dirtiness:
        known = self._first_dirty.get(key)
        start = first_dirty_offset(
            known[1] if known is not None and known[0] is log else None,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
        )
        segments = log.closed_segments
        facts = [facts_of(segment) for segment in segments]
        end = end_of_cleanable(
            facts,
            up_to_offset=_first_unstable_offset(log),
            min_compaction_lag_ms=log.config.min_compaction_lag_ms,
            now_ms=now_ms,
        )
        oldest_ms = NO_TIMESTAMP
        if log.config.max_compaction_lag_ms < MAX_LONG:
            oldest_ms = self._oldest_timestamp([each for each in segments if start < each.next_offset <= end])
        return dirtiness(facts, first_dirty_offset=start, end_offset=end, oldest_dirty_ms=oldest_ms)

    def _oldest_timestamp(self, segments: Sequence[LogSegment]) -> int:
        """Returns the least maxTimestamp of the segments' first batches, as Kafka does; -1 without one above 0.

        A damaged first batch is skipped: the pass over it reports it.
        """
        with _held(segments) as held:
            headers = [self._fs.pread(each.fd, HEADER_BYTES, 0) for each in held if each.size_bytes >= HEADER_BYTES]
        timestamps = [_max_timestamp(header) for header in headers]
        return min((each for each in timestamps if each > 0), default=NO_TIMESTAMP)

    def _compact(self, choice: _Choice) -> CompactionReport:
        """Compacts one log, in as many passes as its keys need; returns a report, which has the error if it failed."""
        log, dirt, _, truncations = choice
        key, before = log.topic_partition, _sizes(log)
        progress = _Progress(dirt.first_dirty_offset, truncations)
        try:
            if dirt.dirty_bytes:
                last_records = _last_records(log)
                log.flush()
                self._logs.checkpoint()
                self._run_passes(log, dirt.end_offset, last_records, progress)
            self._failing.note_success(log)
        except CompactionStoppedError:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever is wrong with one log, the others are compacted
            self._note_failure(log, error, progress)
        if progress.keyless_dropped:
            logger.warning("%s: compaction dropped %d records without a key", key, progress.keyless_dropped)
        return _report(choice, before, progress, rewritten_up_to=progress.first_dirty_offset if progress.passes else 0)

    def _note_failure(self, log: Log, error: Exception, progress: _Progress) -> None:
        key = log.topic_partition
        if self._logs.get(key) is not log:
            progress.error = "the log was deleted or moved meanwhile"
            logger.info("%s: compaction has ended: %s", key, progress.error)
            return
        progress.error = str(error) or type(error).__name__
        logger.error("%s: compaction failed: %s", key, error, exc_info=is_unforeseen(error))
        if log.truncations == progress.truncations:
            self._failing.note_failure(log, progress.error)

    def _run_passes(
        self, log: Log, end_offset: int, last_records: Mapping[int, LastRecord], progress: _Progress
    ) -> None:
        throttle = Throttle(self._clock, self._stopping.wait, self._config.bytes_per_second)
        with storage_errors(log.directory):
            remove_stale(self._fs, log.directory)
            while progress.first_dirty_offset < end_offset and log.truncations == progress.truncations:
                segments = [segment for segment in log.closed_segments if segment.base_offset < end_offset]
                with _held(segments) as held:
                    are_all_here = 0 < len(held) == len(segments)
                    if not (are_all_here and self._run_pass(log, held, last_records, progress, throttle)):
                        return
                self._remember(log, progress)

    def _run_pass(
        self,
        log: Log,
        segments: Sequence[LogSegment],
        last_records: Mapping[int, LastRecord],
        progress: _Progress,
        throttle: Throttle,
    ) -> bool:
        """Makes one pass over the segments; returns false where retention or a truncation took a segment meanwhile.

        Raises RecordError for a batch that is damaged or cut off, and where offsets are known to be missing: behind a
        pass nobody would know that they are, and they would never heal.
        """
        if damage := log.damage:
            raise DamagedRangeError(*damage[0])
        start = progress.first_dirty_offset
        dirty = [segment for segment in segments if segment.next_offset > start]
        offsets = OffsetMap(self._config.dedupe_buffer_bytes, segments[-1].next_offset - start)
        aborted = log.aborted_transactions(segments[0].base_offset, segments[-1].next_offset)
        end_offset = fill_map(self._fs, dirty, start, CleanedTransactions(aborted), offsets, throttle)
        rules = CleaningRules(
            latest=offsets,
            end_offset=end_offset,
            now_ms=self._clock.now_ms(),
            delete_retention_ms=log.config.delete_retention_ms,
            last_records=last_records,
        )
        rewriter = SegmentRewriter(self._fs, log.directory, log.config, rules, CleanedTransactions(aborted))
        for group in _groups(log, [segment for segment in segments if segment.base_offset < end_offset]):
            new = rewriter.rewrite(group, throttle)
            if not log.replace_segments(group, new, truncations=progress.truncations):
                discard(self._fs, new)
                return False
        progress.add(rewriter.counts, end_offset)
        return True

    # The checkpoint.

    def _read_checkpoint(self, directory: str) -> None:
        try:
            offsets = read_offsets(self._fs, os.path.join(directory, CLEANER_OFFSET_CHECKPOINT))
        except StorageError as error:
            logger.warning("all compacted logs of a data folder count as dirty: %s", error)
            return
        for key, offset in offsets.items():
            log = self._logs.get(key)
            if log is not None and os.path.dirname(log.directory) == directory:
                self._first_dirty[key] = log, offset

    def _remember(self, log: Log, progress: _Progress) -> None:
        """Writes a log's first dirty offset to its folder's `cleaner-offset-checkpoint`, unless it was truncated.

        Entries of logs that were deleted meanwhile are removed from the file.
        """
        with self._offsets_lock:
            if log.truncations == progress.truncations:
                self._first_dirty[log.topic_partition] = log, progress.first_dirty_offset
                self._write_checkpoints(log)

    def _truncated(self, log: Log) -> None:
        """Lowers a truncated log's first dirty offset to its end, on the log's own thread. Raises StorageError."""
        with self._offsets_lock:
            known = self._first_dirty.get(log.topic_partition)
            if known is not None and known[0] is log and known[1] > log.log_end_offset:
                self._first_dirty[log.topic_partition] = log, log.log_end_offset
                self._write_checkpoints(log)

    def _forget_deleted(self) -> None:
        """Removes deleted logs from the checkpoints, so that no later log of the same name takes over an entry."""
        with self._offsets_lock:
            gone = [log for key, (log, _) in self._first_dirty.items() if self._logs.get(key) is not log]
            if gone:
                try:
                    self._write_checkpoints(*gone)
                except StorageError as error:
                    logger.warning("deleted logs stay in cleaner-offset-checkpoint until it can be written: %s", error)

    def _write_checkpoints(self, *changed: Log) -> None:
        self._first_dirty = {key: entry for key, entry in self._first_dirty.items() if self._logs.get(key) is entry[0]}
        by_dir: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
        for key, (each, first_dirty) in self._first_dirty.items():
            by_dir[os.path.dirname(each.directory)][key] = first_dirty
        for log in changed:
            directory = os.path.dirname(log.directory)
            write_offsets(self._fs, os.path.join(directory, CLEANER_OFFSET_CHECKPOINT), by_dir[directory])


@contextmanager
def _held(segments: Sequence[LogSegment]) -> Iterator[list[LogSegment]]:
    """Keeps segments' files open within the context; yields the segments up to the first that is closed already."""
    with ExitStack() as stack:
        held: list[LogSegment] = []
        for segment in segments:
            if not segment.retain():
                break
            stack.callback(segment.release)
            held.append(segment)
        yield held


def _groups(log: Log, segments: Sequence[LogSegment]) -> Iterator[Sequence[LogSegment]]:
    limits = GroupLimits(
        size_bytes=log.config.segment_bytes,
        index_entries=log.config.segment_index_bytes // TIME_INDEX_ENTRY_BYTES,
        offsets=MAX_RELATIVE_OFFSET,
    )
    sizes = [
        SegmentSizes(
            base_offset=segment.base_offset,
            next_offset=segment.next_offset,
            size_bytes=segment.size_bytes,
            index_entries=max(len(segment.offset_index), len(segment.time_index)),
        )
        for segment in segments
    ]
    start = 0
    for count in group_sizes(sizes, limits):
        yield segments[start : start + count]
        start += count


def _sizes(log: Log) -> dict[int, int]:
    """Returns the size in bytes of each closed segment, by base offset."""
    return {segment.base_offset: segment.size_bytes for segment in log.closed_segments}


def _report(
    choice: _Choice, before: Mapping[int, int], progress: _Progress, *, rewritten_up_to: int
) -> CompactionReport:
    """Returns the report on a compaction that has rewritten the segments beginning below `rewritten_up_to`.

    `before` holds the sizes of the closed segments before the compaction, by base offset.
    """
    log, dirt, reason, _ = choice
    end_offset = max(before, default=0)
    after = [segment for segment in log.closed_segments if segment.base_offset <= end_offset]
    return CompactionReport(
        topic=log.topic_partition.topic,
        partition=log.topic_partition.partition,
        passes=progress.passes,
        segments_before=len(before),
        segments_after=len(after),
        bytes_before=sum(before.values()),
        bytes_after=sum(segment.size_bytes for segment in after),
        dirty_bytes=dirt.dirty_bytes,
        records_kept=progress.kept,
        records_dropped=progress.dropped,
        keyless_dropped=progress.keyless_dropped,
        first_dirty_offset=progress.first_dirty_offset,
        by_segment=tuple(
            SegmentReport(base_offset=base_offset, size_bytes=size_bytes, reason=reason)
            for base_offset, size_bytes in before.items()
            if base_offset < rewritten_up_to
        ),
        error=progress.error,
    )


def _max_timestamp(header: bytes) -> int:
    try:
        return read_header(header).max_timestamp
    except RecordError:
        return NO_TIMESTAMP


def _last_records(log: Log) -> dict[int, LastRecord]:
    """Returns the last data offset and epoch of each known producer, by producer id.

    It is called after the segments to compact were chosen and before the flush, so that those records survive a crash.
    """
    return {key: LastRecord(entry.last_offset, entry.epoch) for key, entry in dict(log.producers.entries).items()}


def _first_unstable_offset(log: Log) -> int:
    """Returns where the first open transaction begins, or else the high watermark.

    A transaction is open until its marker is below the high watermark. The log's own thread may append meanwhile.
    """
    high_watermark = log.high_watermark
    return log.producers.first_unstable_offset(high_watermark)
