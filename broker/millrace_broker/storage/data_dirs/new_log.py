"""Logs that are to be made, and the settings that follow from their topics' properties and the broker's."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from millrace_broker.storage.config import TOPIC_CONFIG, LogConfig
from millrace_broker.storage.filenames import TopicPartition

logger = logging.getLogger(__name__)


class NewLog(NamedTuple):
    """A partition whose log is to be made, with its topic's id and properties."""

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    topic_config: Mapping[str, str]

    def known_properties(self) -> Mapping[str, str]:
        """Returns the topic's properties but those that mean nothing here, which a topic from Kafka may have."""
        unknown = sorted(set(self.topic_config) - set(TOPIC_CONFIG.keys))
        if unknown:
            names = ", ".join(unknown)
            logger.warning("%s: topic properties that this broker ignores: %s", self.topic_partition, names)
        return {name: value for name, value in self.topic_config.items() if name in TOPIC_CONFIG.keys}


class LogConfigs:
    """The settings of logs: a topic's properties over the broker's."""

    def __init__(self, defaults: Mapping[str, str]) -> None:
        """Takes the broker's properties; those that are not a log's are left alone. Raises InvalidConfigError."""
        self._last: tuple[Mapping[str, str], LogConfig] | None = None
        self.set_defaults(defaults)

    def set_defaults(self, defaults: Mapping[str, str]) -> None:
        """Takes other broker properties. Where InvalidConfigError is raised, nothing has changed."""
        self.default = LogConfig.from_properties(defaults, {})
        self._defaults = defaults
        self._last = None

    def of(self, wanted: NewLog) -> LogConfig:
        """Returns the settings of a log; partitions of a topic, which come one after the other, share theirs."""
        topic_config, last = wanted.topic_config, self._last
        if last is None or last[0] is not topic_config:
            last = self._last = topic_config, LogConfig.from_properties(self._defaults, wanted.known_properties())
        return last[1]
