"""Moving logs between data folders while they are served (KIP-113).

    begin              the copy is known; a worker makes its folder (`settle`)
    catch_up …         rounds on a worker fill it (`LogCopy`)
    put_in_place       a worker that has the log for itself copies the rest, and swaps the two (`log_swap`)
    end                the new log goes on where the old one ended; or `give_up`
    drop               the copy is not wanted any more; a worker renames it (`settle`, `rename_dropped`)

`settle`, `put_in_place` and `rename_dropped` belong to workers, the others to the event loop's thread, where they wait
for no disk.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock

from millrace.clock import Clock
from millrace.errors import CompactionStoppedError, StorageError
from millrace.fs import FileSystem
from millrace_broker.storage.data_dirs.data_dir import DataDir
from millrace_broker.storage.data_dirs.data_dirs import DataDirs, DeletedDirs
from millrace_broker.storage.data_dirs.log_checkpoints import LogCheckpoints
from millrace_broker.storage.data_dirs.log_factory import LogFactory
from millrace_broker.storage.data_dirs.log_table import LogTable
from millrace_broker.storage.data_dirs.meta_properties import write_topic_id
from millrace_broker.storage.filenames import TopicPartition
from millrace_broker.storage.log.log import Log
from millrace_broker.storage.moves.log_copy import LogCopy
from millrace_broker.storage.moves.log_swap import drop_copy, swap
from millrace_broker.storage.segments.segment_sequence import SegmentSequence

logger = logging.getLogger(__name__)


class LogMoves:
    """The moves of one broker's logs, at most one for each log."""

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
        """Returns the folders to which logs were being moved when the broker ended."""
        return {each: data_dir.path for data_dir in self._dirs.all for each in data_dir.interrupted_moves}

    def begin(self, topic_partition: TopicPartition, path: str) -> LogCopy:
        """Begins a copy of a log whose topic is known, in another data folder.

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

        Blocks meanwhile. After a StorageError the log is served where it was, or offline with its folder.
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
        """Has the moved log go on where the old one ended."""
        del self._copies[old.topic_partition]
        self._dirs.of_log(old.directory).log_count -= 1
        moved.take_over(old)

    def drop(self, topic_partition: TopicPartition) -> LogCopy | None:
        """Ends a move, if there is one, and returns its copy; the files go by `rename_dropped` and `remove_deleted`.

        Raises StorageError where the copy is just being put in the log's place.
        """
        copy = self._copies.get(topic_partition)
        if copy is not None:
            if copy.is_in_last_step:
                raise StorageError(f"{topic_partition} is just being put in place in {copy.parent}; try again")
            self.give_up(copy)
        return copy

    def give_up(self, copy: LogCopy) -> None:
        """Ends a move that has failed, or is not wanted any more; the log stays where it is."""
        copy.stop()
        del self._copies[copy.topic_partition]
        self._dirs.by_path(copy.parent).log_count -= 1
        log = self._table.logs[copy.topic_partition]
        self._dropped.append((copy, log.config.file_delete_delay_ms))

    @property
    def is_settled(self) -> bool:
        """Whether the disk has what was begun and what was dropped, so that a start goes on with it or without."""
        return not self._dropped and all(copy.has_folder for copy in self._copies.values())

    def settle(self) -> None:
        """Renames what was dropped, and makes the folders of what was begun; what fails is the copy's `refusal`."""
        self.rename_dropped()
        for copy in tuple(self._copies.values()):
            with suppress(StorageError, CompactionStoppedError):
                copy.make_folder()

    def rename_dropped(self) -> None:
        """Renames the copies that were dropped, so that their files go; what fails is left for the next start.

        This comes before a log is deleted: a whole copy would be taken for it at a start.
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
        """Makes a copy whole: all that the log holds, its topic's id, and the offsets in the folder's checkpoints."""
        topic_id = self._table.topic_ids[log.topic_partition]
        assert topic_id is not None
        copy.finish(log, segments)
        self._factory.open_copy(log, copy.directory, target).abandon()
        write_topic_id(self._fs, copy.directory, topic_id)
        self._checkpoints.write_with_arriving(target, log.topic_partition)
