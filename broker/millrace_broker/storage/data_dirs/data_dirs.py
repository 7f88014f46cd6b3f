"""The data folders of a broker, the open logs in them, and the choice of a folder for a new log (KIP-113).

| a log that is not there yet | goes to |
|---|---|
| a folder was asked for | that folder |
| else | the folder that is online and has the fewest logs |
| an offline folder may hold it already | none: StorageError |

Folders that were renamed to `-delete` wait here until `file.delete.delay.ms` is over; a start removes them at once.

`LogTable` has the open logs by partition, with the ids of their topics. The mapping `logs` is replaced, never changed,
so any thread may take it and keep it.
"""

from __future__ import annotations

import os
import uuid
from collections import deque
from collections.abc import Container, Mapping, Sequence
from threading import Lock
from types import MappingProxyType
from typing import NamedTuple

from millrace.clock import Clock
from millrace.errors import StorageError
from millrace.fs import FileSystem
from millrace_broker.storage.data_dirs.data_dir import DataDir
from millrace_broker.storage.data_dirs.partition_dirs import remove_tree
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.filenames import TopicPartition
from millrace_broker.storage.log.log import Log

MAX_PREFERRED = 10_000


class DataDirs:
    """All data folders of one broker, in the order of `log.dirs`."""

    def __init__(self, fs: FileSystem, paths: Sequence[str]) -> None:
        self.all = [DataDir(fs, path) for path in paths]
        self._preferred: dict[TopicPartition, str] = {}

    def by_path(self, path: str) -> DataDir:
        """Returns the data folder with this path, one of `log.dirs`."""
        return next(data_dir for data_dir in self.all if data_dir.path == path)

    def of_log(self, directory: str) -> DataDir:
        """Returns the data folder that holds the log whose own folder is `directory`."""
        return self.by_path(os.path.dirname(directory))

    def prefer(self, topic_partition: TopicPartition, path: str) -> None:
        """Sets the data folder that `choose` returns for a partition; keeps the newest `MAX_PREFERRED` of these."""
        self._preferred.pop(topic_partition, None)
        self._preferred[topic_partition] = path
        if len(self._preferred) > MAX_PREFERRED:
            del self._preferred[next(iter(self._preferred))]

    def forget_preferred(self, topic_partition: TopicPartition) -> None:
        """Forgets the data folder that `prefer` has set for a log, as the log was made."""
        self._preferred.pop(topic_partition, None)

    def choose(self, topic_partition: TopicPartition, planned: Mapping[str, int] | None = None) -> DataDir:
        """Returns the data folder in which a new log is to be made.

        `planned` counts, by the folder's path, logs that are about to be made. Raises StorageError where no folder is
        online, the preferred one is not, or one that is offline may hold the log.
        """
        for data_dir in self.all:
            if data_dir.may_hold_unopened(topic_partition):
                raise StorageError(f"{data_dir.path}: offline, and {topic_partition} may be there")
        online = [data_dir for data_dir in self.all if data_dir.is_online]
        if not online:
            raise StorageError("no data folder is online")
        path = self._preferred.get(topic_partition)
        if path is not None:
            if not self.by_path(path).is_online:
                raise StorageError(f"{path}: offline, and {topic_partition} is to be made there")
            return self.by_path(path)
        more = planned or {}
        return min(online, key=lambda data_dir: data_dir.log_count + more.get(data_dir.path, 0))


class DeletedDirs:
    """Folders of deleted logs that wait until `file.delete.delay.ms` is over. Any thread may add and remove."""

    def __init__(self, fs: FileSystem, clock: Clock) -> None:
        self._fs = fs
        self._clock = clock
        self._lock = Lock()
        self._waiting: deque[tuple[int, str]] = deque()

    def add(self, path: str, delay_ms: int) -> None:
        """Lets a folder be removed once `delay_ms` have passed."""
        self._waiting.append((self._clock.monotonic_ms() + delay_ms, path))

    def remove_due(self) -> int:
        """Removes the folders whose delay is over; returns how many. Raises StorageError."""
        removed = 0
        while (path := self._next_due()) is not None:
            with storage_errors(path):
                remove_tree(self._fs, path)
            removed += 1
        return removed

    def _next_due(self) -> str | None:
        with self._lock:
            is_due = self._waiting and self._waiting[0][0] <= self._clock.monotonic_ms()
            return self._waiting.popleft()[1] if is_due else None


class LogEntry(NamedTuple):
    """A log and the id of its topic; None where its folder has no id."""

    topic_partition: TopicPartition
    log: Log
    topic_id: uuid.UUID | None


class LogTable:
    """The open logs, in `logs`. Those in `configured` have their topic's settings, the others the broker's defaults."""

    def __init__(self, dirs: DataDirs) -> None:
        self.logs: Mapping[TopicPartition, Log] = {}
        self.topic_ids: dict[TopicPartition, uuid.UUID | None] = {}
        self.configured: set[TopicPartition] = set()
        self._dirs = dirs
        self._lock = Lock()

    def in_dir(self, data_dir: DataDir) -> dict[TopicPartition, Log]:
        """Returns the logs in a data folder."""
        if len(self._dirs.all) == 1:
            return dict(self.logs)
        return {key: log for key, log in self.logs.items() if os.path.dirname(log.directory) == data_dir.path}

    def add(self, entries: Sequence[LogEntry]) -> None:
        """Adds logs; raises StorageError, with none of them added, where two of them are the same partition's."""
        logs: dict[TopicPartition, Log] = {}
        for topic_partition, log, _ in entries:
            known = logs.setdefault(topic_partition, log)
            if known is not log:
                raise StorageError(f"{log.directory}: {known.directory} holds this partition too")
        self.topic_ids.update((each.topic_partition, each.topic_id) for each in entries)
        for log in logs.values():
            self._dirs.of_log(log.directory).log_count += 1
        self.replace(put=logs)

    def replace(
        self, *, put: Mapping[TopicPartition, Log] = MappingProxyType({}), without: Container[TopicPartition] = ()
    ) -> None:
        """Replaces `logs` by a new mapping, without the partitions of `without` and with the logs of `put`."""
        with self._lock:
            self.logs = {key: log for key, log in self.logs.items() if key not in without} | dict(put)

    def forget(self, topic_partition: TopicPartition, log: Log) -> None:
        """Forgets the topic id and settings of a log no longer in `logs`, and lowers its folder's `log_count`."""
        self.topic_ids.pop(topic_partition)
        self.configured.discard(topic_partition)
        self._dirs.of_log(log.directory).log_count -= 1
