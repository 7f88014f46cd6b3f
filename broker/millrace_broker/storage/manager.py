"""All logs of a broker, in one or more data folders.

A folder belongs to one broker of one cluster, and says by a marker whether the last shutdown synced all of
it. The marker is removed before anything is written, so a crash at any later point means recovery.

Threads: `start`, `create`, `delete`, `apply_retention`, `expire_producers` and `close` belong to one thread, the event
loop's. `flush_due`, `checkpoint`, `verify` and `remove_deleted` may run on any other at the same time: the table of
logs is replaced, never changed, and checkpoints are written one at a time.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from threading import Lock

from millrace.clock import Clock
from millrace.errors import StorageError, TopicExistsError
from millrace.fs import FileSystem
from millrace_broker.storage.config import LogConfig
from millrace_broker.storage.data_dir import DataDir, remove_tree
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.filenames import TopicPartition, deleted_dir_name
from millrace_broker.storage.log import Log
from millrace_broker.storage.meta_properties import read_topic_id, write_topic_id
from millrace_broker.storage.reports import RecoveryReport, RetentionReport, VerifyReport

logger = logging.getLogger(__name__)


class LogManager:
    """Opens, makes, deletes and looks after the logs."""

    def __init__(  # noqa: PLR0917 -- the wiring of a broker, once
        self,
        fs: FileSystem,
        clock: Clock,
        data_dirs: Sequence[str],
        defaults: Mapping[str, str],
        cluster_id: str,
        broker_id: int,
    ) -> None:
        """`defaults` are the broker's properties; those that are not a log's are left alone. InvalidConfigError."""
        self._fs = fs
        self._clock = clock
        self._defaults = defaults
        self._default_config = LogConfig.from_properties(defaults, {})
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._dirs = [DataDir(fs, path) for path in data_dirs]
        self._logs: dict[TopicPartition, Log] = {}
        self._topic_ids: dict[TopicPartition, uuid.UUID | None] = {}
        self._configured: set[TopicPartition] = set()
        self._deleted: deque[tuple[int, str]] = deque()
        self._checkpoint_lock = Lock()

    def start(self) -> RecoveryReport:
        """Lock the folders and open every log in them, recovering what the last shutdown left unsynced.

        Raises StorageError and InconsistentClusterIdError; then no folder stays locked.
        """
        with ExitStack() as undo:
            removed = 0
            for data_dir in self._dirs:
                undo.callback(data_dir.close)
                data_dir.open(cluster_id=self._cluster_id, broker_id=self._broker_id)
                removed += data_dir.remove_deleted_dirs()
                self._load(data_dir, undo)
            undo.pop_all()
        return RecoveryReport(
            logs=tuple(log.recovery for log in self._logs.values()),
            clean_dirs=tuple(data_dir.path for data_dir in self._dirs if data_dir.is_clean),
            removed_dirs=removed,
        )

    def logs(self) -> Mapping[TopicPartition, Log]:
        """All logs, as of now."""
        return self._logs

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The log of a partition, None where there is none."""
        return self._logs.get(topic_partition)

    def topic_id(self, topic_partition: TopicPartition) -> uuid.UUID | None:
        """The id of the topic that a log belongs to; None for an unknown log and one without an id."""
        return self._topic_ids.get(topic_partition)

    def create(self, topic_partition: TopicPartition, topic_id: uuid.UUID, topic_config: Mapping[str, str]) -> Log:
        """Make a partition's log in the folder with the fewest, or give an existing one its settings.

        Until then an existing log has the broker's defaults, and retention leaves it alone. Raises TopicExistsError
        where the log belongs to another topic of this name, InvalidConfigError, StorageError.
        """
        config = LogConfig.from_properties(self._defaults, topic_config)
        log = self._logs.get(topic_partition)
        if log is None:
            log = self._create(topic_partition, topic_id, config)
        else:
            self._adopt(topic_partition, log, topic_id)
            log.reconfigure(config)
        self._configured.add(topic_partition)
        return log

    def delete(self, topic_partition: TopicPartition) -> None:
        """Put a partition, if it is there, out of sight at once; its files go by `remove_deleted`."""
        log = self._logs.get(topic_partition)
        if log is None:
            return
        parent = os.path.dirname(log.directory)
        target = os.path.join(parent, deleted_dir_name(topic_partition, uuid.uuid4()))
        with storage_errors(log.directory):
            self._fs.rename(log.directory, target)
            log.abandon()
            self._forget(topic_partition)
            self._deleted.append((self._clock.monotonic_ms() + log.config.file_delete_delay_ms, target))
            self._fs.fsync_dir(parent)

    def apply_retention(self) -> list[RetentionReport]:
        """Apply every log's retention settings; logs whose settings are not known yet are left out. StorageError."""
        return [log.apply_retention() for key, log in self._logs.items() if key in self._configured]

    def expire_producers(self) -> int:
        """Let every log forget the producers that have been silent for long; returns how many."""
        return sum(log.expire_producers() for log in self._logs.values())

    def remove_deleted(self) -> int:
        """Remove files and folders whose `file.delete.delay.ms` is over; returns how many. StorageError."""
        removed = sum(log.remove_deleted() for log in self._logs.values())
        while self._deleted and self._deleted[0][0] <= self._clock.monotonic_ms():
            _, path = self._deleted.popleft()
            with storage_errors(path):
                remove_tree(self._fs, path)
            removed += 1
        return removed

    def verify(self) -> list[VerifyReport]:
        """Check every byte of every log; StorageError."""
        return [log.verify() for log in self._logs.values()]

    def flush_due(self) -> None:
        """Sync the logs whose `flush.ms` has passed or that were rolled; StorageError after all were tried."""
        now_ms = self._clock.monotonic_ms()
        failures: list[StorageError] = []
        for log in self._logs.values():
            if log.is_flush_due(now_ms):
                try:
                    log.flush()
                except StorageError as error:
                    logger.error("flush failed: %s", error)  # noqa: TRY400 -- the first one is raised below
                    failures.append(error)
        if failures:
            raise failures[0]

    def checkpoint(self) -> None:
        """Write down recovery points and log start offsets, so that the next start knows them; StorageError."""
        with self._checkpoint_lock:
            logs = self._logs
            for data_dir in self._dirs:
                mine = {key: log for key, log in logs.items() if os.path.dirname(log.directory) == data_dir.path}
                data_dir.write_checkpoints(
                    {key: log.recovery_point for key, log in mine.items()},
                    {key: log.log_start_offset for key, log in mine.items() if log.starts_inside_segment},
                )

    def close(self) -> None:
        """Flush and close all logs, write checkpoints and the clean marker, unlock; StorageError after all were tried.

        Without the marker, after a failure, the next start recovers.
        """
        with ExitStack() as always:
            for data_dir in self._dirs:
                always.callback(data_dir.close)
            failures = [error for log in self._logs.values() if (error := _close(log)) is not None]
            self.checkpoint()
            if failures:
                raise failures[0]
            for data_dir in self._dirs:
                data_dir.mark_clean()

    def _load(self, data_dir: DataDir, undo: ExitStack) -> None:
        for topic_partition, directory in data_dir.partition_dirs():
            if topic_partition in self._logs:
                raise StorageError(f"{directory}: {self._logs[topic_partition].directory} holds this partition too")
            log = Log(
                self._fs,
                self._clock,
                directory,
                topic_partition,
                self._default_config,
                recovery_point=data_dir.recovery_points.get(topic_partition, 0),
                log_start_offset=data_dir.log_start_offsets.get(topic_partition, 0),
                clean=data_dir.is_clean,
            )
            undo.callback(log.abandon)
            self._remember(topic_partition, log, read_topic_id(self._fs, directory))

    def _create(self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: LogConfig) -> Log:
        counts = Counter(os.path.dirname(log.directory) for log in self._logs.values())
        parent = min((data_dir.path for data_dir in self._dirs), key=lambda path: counts[path])
        directory = os.path.join(parent, str(topic_partition))
        with storage_errors(directory):
            self._fs.mkdir(directory)
            write_topic_id(self._fs, directory, topic_id)
            self._fs.fsync_dir(parent)
        log = Log(self._fs, self._clock, directory, topic_partition, config)
        self._remember(topic_partition, log, topic_id)
        return log

    def _adopt(self, topic_partition: TopicPartition, log: Log, topic_id: uuid.UUID) -> None:
        known = self._topic_ids[topic_partition]
        if known is None:
            write_topic_id(self._fs, log.directory, topic_id)
            self._topic_ids[topic_partition] = topic_id
        elif known != topic_id:
            raise TopicExistsError(f"{log.directory}: belongs to the topic with id {known}, not {topic_id}")

    def _remember(self, topic_partition: TopicPartition, log: Log, topic_id: uuid.UUID | None) -> None:
        self._logs = {**self._logs, topic_partition: log}
        self._topic_ids[topic_partition] = topic_id

    def _forget(self, topic_partition: TopicPartition) -> None:
        self._logs = {key: log for key, log in self._logs.items() if key != topic_partition}
        self._topic_ids.pop(topic_partition)
        self._configured.discard(topic_partition)


def _close(log: Log) -> StorageError | None:
    try:
        log.close()
    except StorageError as error:
        logger.error("close failed: %s", error)  # noqa: TRY400 -- the first one is raised by the caller
        return error
    return None
