"""The group coordinator's properties, under Kafka's names and with its defaults.

One default differs: `offsets.topic.replication.factor` is 1 here and 3 there, since followers are not served yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from millrace.config import MAX_INT, ConfigKey, ConfigTable

GROUP_CONFIG = ConfigTable(
    (
        ConfigKey(
            name="group.min.session.timeout.ms",
            default=6_000,
            minimum=1,
            maximum=MAX_INT,
            doc="The shortest session timeout that a member may ask for.",
        ),
        ConfigKey(
            name="group.max.session.timeout.ms",
            default=1_800_000,
            minimum=1,
            maximum=MAX_INT,
            doc="The longest session timeout that a member may ask for.",
        ),
        ConfigKey(
            name="group.initial.rebalance.delay.ms",
            default=3_000,
            minimum=0,
            maximum=MAX_INT,
            doc="Milliseconds that the first rebalance of an empty group waits for more members.",
        ),
        ConfigKey(
            name="group.max.size", default=MAX_INT, minimum=1, maximum=MAX_INT, doc="Members of one group at most."
        ),
        ConfigKey(
            name="offset.metadata.max.bytes",
            default=4_096,
            minimum=0,
            maximum=MAX_INT,
            doc="The longest metadata of a committed offset.",
        ),
        ConfigKey(
            name="offsets.retention.minutes",
            default=7 * 24 * 60,
            minimum=1,
            maximum=MAX_INT,
            doc="Minutes that committed offsets outlive their group's last member, or a simple consumer's last commit.",
        ),
        ConfigKey(
            name="offsets.retention.check.interval.ms",
            default=600_000,
            minimum=1,
            doc="Milliseconds between two looks for offsets to expire.",
        ),
        ConfigKey(
            name="offsets.commit.timeout.ms",
            default=5_000,
            minimum=1,
            maximum=MAX_INT,
            doc="Milliseconds that a write waits for the in-sync replicas.",
        ),
        ConfigKey(
            name="offsets.load.buffer.size",
            default=5 << 20,
            minimum=1,
            maximum=MAX_INT,
            doc="Bytes read at a time while groups are loaded.",
        ),
        ConfigKey(
            name="offsets.topic.num.partitions",
            default=50,
            minimum=1,
            maximum=MAX_INT,
            doc="Partitions of the topic of committed offsets when it is created.",
        ),
        ConfigKey(
            name="offsets.topic.replication.factor",
            default=1,
            minimum=1,
            maximum=32_767,
            doc="Replicas of the topic of committed offsets when it is created.",
        ),
        ConfigKey(
            name="offsets.topic.segment.bytes",
            default=100 << 20,
            minimum=1,
            maximum=MAX_INT,
            doc="segment.bytes of the topic of committed offsets; small, so that compaction and loading are quick.",
        ),
        ConfigKey(
            name="offsets.topic.compression.codec",
            default=0,
            minimum=0,
            maximum=4,
            doc="How batches of committed offsets are compressed: 0 not, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        ),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The parsed table, one field per property."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = MAX_INT
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    offsets_load_buffer_size: int = 5 << 20
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 1
    offsets_topic_segment_bytes: int = 100 << 20
    offsets_topic_compression_codec: int = 0

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> GroupConfig:
        """Parse; InvalidConfigError for an unknown name or a bad value."""
        values = GROUP_CONFIG.parse_with_defaults(properties)
        return cls(**{name.replace(".", "_"): cast("Any", value) for name, value in values.items()})

    @property
    def offsets_retention_ms(self) -> int:
        """The retention in the unit of timestamps."""
        return self.offsets_retention_minutes * 60_000
