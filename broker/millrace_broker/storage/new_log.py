"""Logs that are wanted: their partitions, the properties of their topics, and the folders asked for."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from millrace_broker.storage.config import TOPIC_CONFIG
from millrace_broker.storage.filenames import TopicPartition

logger = logging.getLogger(__name__)

MAX_PREFERRED = 10_000


class NewLog(NamedTuple):
    """A partition whose log is wanted."""

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    topic_config: Mapping[str, str]

    def known_properties(self) -> Mapping[str, str]:
        """The topic's properties, but those of no meaning here, which a topic that came from Kafka may have."""
        unknown = sorted(set(self.topic_config) - set(TOPIC_CONFIG.keys))
        if unknown:
            names = ", ".join(unknown)
            logger.warning("%s: topic properties without a meaning here: %s", self.topic_partition, names)
        return {name: value for name, value in self.topic_config.items() if name in TOPIC_CONFIG.keys}


class PreferredLogDirs:
    """The folders in which logs that are not there yet are to be made; of very many the oldest is forgotten."""

    def __init__(self) -> None:
        self._paths: dict[TopicPartition, str] = {}

    def get(self, topic_partition: TopicPartition) -> str | None:
        """The folder that a log is to be made in, if one was asked for."""
        return self._paths.get(topic_partition)

    def put(self, topic_partition: TopicPartition, path: str) -> None:
        """Ask for a folder."""
        self._paths.pop(topic_partition, None)
        self._paths[topic_partition] = path
        if len(self._paths) > MAX_PREFERRED:
            del self._paths[next(iter(self._paths))]

    def drop(self, topic_partition: TopicPartition) -> None:
        """The log was made."""
        self._paths.pop(topic_partition, None)
