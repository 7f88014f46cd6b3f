"""The three ways in which a broker opens a log: it is found at the start, it is new, or it was copied.

The data folder's checkpoints say how much of a found log is synced. Of the others everything is. The settings of a log
follow from its topic's properties and the broker's.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from millrace.clock import Clock
from millrace.errors import StorageError
from millrace.fs import FileSystem
from millrace_broker.storage.config import TOPIC_CONFIG, LogConfig
from millrace_broker.storage.data_dirs.data_dir import DataDir
from millrace_broker.storage.data_dirs.data_dirs import LogEntry
from millrace_broker.storage.data_dirs.meta_properties import DamagedMetadataError, read_topic_id
from millrace_broker.storage.data_dirs.partition_dirs import make_partition_dirs, unmake_partition_dirs
from millrace_broker.storage.filenames import TopicPartition
from millrace_broker.storage.log.log import Log

logger = logging.getLogger(__name__)


class NewLog(NamedTuple):
    """A partition whose log is to be made, with its topic's id and properties."""

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    topic_config: Mapping[str, str]

    def known_properties(self) -> Mapping[str, str]:
        """Returns the topic's properties without those unknown here, which a topic from Kafka may have."""
        unknown = sorted(set(self.topic_config) - set(TOPIC_CONFIG.keys))
        if unknown:
            names = ", ".join(unknown)
            logger.warning("%s: topic properties that this broker ignores: %s", self.topic_partition, names)
        return {name: value for name, value in self.topic_config.items() if name in TOPIC_CONFIG.keys}


class LogConfigs:
    """Makes the settings of logs from the broker's properties and the topic's, which take precedence."""

    def __init__(self, defaults: Mapping[str, str]) -> None:
        """Takes the broker's properties; those that no log uses are skipped. Raises InvalidConfigError."""
        self._last: tuple[Mapping[str, str], LogConfig] | None = None
        self.set_defaults(defaults)

    def set_defaults(self, defaults: Mapping[str, str]) -> None:
        """Replaces the broker's properties. Where InvalidConfigError is raised, nothing has changed."""
        self.default = LogConfig.from_properties(defaults, {})
        self._defaults = defaults
        self._last = None

    def of(self, wanted: NewLog) -> LogConfig:
        """Returns the settings of a log; consecutive calls for one topic's partitions return the same object."""
        topic_config, last = wanted.topic_config, self._last
        if last is None or last[0] is not topic_config:
            last = self._last = topic_config, LogConfig.from_properties(self._defaults, wanted.known_properties())
        return last[1]


class LogFactory:
    """Opens and makes logs in data folders."""

    def __init__(self, fs: FileSystem, clock: Clock, configs: LogConfigs) -> None:
        self._fs = fs
        self._clock = clock
        self._configs = configs

    def open(self, data_dir: DataDir, topic_partition: TopicPartition, directory: str) -> LogEntry:
        """Opens a log that is found in a data folder, with the broker's default settings. Raises StorageError."""
        log = Log(
            self._fs,
            self._clock,
            directory,
            topic_partition,
            self._configs.default,
            recovery_point=data_dir.recovery_points.get(topic_partition, 0),
            high_watermark=data_dir.high_watermarks.get(topic_partition, 0),
            log_start_offset=data_dir.log_start_offsets.get(topic_partition, 0),
            clean=data_dir.is_clean,
            is_start_known=data_dir.known_start(topic_partition) is not None,
            first_dirty_offset=data_dir.first_dirty_offset(topic_partition),
            health=data_dir.health,
            lane=data_dir.lane,
        )
        try:
            return LogEntry(topic_partition, log, self._topic_id(directory))
        except StorageError:
            log.abandon()
            raise

    def _topic_id(self, directory: str) -> uuid.UUID | None:
        try:
            return read_topic_id(self._fs, directory)
        except DamagedMetadataError as error:
            logger.warning("%s; the log is taken for that of the cluster's topic of this name", error)
            return None

    def make(self, data_dir: DataDir, wanted: Sequence[NewLog]) -> Iterator[LogEntry]:
        """Makes the folders of logs, durably, and then yields each log. Raises InvalidConfigError or StorageError.

        The folders of logs that can't be made are removed again.
        """
        wanted_dirs = [
            (each, self._configs.of(each), os.path.join(data_dir.path, str(each.topic_partition))) for each in wanted
        ]
        unmade = {directory: each.topic_id for each, _, directory in wanted_dirs}
        try:
            make_partition_dirs(self._fs, data_dir.path, unmade)
            for (topic_partition, topic_id, _), config, directory in wanted_dirs:
                log = Log(
                    self._fs, self._clock, directory, topic_partition, config,
                    health=data_dir.health, lane=data_dir.lane,
                )  # fmt: skip
                del unmade[directory]
                yield LogEntry(topic_partition, log, topic_id)
        except StorageError:
            unmake_partition_dirs(self._fs, data_dir.path, unmade)
            raise

    def open_copy(self, log: Log, directory: str, data_dir: DataDir) -> Log:
        """Opens the complete copy of `log` in another folder, with the offsets of `log`. Raises StorageError."""
        return Log(
            self._fs,
            self._clock,
            directory,
            log.topic_partition,
            log.config,
            recovery_point=log.log_end_offset,
            log_start_offset=log.log_start_offset,
            clean=True,
            health=data_dir.health,
            lane=data_dir.lane,
        )
