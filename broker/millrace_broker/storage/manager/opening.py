"""Opening the logs of all data folders at once, and closing those of one.

Each folder is opened on its own thread, and its logs by `num.recovery.threads.per.data.dir` more: a recovery
reads every byte that was not synced, and disks do that side by side. A folder that fails goes offline with what it
holds, and the others serve. An error that concerns all of them is raised: a folder belongs to another cluster, or
another broker uses it.

Closing the logs of a data folder, several at once, as a disk syncs many files faster side by side.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from millrace.errors import DataDirInUseError, StorageError
from millrace.fs import FileSystem
from millrace_broker.storage.data_dirs.data_dir import DataDir
from millrace_broker.storage.data_dirs.data_dirs import LogEntry
from millrace_broker.storage.filenames import TopicPartition
from millrace_broker.storage.log.log import Log
from millrace_broker.storage.moves import settle_moves

logger = logging.getLogger(__name__)

CLOSING_THREADS = 8  # the threads wait for the disk and need no processor


@dataclass(frozen=True, slots=True)
class OpenedDir:
    """A data folder's logs, none where it is offline, and how many deleted partitions were removed from it."""

    data_dir: DataDir
    logs: tuple[LogEntry, ...] = ()
    removed_dirs: int = 0


Opened = TypeVar("Opened")
OpenLog = Callable[[DataDir, TopicPartition, str], LogEntry]


def open_data_dirs(
    fs: FileSystem,
    data_dirs: Sequence[DataDir],
    open_log: OpenLog,
    *,
    cluster_id: str,
    broker_id: int,
    boot_id: str | None,
    threads_per_dir: int,
) -> list[OpenedDir]:
    """Opens every folder, ends moves between them that were interrupted, and opens every log in them.

    Nothing is changed in any folder before all of them are locked and known to be this broker's. Raises StorageError
    where all folders fail, DataDirInUseError and InconsistentClusterIdError where one does; no log stays open then, and
    no folder locked.
    """
    try:
        with ThreadPoolExecutor(len(data_dirs), thread_name_prefix="open-data-dir") as pool:
            claims = [pool.submit(_claim, each, cluster_id=cluster_id, broker_id=broker_id) for each in data_dirs]
            for claim in claims:
                claim.result()
            for data_dir in data_dirs:
                _begin(data_dir, boot_id)
            settle_moves(fs, data_dirs)
            openings = [pool.submit(_open_dir, each, open_log, threads_per_dir) for each in data_dirs]
            opened = _results(openings, abandon_dir)
        _check_any_online(data_dirs)
    except BaseException:
        for data_dir in data_dirs:
            data_dir.close()
        raise
    return opened


def _claim(data_dir: DataDir, *, cluster_id: str, broker_id: int) -> None:
    try:
        data_dir.open(cluster_id=cluster_id, broker_id=broker_id)
    except DataDirInUseError:
        raise
    except StorageError as error:
        data_dir.take_offline(str(error))


def _begin(data_dir: DataDir, boot_id: str | None) -> None:
    try:
        if data_dir.is_online:
            data_dir.begin(boot_id)
    except StorageError as error:
        data_dir.take_offline(str(error))


def _open_dir(data_dir: DataDir, open_log: OpenLog, threads: int) -> OpenedDir:
    if not data_dir.is_online:
        return OpenedDir(data_dir)
    try:
        removed = data_dir.remove_deleted_dirs()
        return OpenedDir(data_dir, _open_logs(data_dir, open_log, threads), removed)
    except StorageError as error:
        data_dir.take_offline(str(error))
        return OpenedDir(data_dir)


def abandon_dir(opened: OpenedDir) -> None:
    """Closes the folder's logs without a flush, and unlocks it."""
    for each in opened.logs:
        each.log.abandon()
    opened.data_dir.close()


def _open_logs(data_dir: DataDir, open_log: OpenLog, threads: int) -> tuple[LogEntry, ...]:
    with ThreadPoolExecutor(threads, thread_name_prefix="recover-log") as pool:
        futures = [pool.submit(open_log, data_dir, *found) for found in data_dir.partition_dirs()]
    return tuple(_results(futures, lambda opened: opened.log.abandon()))


def _results(futures: Sequence[Future[Opened]], undo: Callable[[Opened], None]) -> list[Opened]:
    """Waits for all results and returns them; if any failed, calls `undo` with each and raises the error."""
    errors = [error for future in futures if (error := future.exception()) is not None]
    if not errors:
        return [future.result() for future in futures]
    for future in futures:
        if future.exception() is None:
            undo(future.result())
    raise errors[0]


def _check_any_online(data_dirs: Sequence[DataDir]) -> None:
    if not any(data_dir.is_online for data_dir in data_dirs):
        reasons = "; ".join(data_dir.health.reason or "" for data_dir in data_dirs)
        raise StorageError(f"no data folder is online: {reasons}")


def close_all(logs: Iterable[Log], recovery_threads: int) -> list[StorageError]:
    """Flushes and closes every log on several threads, at least `recovery_threads`; returns the errors."""
    threads = max(recovery_threads, CLOSING_THREADS)
    with ThreadPoolExecutor(threads, thread_name_prefix="close-log") as pool:
        return [error for error in pool.map(_close, logs) if error is not None]


def _close(log: Log) -> StorageError | None:
    try:
        log.close()
    except StorageError as error:
        logger.error("close failed: %s", error)  # noqa: TRY400 -- the first one is raised by the caller
        return error
    return None
