"""What the next start must know of logs: recovery points, log start offsets, high watermarks, by data folder.

Any thread may write them, those of one folder one at a time: the folder's `checkpoints_lock` is held meanwhile, and
also while a log of it is moved, made or cut. Several locks are taken in the order of the folders.

A log start offset is written once the log is synced up to there. So one above the end of a log that is found at a start
is wrong, and deletes nothing. All logs have one, and not only those that start inside a segment, as in Apache Kafka: so
the next start sees whether the first segments are still there. Who deletes first segments leaves the `.log` of each as
`.log.deleted`, which tells that they are not lost (`lost_segments`). Such a name stays until the log start offset on
the disk lies above what it stands for (`take_deleted`).

    step                                                        what a crash behind it leaves, with 0 as known start
    1  rename 0.log -> 0.log.deleted, synced                    the log begins at 10: the name says why
    2  write the checkpoint: 10                                 the same, and the name is not needed any more
    3  once the delay is over, remove 0.log.deleted             the same

Step 2 comes right behind step 1, behind a truncation, and at a start that finds such names: Apache Kafka and former
releases remove them at a start. Without room for it the file is emptied when the delay is over, and its name stays.
Before a truncation lowers the checkpoint below the first segment, an empty file with such a name is made there. Files
of Apache Kafka and of former releases, which keep no such names, have no CRC-32C (`checkpoints`): what begins later
than they say is not lost. So it is in a backup.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from millrace.config import MAX_LONG
from millrace.errors import StorageError
from millrace_broker.storage.data_dirs.data_dir import DataDir
from millrace_broker.storage.data_dirs.data_dirs import DataDirs, LogTable
from millrace_broker.storage.filenames import TopicPartition
from millrace_broker.storage.log.log import Log

logger = logging.getLogger(__name__)


class LogCheckpoints:
    """Writes the checkpoints (files with an offset for each log) of every data folder that is online."""

    def __init__(self, dirs: DataDirs, table: LogTable) -> None:
        self._dirs = dirs
        self._table = table

    def high_watermark(self, topic_partition: TopicPartition) -> int:
        """Returns a log's high watermark by the last checkpoint, or the nearest offset to it that the log has."""
        log = self._table.logs[topic_partition]
        known = self._dirs.of_log(log.directory).high_watermarks.get(topic_partition, 0)
        return min(max(known, log.log_start_offset), log.log_end_offset)

    @contextmanager
    def held(self, *data_dirs: DataDir) -> Iterator[None]:
        """Holds the folders' `checkpoints_lock`s within the context: nobody else writes their checkpoints."""
        with ExitStack() as locks:
            for data_dir in self._dirs.all:
                if data_dir in data_dirs:
                    locks.enter_context(data_dir.checkpoints_lock)
            yield

    def write_all(self, data_dirs: Collection[DataDir]) -> None:
        """Writes recovery points and log start offsets. Raises StorageError after all folders were tried."""
        self.each_online_dir(self.write, data_dirs)

    def write(self, data_dir: DataDir) -> None:
        """Writes recovery points and log start offsets of a folder's logs. The caller holds its `checkpoints_lock`.

        Raises StorageError.
        """
        self._write(data_dir, self._table.in_dir(data_dir))

    def raise_starts(self, data_dir: DataDir) -> None:
        """Writes the checkpoints of a folder where a log begins above what they say: only names tell that by now.

        Raises StorageError.
        """
        with data_dir.checkpoints_lock:
            self._raise_starts(data_dir)

    def _raise_starts(self, data_dir: DataDir) -> None:
        logs = self._table.in_dir(data_dir).items()
        is_above = any(_begins_above(log, data_dir.known_start(key)) for key, log in logs)
        if is_above and data_dir.is_held and data_dir.is_online:
            self.write(data_dir)

    def raise_starts_if_possible(self, data_dirs: Collection[DataDir]) -> None:
        """Does `raise_starts` for each folder; the caller holds their locks, or nobody else is there yet.

        Where it fails, as on a full disk, the names tell where logs begin until it is tried again.
        """
        for data_dir in data_dirs:
            try:
                self._raise_starts(data_dir)
            except StorageError as error:
                logger.warning("%s: the log start offsets are not written yet: %s", data_dir.path, error)

    def take_deleted(self, data_dir: DataDir) -> list[tuple[Log, list[str]]]:
        """Takes the files that are due from the lists of a folder's logs, for `DeletedFiles.remove`.

        Where the next start would miss them, names stay in the lists, as signs that the segments are not lost.
        """
        with data_dir.checkpoints_lock:
            return [
                (log, log.deleted.take_due(keeps_names=_begins_above(log, data_dir.known_start(key))))
                for key, log in self._table.in_dir(data_dir).items()
                if log.deleted.are_due
            ]

    def write_with_arriving(self, data_dir: DataDir, topic_partition: TopicPartition) -> None:
        """Writes the checkpoints of the folder that a log is about to move to, the log's offsets included.

        The caller holds the folder's `checkpoints_lock`. Raises StorageError.
        """
        self._write(data_dir, {**self._table.in_dir(data_dir), topic_partition: self._table.logs[topic_partition]})
        watermark = self.high_watermark(topic_partition)
        data_dir.write_high_watermarks({**data_dir.high_watermarks, topic_partition: watermark})

    @contextmanager
    def lowered(self, offsets: Mapping[TopicPartition, int]) -> Iterator[None]:
        """Lowers the entries of logs in their folders' checkpoints to `offsets`, at which the logs are about to be cut.

        Raises StorageError. Where a log begins above its offset, the checkpoints say so when the context ends.

        No other checkpoint is written within the context. After a crash, recovery never cuts what lies below a
        checkpoint's recovery point, even batches appended after the truncation, and it drops what lies below a log
        start offset.
        """
        data_dirs = {id(one): one for one in map(self._dir_of, offsets)}.values()
        with self.held(*data_dirs):
            for data_dir in data_dirs:
                self._lower(data_dir, {key: offset for key, offset in offsets.items() if self._dir_of(key) is data_dir})
            yield
            self.raise_starts_if_possible(data_dirs)

    def _dir_of(self, topic_partition: TopicPartition) -> DataDir:
        return self._dirs.of_log(self._table.logs[topic_partition].directory)

    def _lower(self, data_dir: DataDir, offsets: Mapping[TopicPartition, int]) -> None:
        logs, known = self._table.in_dir(data_dir), data_dir.log_start_offsets
        for key, offset in offsets.items():
            if _begins_above(logs[key], offset):
                logs[key].deleted.leave_sign(offset)
        starts = {
            key: log.log_start_offset if log.log_start_offset <= log.recovery_point else known.get(key)
            for key, log in logs.items()
        }
        data_dir.write_checkpoints(
            {key: min(offset, offsets.get(key, MAX_LONG)) for key, offset in _recovery_points(logs).items()},
            {key: min(start, offsets.get(key, MAX_LONG)) for key, start in starts.items() if start is not None},
            are_starts_known=data_dir.are_starts_known,
        )
        watermarks = data_dir.high_watermarks
        lower = {key: min(offset, offsets.get(key, MAX_LONG)) for key, offset in watermarks.items()}
        if lower != watermarks:
            data_dir.write_high_watermarks(lower)

    def write_high_watermarks(
        self, high_watermarks: Mapping[TopicPartition, int], data_dirs: Collection[DataDir]
    ) -> None:
        """Writes high watermarks for folders where one has changed; entries of logs that are not given stay.

        Raises StorageError after all folders were tried.
        """

        def write(data_dir: DataDir) -> None:
            known = {**data_dir.high_watermarks, **high_watermarks}
            here = {key: known[key] for key in self._table.in_dir(data_dir) if key in known}
            if here != data_dir.high_watermarks:
                data_dir.write_high_watermarks(here)

        self.each_online_dir(write, data_dirs)

    def each_online_dir(self, work: Callable[[DataDir], None], data_dirs: Collection[DataDir]) -> None:
        """Does `work` for each of the folders that is online, under its lock; raises StorageError after all were tried.

        A folder that is not there any more goes offline: appends to its open files would succeed, and be lost.
        """
        failures: list[StorageError] = []
        for data_dir in data_dirs:
            with data_dir.checkpoints_lock:
                if data_dir.is_held and data_dir.is_online:
                    try:
                        work(data_dir)
                    except StorageError as error:
                        logger.error("%s: %s", data_dir.path, error)  # noqa: TRY400 -- the first one is raised below
                        failures.append(error)
                        if data_dir.is_gone:
                            data_dir.health.fail(f"the folder is gone: {error}")
        if failures:
            raise failures[0]

    def _write(self, data_dir: DataDir, logs: Mapping[TopicPartition, Log]) -> None:
        for log in logs.values():
            if log.log_start_offset > log.recovery_point:
                log.flush()
        data_dir.write_checkpoints(
            _recovery_points(logs),
            {key: log.log_start_offset for key, log in logs.items()},
            are_starts_known=True,
        )
        for log in logs.values():
            log.name_damage()


def _recovery_points(logs: Mapping[TopicPartition, Log]) -> dict[TopicPartition, int]:
    """Returns each log's recovery point; segments below it that are not the log's any more get other names before.

    They need not be synced, and a start that found one by its name would take it for damage. Raises StorageError.
    """
    points = {key: log.recovery_point for key, log in logs.items()}
    for log in logs.values():
        log.deleted.rename_dropped()
    return points


def _begins_above(log: Log, offset: int | None) -> bool:
    return offset is not None and offset < log.segments[0].base_offset
