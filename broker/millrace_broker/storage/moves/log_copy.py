"""The copy of a log in another data folder, made while the log is served: Kafka's future replica (KIP-113).

    <topic>-<partition>.<32 hex>-future/
      closed segments             .log .index .timeindex .txnindex .snapshot, whole and synced
      the active segment's .log   up to the end of the last round
      leader-epoch-checkpoint …   and the other files that say something of the whole log, at the end
      partition.metadata          written last: with it the copy holds all that the log held (`log_swap`)

Rounds of `catch_up` copy what is there on a worker thread, byte for byte, until `rest_bytes` is small. `finish` copies
the rest while nothing is appended. The `.log` of the copy gets the modification time of the
log's, by which segments without timestamps expire. Closed segments never change, so files are opened by their paths.
Retention or compaction may take a segment out of the log, and another may get its name: the next round drops from the
copy what is no longer in the log.

A failed write takes the copy's data folder offline, and a full disk only ends the move; the log itself stays as it is.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event

from millrace.clock import Clock
from millrace.config import MAX_LONG
from millrace.errors import CompactionStoppedError, StorageError
from millrace.fs import FileSystem, read_file
from millrace_broker.storage.failures import DirHealth, is_disk_full, storage_error, storage_errors
from millrace_broker.storage.filenames import (
    DAMAGED_RANGES,
    LEADER_EPOCH_CHECKPOINT,
    OFFSET_GAPS,
    PRODUCER_SNAPSHOT_SUFFIX,
    REPAIRED_RANGES,
    SEGMENT_SUFFIXES,
    TopicPartition,
    future_dir_name,
    segment_file_name,
)
from millrace_broker.storage.log.log import Log
from millrace_broker.storage.segments.segment import LogSegment
from millrace_broker.storage.segments.segment_sequence import SegmentSequence
from millrace_broker.storage.throttle import Throttle

CHUNK_BYTES = 256 << 10
ROUND_BYTES = 64 << 20  # or what a second allows, as the next round may have another rate
MIN_ROUND_BYTES = 4096
BESIDE_SEGMENTS = (LEADER_EPOCH_CHECKPOINT, DAMAGED_RANGES, REPAIRED_RANGES, OFFSET_GAPS)

Pay = Callable[[int], object]


@dataclass(slots=True)
class _CopiedSegment:
    size_bytes: int = 0
    is_whole: bool = False


class LogCopy:
    """The copy of one log; it holds the log up to `end_offset`, by whole segments while it is far behind."""

    def __init__(
        self, fs: FileSystem, clock: Clock, topic_partition: TopicPartition, parent: str, health: DirHealth
    ) -> None:
        """Takes the data folder, and touches no disk: the first round makes the copy's own folder."""
        self.topic_partition = topic_partition
        self.parent = parent
        self.directory = os.path.join(parent, future_dir_name(topic_partition, uuid.uuid4()))
        self.end_offset = 0
        self._fs = fs
        self._clock = clock
        self._health = health
        self._copied: dict[LogSegment, _CopiedSegment] = {}
        self._stopping = Event()
        self.has_folder = False
        """Whether the folder was made, so that a start finds the move that was interrupted."""
        self.refusal: StorageError | None = None
        """Why the disk did not take the folder of the copy, or did not let it go."""
        self.is_in_last_step = False
        """Whether it is being put in the log's place, and can't be dropped any more."""

    @property
    def size_bytes(self) -> int:
        """The size of all batches that were copied."""
        return sum(copied.size_bytes for copied in tuple(self._copied.values()))

    def rest_bytes(self, segments: SegmentSequence) -> int:
        """Returns how many bytes of the log `finish` would have to copy."""
        nothing = _CopiedSegment()
        return sum(segment.size_bytes - self._copied.get(segment, nothing).size_bytes for segment in segments)

    @property
    def is_stopped(self) -> bool:
        """Whether the copy is not wanted any more."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Lets `catch_up`, on its own thread, end soon with CompactionStoppedError: the copy is not wanted any more."""
        self._stopping.set()

    def catch_up(self, log: Log, bytes_per_second: float) -> None:
        """Copies and syncs some of what the log holds, for a second if the rate is low, on a worker thread.

        After StorageError and CompactionStoppedError the copy is of no use.
        """
        throttle = Throttle(self._clock, self._stopping.wait, bytes_per_second)
        throttle.take(0)
        self.make_folder()
        log.flush()  # this completes the files of closed segments
        segments, limit = log.segments, int(min(max(bytes_per_second, MIN_ROUND_BYTES), ROUND_BYTES))
        self._drop_all_but(segments)
        with storage_errors(log.directory):
            for segment in segments:
                try:
                    limit -= self._copy(segment, limit, throttle.take)
                except FileNotFoundError:  # the segment left the log meanwhile; if not, `finish` meets the error again
                    continue
                if limit <= 0:
                    break

    def finish(self, log: Log, segments: SegmentSequence) -> None:
        """Copies and syncs all that is left of a log that is handed over (`Log.hand_over`); raises StorageError."""
        self.make_folder()
        self._drop_all_but(segments)
        with storage_errors(log.directory):
            for segment in segments:
                if segment is not segments.active and not segment.is_sealed:
                    raise StorageError(f"{log.directory}: the disk has no room for the indexes")
                self._copy(segment, MAX_LONG, _free)
            self._copy_others(segments.active)
            for path in (os.path.join(log.directory, name) for name in BESIDE_SEGMENTS):
                if self._fs.exists(path):
                    self._copy_small(path)
        with self._writing(self.directory):
            self._fs.fsync_dir(self.directory)

    def make_folder(self) -> None:
        """Makes the folder, whose name is synced with this data folder's checkpoints, before the swap.

        Raises StorageError, or CompactionStoppedError.
        """
        if self.has_folder:
            return
        try:
            with self._writing(self.directory):
                self._fs.mkdir(self.directory)
        except StorageError as error:
            self.refusal = error
            raise
        self.has_folder = True

    def _copy(self, segment: LogSegment, limit: int, pay: Pay) -> int:
        """Copies up to `limit` bytes of a segment, with its other files where it is complete; returns how many."""
        copied = self._copied.setdefault(segment, _CopiedSegment())
        if copied.is_whole:
            return 0
        # Read in this order, so that whatever is below the end offset is within the size.
        is_sealed, end_offset, size_bytes = segment.is_sealed, segment.next_offset, segment.size_bytes
        start = copied.size_bytes
        self._copy_batches(segment.path, copied, min(size_bytes, start + limit), pay)
        if copied.size_bytes == size_bytes:
            if is_sealed:
                self._copy_others(segment)
                copied.is_whole = True
            self.end_offset = end_offset
        return copied.size_bytes - start

    def _copy_batches(self, path: str, copied: _CopiedSegment, end: int, pay: Pay) -> None:
        source = self._fs.open(path)
        try:
            with self._written(path) as target:
                for position in range(copied.size_bytes, end, CHUNK_BYTES):
                    data = self._fs.pread(source, min(CHUNK_BYTES, end - position), position)
                    with self._writing(self._place_of(path)):
                        self._fs.pwritev(target, [data], position)
                    pay(len(data))
                    copied.size_bytes = position + len(data)
                modified_ms = self._fs.modified_ms(source)
                with self._writing(self._place_of(path)):
                    self._fs.set_modified_ms(target, modified_ms)
        finally:
            self._fs.close(source)

    def _copy_others(self, segment: LogSegment) -> None:
        snapshot = segment_file_name(segment.base_offset, PRODUCER_SNAPSHOT_SUFFIX)
        paths = [*segment.file_paths(), os.path.join(os.path.dirname(segment.path), snapshot)]
        for path in paths:
            if path != segment.path and self._fs.exists(path):
                self._copy_small(path)

    def _copy_small(self, path: str) -> None:
        content = read_file(self._fs, path)
        with self._written(path) as target, self._writing(self._place_of(path)):
            self._fs.truncate(target, 0)
            self._fs.pwritev(target, [content], 0)

    def _drop_all_but(self, segments: SegmentSequence) -> None:
        for segment in self._copied.keys() - set(segments):
            for suffix in (*SEGMENT_SUFFIXES, PRODUCER_SNAPSHOT_SUFFIX):
                path = os.path.join(self.directory, segment_file_name(segment.base_offset, suffix))
                with self._writing(path):
                    if self._fs.exists(path):
                        self._fs.unlink(path)
            del self._copied[segment]

    def _place_of(self, path: str) -> str:
        return os.path.join(self.directory, os.path.basename(path))

    @contextmanager
    def _written(self, path: str) -> Iterator[int]:
        """Opens the copy of a file for writing, and syncs it at the end."""
        target = self._place_of(path)
        with self._writing(target):
            fd = self._fs.open(target, create=True)
        try:
            yield fd
            with self._writing(target):
                self._fs.fsync(fd)
        finally:
            self._fs.close(fd)

    @contextmanager
    def _writing(self, path: str) -> Iterator[None]:
        """Raises StorageError for an OSError in the copy's folder; once the copy was stopped, CompactionStoppedError.

        The folder of a copy that was stopped may be gone.
        """
        try:
            yield
        except OSError as error:
            if self._stopping.is_set():
                raise CompactionStoppedError(f"{self.directory}: the move was dropped") from error
            if not is_disk_full(error):
                self._health.fail(f"{path}: {error.strerror or error}")
            raise storage_error(path, error) from error


def _free(size_bytes: int) -> None:
    """Takes nothing: the last bytes are copied at any rate."""
