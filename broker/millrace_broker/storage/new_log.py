"""A log that is wanted: its partition, and the properties of its topic."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from millrace_broker.storage.config import TOPIC_CONFIG
from millrace_broker.storage.filenames import TopicPartition

logger = logging.getLogger(__name__)


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
