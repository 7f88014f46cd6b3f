"""One data folder: its lock, its owner, its clean-shutdown marker and what its checkpoints say.

Two brokers never share a folder: `.lock` is held with `flock` from `open` to `close`, or until the process ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from threading import Lock

from millrace.errors import DataDirInUseError, StorageError
from millrace.fs import FileSystem, read_file, write_file_durably
from millrace_broker.storage.checkpoints import is_checked, salvaged_offsets, write_offsets
from millrace_broker.storage.data_dirs.meta_properties import claim_data_dir
from millrace_broker.storage.data_dirs.partition_dirs import remove_tree
from millrace_broker.storage.failures import DirHealth, is_disk_full, storage_error, storage_errors
from millrace_broker.storage.filenames import (
    BOOT_ID,
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    DELETED_DIR_SUFFIX,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    TopicPartition,
    parse_future_dir,
    parse_partition_dir,
)
from millrace_broker.storage.sync_lane import SyncLane

Offsets = Mapping[TopicPartition, int]

# Kafka writes this where ZooKeeper coordinates. Only whether the file is there is ever looked at.
CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'


class DataDir:
    """A data folder, one of `log.dirs`: it has a lock, checkpoints, a clean-shutdown marker, and logs' folders."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.path = os.path.normpath(path)
        self.is_clean = False
        self.recovery_points: Offsets = {}
        self.log_start_offsets: Offsets = {}
        self.are_starts_known = False
        """Whether `log_start_offsets` are as this release has written them, by the rules of `log_checkpoints`."""
        self.high_watermarks: Offsets = {}
        self.log_count = 0  # of logs that are here, and of those on their way here
        self.interrupted_moves: list[TopicPartition] = []  # of logs that were on their way here
        self.health = DirHealth(self.path)
        self.lane = SyncLane()
        self.checkpoints_lock = Lock()
        """Is held while checkpoints are written, and while a log of the folder is moved, made or cut."""
        self._compacted: Offsets = {}
        self._fs = fs
        self._lock_fd: int | None = None
        self._unopened: set[TopicPartition] | None = set()

    def open(self, *, cluster_id: str, broker_id: int) -> None:
        """Locks the folder, making it if need be, checks whose it is, and reads the clean marker and checkpoints.

        Nothing in an existing folder is changed yet: `begin` comes before the first change. Raises StorageError or
        DataDirInUseError where another broker holds the folder, and InconsistentClusterIdError.
        """
        with storage_errors(self.path):
            self._fs.mkdir(self.path)
            self._fs.fsync_dir(os.path.dirname(self.path) or ".")
            self._lock()
        claim_data_dir(self._fs, self.path, cluster_id=cluster_id, broker_id=broker_id)
        self.recovery_points = salvaged_offsets(self._fs, self._join(RECOVERY_POINT_CHECKPOINT))
        self.log_start_offsets = salvaged_offsets(self._fs, self._join(LOG_START_OFFSET_CHECKPOINT))
        self.are_starts_known = is_checked(self._fs, self._join(LOG_START_OFFSET_CHECKPOINT))
        self.high_watermarks = salvaged_offsets(self._fs, self._join(REPLICATION_OFFSET_CHECKPOINT))
        self._compacted = salvaged_offsets(self._fs, self._join(CLEANER_OFFSET_CHECKPOINT))
        marker = self._join(CLEAN_SHUTDOWN)
        with storage_errors(marker):
            self.is_clean = self._fs.exists(marker)

    def begin(self, boot_id: str | None = None) -> None:
        """Removes the clean-shutdown marker: from now on the folder may be changed, and a crash means recovery.

        Before that it writes the id of the machine's last start, if that is known. On a full disk the former id stays,
        so that after a crash a loss of power is reported once more. Raises StorageError.

        The names are synced in any case. A kill may have come before the sync of a checkpoint that was just read, and a
        loss of power must not bring the former one back, by which files are still needed that a start removes.
        """
        if boot_id is not None and boot_id != read_boot_id(self._fs, self.path):
            self._write_boot_id(boot_id)
        marker = self._join(CLEAN_SHUTDOWN)
        with storage_errors(marker):
            if self.is_clean:
                self._fs.unlink(marker)
            self._fs.fsync_dir(self.path)

    def _write_boot_id(self, boot_id: str) -> None:
        try:
            write_file_durably(self._fs, self._join(BOOT_ID), f"{boot_id}\n".encode())
        except OSError as error:
            if not is_disk_full(error):
                raise storage_error(self.path, error) from error

    @property
    def is_held(self) -> bool:
        """Whether the folder is locked by this broker, and so may be changed by it."""
        return self._lock_fd is not None

    @property
    def is_online(self) -> bool:
        """Whether the folder is in use: no operation on its disk has failed."""
        return self.health.reason is None

    @property
    def is_gone(self) -> bool:
        """Whether the folder itself is not there any more, as when its disk was taken out."""
        return not self._fs.exists(self.path)

    def take_offline(self, reason: str) -> None:
        """Unlocks a folder that could not be opened, and lists its partitions, so that none gets another log."""
        self.health.fail(reason)
        self.close()
        try:
            self._unopened = {topic_partition for topic_partition, _ in (*self.partition_dirs(), *self.copies())}
        except StorageError:
            self._unopened = None

    def may_hold_unopened(self, topic_partition: TopicPartition) -> bool:
        """Returns whether a partition's log may be in this folder, unopened; true for all if it can't be listed."""
        return self._unopened is None or topic_partition in self._unopened

    def first_dirty_offset(self, topic_partition: TopicPartition) -> int | None:
        """Returns the partition's offset in the cleaner's checkpoint when the folder was opened; None without one."""
        return self._compacted.get(topic_partition)

    @property
    def unopened(self) -> frozenset[TopicPartition]:
        """The partitions whose logs are in this folder and could not be opened; empty if it can't be listed."""
        return frozenset(self._unopened or ())

    def partition_dirs(self) -> Iterator[tuple[TopicPartition, str]]:
        """Yields each partition and the path of its folder, without deleted ones and copies. Raises StorageError."""
        return self._parsed_names(parse_partition_dir)

    def copies(self) -> Iterator[tuple[TopicPartition, str]]:
        """Yields each partition that was being moved to this folder, and the path of its copy. Raises StorageError."""
        return self._parsed_names(parse_future_dir)

    def _parsed_names(self, parse: Callable[[str], TopicPartition | None]) -> Iterator[tuple[TopicPartition, str]]:
        with storage_errors(self.path):
            names = self._fs.listdir(self.path)
        for name in names:
            topic_partition = parse(name)
            if topic_partition is not None:
                yield topic_partition, self._join(name)

    def remove_deleted_dirs(self) -> int:
        """Removes the folders whose names end with `-delete`, at a start; returns how many. Raises StorageError."""
        with storage_errors(self.path):
            names = [name for name in self._fs.listdir(self.path) if name.endswith(DELETED_DIR_SUFFIX)]
            for name in names:
                remove_tree(self._fs, self._join(name))
        return len(names)

    def write_checkpoints(
        self, recovery_points: Offsets, log_start_offsets: Offsets, *, are_starts_known: bool
    ) -> None:
        """Replaces the checkpoints of recovery points and of log start offsets; raises StorageError."""
        write_offsets(self._fs, self._join(RECOVERY_POINT_CHECKPOINT), recovery_points)
        self.recovery_points = recovery_points
        path = self._join(LOG_START_OFFSET_CHECKPOINT)
        try:
            write_offsets(self._fs, path, log_start_offsets, with_check=are_starts_known)
        except StorageError:
            if are_starts_known:
                self._assume_either(log_start_offsets)
            raise
        self.log_start_offsets, self.are_starts_known = log_start_offsets, are_starts_known

    def _assume_either(self, log_start_offsets: Offsets) -> None:
        """Keeps the lower one of two starts of a log, as a write that has failed may have replaced the file or not."""
        old = self.log_start_offsets
        either = {**old, **log_start_offsets}
        if self.are_starts_known:
            either = {key: min(offset, old.get(key, offset)) for key, offset in either.items()}
        self.log_start_offsets, self.are_starts_known = either, True

    def known_start(self, topic_partition: TopicPartition) -> int | None:
        """Returns where the next start would know that a log begins; None where it would not.

        It would not in a backup, whose logs were copied later, and which has no recovery points (docs/deploy.md).
        """
        is_known = self.are_starts_known and topic_partition in self.recovery_points
        return self.log_start_offsets.get(topic_partition) if is_known else None

    def forget(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Removes partitions whose logs are about to be made from the checkpoints; raises StorageError.

        Such entries are left from older logs of the same names, and after a crash would be taken for the new ones'.
        """
        if any(one in self.recovery_points or one in self.log_start_offsets for one in topic_partitions):
            gone = frozenset(topic_partitions)
            self.write_checkpoints(
                {key: offset for key, offset in self.recovery_points.items() if key not in gone},
                {key: offset for key, offset in self.log_start_offsets.items() if key not in gone},
                are_starts_known=self.are_starts_known,
            )

    def write_high_watermarks(self, high_watermarks: Offsets) -> None:
        """Replaces `replication-offset-checkpoint`; raises StorageError."""
        write_offsets(self._fs, self._join(REPLICATION_OFFSET_CHECKPOINT), high_watermarks)
        self.high_watermarks = high_watermarks

    def mark_clean(self) -> None:
        """Writes the marker that says that everything in the folder is synced. Raises StorageError."""
        marker = self._join(CLEAN_SHUTDOWN)
        with storage_errors(marker):
            write_file_durably(self._fs, marker, CLEAN_SHUTDOWN_CONTENT)

    def close(self) -> None:
        """Unlocks the folder."""
        if self._lock_fd is not None:
            self._fs.close(self._lock_fd)
            self._lock_fd = None

    def _lock(self) -> None:
        fd = self._fs.open(self._join(LOCK), create=True)
        try:
            self._fs.lock(fd)
        except BlockingIOError:
            self._fs.close(fd)
            raise _in_use(self.path) from None
        self._lock_fd = fd

    def _join(self, name: str) -> str:
        return os.path.join(self.path, name)


def read_boot_id(fs: FileSystem, path: str) -> str | None:
    """Returns the machine's start in which a data folder was used last; None where the folder does not tell it."""
    try:
        return read_file(fs, os.path.join(path, BOOT_ID)).decode().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def check_unlocked(fs: FileSystem, path: str) -> None:
    """Raises DataDirInUseError where another process has locked a data folder, whose files may then be out of date."""
    lock = os.path.join(path, LOCK)
    if not fs.exists(lock):
        return
    fd = fs.open(lock)
    try:
        fs.lock(fd)
    except BlockingIOError:
        raise _in_use(path) from None
    finally:
        fs.close(fd)


def _in_use(path: str) -> DataDirInUseError:
    return DataDirInUseError(f"{path}: another broker holds this folder ({LOCK})")
