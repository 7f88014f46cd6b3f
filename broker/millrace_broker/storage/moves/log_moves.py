"""Moving logs between data folders while they are served (KIP-113).

`begin` makes a copy's folder, rounds of `LogCopy.catch_up` fill it, `finish` puts the copy in the log's place
(`log_swap` says in which steps), `drop` ends a move that is not wanted any more.

All of it belongs to the event loop's thread, but for `LogCopy.catch_up`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from millrace.clock import Clock
from millrace.errors import StorageError
from millrace.fs import FileSystem
from millrace_broker.storage.data_dirs.data_dir import DataDir
from millrace_broker.storage.data_dirs.data_dirs import DataDirs
from millrace_broker.storage.data_dirs.deleted_dirs import DeletedDirs
from millrace_broker.storage.data_dirs.log_checkpoints import LogCheckpoints
from millrace_broker.storage.data_dirs.log_factory import LogFactory
from millrace_broker.storage.data_dirs.log_table import LogTable
from millrace_broker.storage.data_dirs.meta_properties import write_topic_id
from millrace_broker.storage.filenames import TopicPartition
from millrace_broker.storage.log.log import Log
from millrace_broker.storage.moves.log_copy import LogCopy
from millrace_broker.storage.moves.log_swap import drop_copy, swap
from millrace_broker.storage.segments.segment_sequence import SegmentSequence


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

    def copies(self) -> Mapping[TopicPartition, LogCopy]:
        """Returns the copies of logs that are being moved; the mapping changes as moves begin and end."""
        return self._copies

    def interrupted(self) -> dict[TopicPartition, str]:
        """Returns the folders to which logs were being moved when the broker ended."""
        return {each: data_dir.path for data_dir in self._dirs.all for each in data_dir.interrupted_moves}

    def begin(self, topic_partition: TopicPartition, path: str) -> LogCopy:
        """Makes the folder for a copy of a log whose topic is known, in another data folder.

        StorageError, also where any folder is offline, since another copy may be there (as Kafka).
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

    def finish(self, topic_partition: TopicPartition) -> Log:
        """Copies what is left, puts the copy in the log's place, and returns the log that is opened there.

        Blocks meanwhile; the old log is closed. StorageError, and the move is over: the log is served where it was, or
        offline with its folder.
        """
        log, copy = self._table.logs[topic_partition], self._copies[topic_partition]
        source, target = self._dirs.of_log(log.directory), self._dirs.by_path(copy.parent)

        def take(segments: SegmentSequence) -> None:
            try:
                self._complete(log, copy, target, segments)
            except StorageError:
                self.drop(topic_partition)
                raise
            del self._copies[topic_partition]
            renamed = swap(self._fs, topic_partition, source, target, copy.directory)
            self._deleted.add(renamed, log.config.file_delete_delay_ms)

        with self._checkpoints.held(source, target):
            log.hand_over(take)
            moved = self._factory.open_copy(log, os.path.join(target.path, str(topic_partition)), target)
            moved.take_over(log)
            self._table.replace(put={topic_partition: moved})
            source.log_count -= 1
        return moved

    def drop(self, topic_partition: TopicPartition) -> None:
        """Ends a move, if there is one; its files go by `remove_deleted`. StorageError."""
        copy = self._copies.pop(topic_partition, None)
        if copy is not None:
            copy.stop()
            target = self._dirs.by_path(copy.parent)
            target.log_count -= 1
            renamed = drop_copy(self._fs, topic_partition, target, copy.directory)
            self._deleted.add(renamed, self._table.logs[topic_partition].config.file_delete_delay_ms)

    def _complete(self, log: Log, copy: LogCopy, target: DataDir, segments: SegmentSequence) -> None:
        """Makes a copy whole: all that the log holds, its topic's id, and the offsets in the folder's checkpoints."""
        topic_id = self._table.topic_ids[log.topic_partition]
        assert topic_id is not None
        copy.finish(log, segments)
        self._factory.open_copy(log, copy.directory, target).abandon()
        write_topic_id(self._fs, copy.directory, topic_id)
        self._checkpoints.write_with_arriving(target, log.topic_partition)
