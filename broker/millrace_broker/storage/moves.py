"""Moving logs between data folders while they are served (KIP-113).

    begin              the copy is known; a worker makes its folder (`settle`)
    catch_up …         rounds on a worker fill it (`LogCopy`)
    put_in_place       a worker that has the log for itself copies the rest, and swaps the two (`swap`)
    end                the new log goes on where the old one ended; or `give_up`
    drop               the copy is not wanted any more; a worker renames it (`settle`, `rename_dropped`)

`settle`, `put_in_place` and `rename_dropped` belong to workers, the others to the event loop's thread, where they wait
for no disk.

The copy of a log in another data folder is made while the log is served; it is Kafka's future replica:

    <topic>-<partition>.<32 hex>-future/
      closed segments             .log .index .timeindex .txnindex .snapshot, whole and synced
      the active segment's .log   up to the end of the last round
      leader-epoch-checkpoint …   and the other files that say something of the whole log, at the end
      partition.metadata          written last: with it the copy holds all that the log held

Rounds of `catch_up` copy what is there on a worker thread, byte for byte, until `rest_bytes` is small. `finish` copies
the rest while nothing is appended. The `.log` of the copy gets the modification time of the log's, by which segments
without timestamps expire. Closed segments never change, so files are opened by their paths. Retention or compaction may
take a segment out of the log, and another may get its name: the next round drops from the copy what is no longer in the
log.

A failed write takes the copy's data folder offline, and a full disk only ends the move; the log itself stays as it is.

The steps of a move, and which of the two copies counts after a crash:

    step                                                        what a crash behind it leaves
    1  copy everything to B/<tp>.<hex>-future, synced           the log in A; the next start drops the copy, and the
                                                                move starts again
    2  write partition.metadata there: the copy is whole        the same
    3  write B's checkpoints, with the log's offsets            the same
    4  rename A/<tp> -> A/<tp>.<hex>-delete                     the log in A, or else the whole copy
    5  sync A: the decision                                     the copy: the start does 6
    6  rename B/<tp>.<hex>-future -> B/<tp>                     the log in B
    7  sync B

Between 4 and 6 no folder has the partition's name, and nothing is appended. So one log counts at any time: the one that
has the name, and where none has, the whole copy. Kafka renames in the other order; a crash in between leaves both under
the name, and its next start refuses that.

A copy is dropped by renaming it to `-delete`, synced, so that no half-removed copy is taken for a whole one. A copy is
left as it is where a folder that is offline and can't be listed may hold the log.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Lock

from millrace.clock import Clock
from millrace.config import MAX_LONG
from millrace.errors import CompactionStoppedError, StorageError
from millrace.fs import FileSystem, read_file
from millrace_broker.storage.data_dirs.data_dir import DataDir
from millrace_broker.storage.data_dirs.data_dirs import DataDirs, DeletedDirs, LogTable
from millrace_broker.storage.data_dirs.log_checkpoints import LogCheckpoints
from millrace_broker.storage.data_dirs.log_factory import LogFactory
from millrace_broker.storage.data_dirs.meta_properties import write_topic_id
from millrace_broker.storage.failures import DirHealth, is_disk_full, storage_error, storage_errors
from millrace_broker.storage.filenames import (
    DAMAGED_RANGES,
    DELETED_DIR_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    OFFSET_GAPS,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    REPAIRED_RANGES,
    SEGMENT_SUFFIXES,
    TopicPartition,
    future_dir_name,
    segment_file_name,
    unique_dir_name,
)
from millrace_broker.storage.log.log import Log
from millrace_broker.storage.segments.segment import LogSegment
from millrace_broker.storage.segments.segment_sequence import SegmentSequence
from millrace_broker.storage.throttle import Throttle

logger = logging.getLogger(__name__)


CHUNK_BYTES = 256 << 10
ROUND_BYTES = 64 << 20  # or what a second allows, as the next round may have another rate
MIN_ROUND_BYTES = 4096
BESIDE_SEGMENTS = (LEADER_EPOCH_CHECKPOINT, DAMAGED_RANGES, REPAIRED_RANGES, OFFSET_GAPS)

Pay = Callable[[int], object]


def swap(fs: FileSystem, topic_partition: TopicPartition, source: DataDir, target: DataDir, copy: str) -> str:
    """Renames the complete copy into the log's place, steps 4 to 7 of a move (see the module).

    Returns the new path of the old folder, which is to be removed.

    After StorageError the log is where it was: in use, or offline with its folder if what its disk holds is unknown.
    Where only step 7 fails, the target is offline, with the log in it.
    """
    current = os.path.join(source.path, str(topic_partition))
    deleted = os.path.join(source.path, unique_dir_name(topic_partition, uuid.uuid4(), DELETED_DIR_SUFFIX))
    with storage_errors(current):
        fs.rename(current, deleted)
    with source.health.guard(source.path):
        fs.fsync_dir(source.path)
    try:
        fs.rename(copy, os.path.join(target.path, str(topic_partition)))
    except OSError as error:
        target.health.fail(f"{copy}: {error.strerror or error}")
        with source.health.guard(source.path):
            fs.rename(deleted, current)
            fs.fsync_dir(source.path)
        raise storage_error(copy, error) from error
    try:
        fs.fsync_dir(target.path)
    except OSError as error:
        target.health.fail(f"{target.path}: {error.strerror or error}")
    return deleted


def drop_copy(fs: FileSystem, topic_partition: TopicPartition, data_dir: DataDir, copy: str) -> str:
    """Renames a copy's folder to `…-delete` and returns its new path. A StorageError takes the data folder offline."""
    deleted = os.path.join(data_dir.path, unique_dir_name(topic_partition, uuid.uuid4(), DELETED_DIR_SUFFIX))
    with data_dir.health.guard(copy):
        fs.rename(copy, deleted)  # or else the next start drops it
    return deleted


def settle_moves(fs: FileSystem, data_dirs: Sequence[DataDir]) -> None:
    """Decides what becomes of copies that a start finds: a complete copy whose log is nowhere becomes the log.

    It comes before logs are opened. Other copies are dropped, unless the log may be in an offline folder. Where the log
    is in another folder, `interrupted_moves` gets the partition, so that its move starts again. A folder that fails
    goes offline.
    """
    for data_dir in data_dirs:
        if data_dir.is_online:
            try:
                for topic_partition, path in list(data_dir.copies()):
                    _settle(fs, data_dirs, data_dir, topic_partition, path)
            except StorageError as error:
                data_dir.take_offline(str(error))


def _settle(
    fs: FileSystem, data_dirs: Sequence[DataDir], data_dir: DataDir, topic_partition: TopicPartition, copy: str
) -> None:
    if any(topic_partition in dict(each.partition_dirs()) for each in data_dirs if each.is_online):
        drop_copy(fs, topic_partition, data_dir, copy)
        data_dir.interrupted_moves.append(topic_partition)
    elif any(each.may_hold_unopened(topic_partition) for each in data_dirs):
        logger.warning("%s is left as it is: the log may be in a data folder that is offline", copy)
    elif fs.exists(os.path.join(copy, PARTITION_METADATA)):
        with data_dir.health.guard(copy):
            fs.rename(copy, os.path.join(data_dir.path, str(topic_partition)))  # or else the next start does
        logger.info("%s: the move of this log here was interrupted, and is now complete", copy)
    else:
        drop_copy(fs, topic_partition, data_dir, copy)


@dataclass(slots=True)
class _CopiedSegment:
    size_bytes: int = 0
    is_whole: bool = False


class LogCopy:
    """The copy of one log in another data folder, up to `end_offset`; while far behind it grows by whole segments."""

    def __init__(
        self, fs: FileSystem, clock: Clock, topic_partition: TopicPartition, parent: str, health: DirHealth
    ) -> None:
        """Takes the path of the data folder (`parent`), and touches no disk: the first round makes its folder."""
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
        """The bytes of batches that were copied so far."""
        return sum(copied.size_bytes for copied in tuple(self._copied.values()))

    def rest_bytes(self, segments: SegmentSequence) -> int:
        """Returns how many bytes of the log `finish` would have to copy."""
        nothing = _CopiedSegment()
        return sum(segment.size_bytes - self._copied.get(segment, nothing).size_bytes for segment in segments)

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Makes `catch_up`, on its own thread, raise CompactionStoppedError soon: the copy is not wanted any more."""
        self._stopping.set()

    def catch_up(self, log: Log, bytes_per_second: float) -> None:
        """Copies and syncs one round, at most a second's worth at this rate and `ROUND_BYTES`; runs on a worker thread.

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
        """Copies and syncs the rest of a log that takes no appends (`Log.hand_over`); raises StorageError."""
        self.make_folder()
        self._drop_all_but(segments)
        with storage_errors(log.directory):
            for segment in segments:
                if segment is not segments.active and not segment.is_sealed:
                    raise StorageError(f"{log.directory}: the disk has no room for the indexes")
                self._copy(segment, MAX_LONG, lambda _: None)  # at any rate
            self._copy_others(segments.active)
            for path in (os.path.join(log.directory, name) for name in BESIDE_SEGMENTS):
                if self._fs.exists(path):
                    self._copy_small(path)
        with self._writing(self.directory):
            self._fs.fsync_dir(self.directory)

    def make_folder(self) -> None:
        """Makes the copy's folder, whose name is synced with the data folder's checkpoints, before the swap.

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
        """Copies up to `limit` bytes of a segment, and its other files once it is complete; returns how many.

        `pay` is called with the size of each portion, and may block to slow the copying down.
        """
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
        """Opens the copy's file at `path` for writing, and syncs it at the end of the context."""
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
        """Raises StorageError for an OSError in the copy's folder, or CompactionStoppedError if the copy was stopped.

        The folder of a stopped copy may be gone already.
        """
        try:
            yield
        except OSError as error:
            if self._stopping.is_set():
                raise CompactionStoppedError(f"{self.directory}: the move was dropped") from error
            if not is_disk_full(error):
                self._health.fail(f"{path}: {error.strerror or error}")
            raise storage_error(path, error) from error


class LogMoves:
    """The moves of one broker's logs between its data folders, at most one for each log."""

    def __init__(  # noqa: PLR0917 -- the parts of a log manager, wired once
        self,
        fs: FileSystem,
        clock: Clock,
        factory: LogFactory,
        dirs: DataDirs,
        table: LogTable,
        checkpoints: LogCheckpoints,
        deleted: DeletedDirs,
    ) -> None:
        self._fs = fs
        self._clock = clock
        self._factory = factory
        self._dirs = dirs
        self._table = table
        self._checkpoints = checkpoints
        self._deleted = deleted
        self._copies: dict[TopicPartition, LogCopy] = {}
        self._dropped: deque[tuple[LogCopy, int]] = deque()
        self._dropped_lock = Lock()

    def copies(self) -> Mapping[TopicPartition, LogCopy]:
        """Returns the copies of logs that are being moved; the mapping changes as moves begin and end."""
        return self._copies

    def interrupted(self) -> dict[TopicPartition, str]:
        """Returns, by partition, the data folders to which logs were being moved when the broker last ended."""
        return {each: data_dir.path for data_dir in self._dirs.all for each in data_dir.interrupted_moves}

    def begin(self, topic_partition: TopicPartition, path: str) -> LogCopy:
        """Begins to move a log to the data folder `path`; returns the copy, which `catch_up` has to fill.

        Raises StorageError, also where any folder is offline, since another copy may be there.
        """
        assert topic_partition in self._table.configured
        for data_dir in self._dirs.all:
            if not data_dir.is_online:
                raise StorageError(f"{data_dir.path}: offline, and no log is moved before it is online again")
        target = self._dirs.by_path(path)
        copy = LogCopy(self._fs, self._clock, topic_partition, target.path, target.health)
        self._copies[topic_partition] = copy
        target.log_count += 1
        return copy

    def put_in_place(self, copy: LogCopy) -> Log:
        """Copies what is left, puts the copy in the log's place, and returns the log that is opened there.

        It blocks meanwhile. After a StorageError the log is where it was, in use or offline with its folder.
        """
        topic_partition = copy.topic_partition
        log = self._table.logs[topic_partition]
        source, target = self._dirs.of_log(log.directory), self._dirs.by_path(copy.parent)

        def take(segments: SegmentSequence) -> None:
            self._complete(log, copy, target, segments)
            renamed = swap(self._fs, topic_partition, source, target, copy.directory)
            self._deleted.add(renamed, log.config.file_delete_delay_ms)

        with self._checkpoints.held(source, target):
            log.hand_over(take)
            try:
                moved = self._factory.open_copy(log, os.path.join(target.path, str(topic_partition)), target)
            except StorageError:
                log.abandon()  # its folder is about to be removed
                raise
            self._table.replace(put={topic_partition: moved})
        return moved

    def end(self, old: Log, moved: Log) -> None:
        """Ends a move that succeeded: the moved log takes over the old one's state that isn't in files."""
        del self._copies[old.topic_partition]
        self._dirs.of_log(old.directory).log_count -= 1
        moved.take_over(old)

    def drop(self, topic_partition: TopicPartition) -> LogCopy | None:
        """Gives up a partition's move and returns the copy, None without one; `rename_dropped` frees its files.

        Raises StorageError where the copy is just being put in the log's place.
        """
        copy = self._copies.get(topic_partition)
        if copy is not None:
            if copy.is_in_last_step:
                raise StorageError(f"{topic_partition} is just being put in place in {copy.parent}; try again")
            self.give_up(copy)
        return copy

    def give_up(self, copy: LogCopy) -> None:
        """Ends a move that has failed or is not wanted any more; the log stays where it is."""
        copy.stop()
        del self._copies[copy.topic_partition]
        self._dirs.by_path(copy.parent).log_count -= 1
        log = self._table.logs[copy.topic_partition]
        self._dropped.append((copy, log.config.file_delete_delay_ms))

    @property
    def is_settled(self) -> bool:
        """Whether every copy has its folder and those of dropped copies are renamed: the next start goes by names."""
        return not self._dropped and all(copy.has_folder for copy in self._copies.values())

    def settle(self) -> None:
        """Renames the folders of dropped copies, makes those of new ones; a copy's `refusal` gets its error."""
        self.rename_dropped()
        for copy in tuple(self._copies.values()):
            with suppress(StorageError, CompactionStoppedError):
                copy.make_folder()

    def rename_dropped(self) -> None:
        """Renames the folders of dropped copies, so that they are removed; what fails is left for the next start.

        This comes before a log is deleted: a start would take a complete copy for it.
        """
        with self._dropped_lock:
            while self._dropped:
                copy, delay_ms = self._dropped.popleft()
                try:
                    if self._fs.exists(copy.directory):
                        target = self._dirs.by_path(copy.parent)
                        renamed = drop_copy(self._fs, copy.topic_partition, target, copy.directory)
                        self._deleted.add(renamed, delay_ms)
                except StorageError as error:
                    copy.refusal = error
                    logger.exception("the copy of %s is left for the next start", copy.topic_partition)

    def _complete(self, log: Log, copy: LogCopy, target: DataDir, segments: SegmentSequence) -> None:
        """Copies what is left of the log, its topic id, and its offsets in the data folder's checkpoints."""
        topic_id = self._table.topic_ids[log.topic_partition]
        assert topic_id is not None
        copy.finish(log, segments)
        self._factory.open_copy(log, copy.directory, target).abandon()
        write_topic_id(self._fs, copy.directory, topic_id)
        self._checkpoints.write_with_arriving(target, log.topic_partition)
