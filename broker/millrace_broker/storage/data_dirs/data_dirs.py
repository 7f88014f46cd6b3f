"""The data folders of a broker, and the choice of the one in which a new log is made (KIP-113).

| a log that is not there yet | goes to |
|---|---|
| a folder was asked for | that folder |
| else | the folder that is online and has the fewest logs |
| an offline folder may hold it already | none: StorageError |
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from millrace.errors import StorageError
from millrace.fs import FileSystem
from millrace_broker.storage.data_dirs.data_dir import DataDir
from millrace_broker.storage.filenames import TopicPartition

MAX_PREFERRED = 10_000


class DataDirs:
    """All data folders of one broker, in the order of `log.dirs`."""

    def __init__(self, fs: FileSystem, paths: Sequence[str]) -> None:
        self.all = [DataDir(fs, path) for path in paths]
        self._preferred: dict[TopicPartition, str] = {}

    def by_path(self, path: str) -> DataDir:
        """Returns the folder of this path."""
        return next(data_dir for data_dir in self.all if data_dir.path == path)

    def of_log(self, directory: str) -> DataDir:
        """Returns the folder that a log's folder is in."""
        return self.by_path(os.path.dirname(directory))

    def prefer(self, topic_partition: TopicPartition, path: str) -> None:
        """Lets a log that is not here yet be made in this folder; of very many requests the oldest is forgotten."""
        self._preferred.pop(topic_partition, None)
        self._preferred[topic_partition] = path
        if len(self._preferred) > MAX_PREFERRED:
            del self._preferred[next(iter(self._preferred))]

    def forget_preferred(self, topic_partition: TopicPartition) -> None:
        """Forgets which folder was asked for, as the log was made."""
        self._preferred.pop(topic_partition, None)

    def choose(self, topic_partition: TopicPartition, planned: Mapping[str, int] | None = None) -> DataDir:
        """Returns the folder in which a new log is to be made.

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
