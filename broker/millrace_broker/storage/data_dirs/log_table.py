"""The open logs of a broker by partition, with the ids of their topics.

The mapping `logs` is replaced, never changed, so any thread may take it and keep it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Container, Mapping, Sequence
from threading import Lock
from types import MappingProxyType
from typing import NamedTuple

from millrace.errors import StorageError
from millrace_broker.storage.data_dirs.data_dir import DataDir
from millrace_broker.storage.data_dirs.data_dirs import DataDirs
from millrace_broker.storage.filenames import TopicPartition
from millrace_broker.storage.log.log import Log


class LogEntry(NamedTuple):
    """A log and the id of its topic, if one was written."""

    topic_partition: TopicPartition
    log: Log
    topic_id: uuid.UUID | None


class LogTable:
    """The open logs. Those of `configured` have their topic's settings, the others the broker's defaults."""

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
        """Adds logs that are new here. Raises StorageError where a partition is there twice, and nothing is added."""
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
        """Puts another mapping in the place of `logs`: without some, and with others."""
        with self._lock:
            self.logs = {key: log for key, log in self.logs.items() if key not in without} | dict(put)

    def forget(self, topic_partition: TopicPartition, log: Log) -> None:
        """Forgets what is known beside a log that is no longer in `logs`: its topic's id, its settings, its count."""
        self.topic_ids.pop(topic_partition)
        self.configured.discard(topic_partition)
        self._dirs.of_log(log.directory).log_count -= 1
