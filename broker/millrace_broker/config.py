"""The broker's own configuration, under Kafka's names; the log's defaults are `storage.config`'s.

from a file       names that Millrace does not know are reported and passed over, so that a Kafka
                  broker's server.properties can be given as it is
from NAME=VALUE   an unknown name is an error, since it was typed for this command
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from millrace.config import MAX_INT, ConfigKey, ConfigTable

BROKER_CONFIG = ConfigTable(
    (
        ConfigKey(
            name="auto.create.topics.enable",
            default=True,
            doc="Create a topic that a client asks for and that does not exist.",
        ),
        ConfigKey(name="delete.topic.enable", default=True, doc="Allow topics to be deleted."),
        ConfigKey(name="num.partitions", default=1, minimum=1, doc="Partitions of a topic whose creator gives none."),
        ConfigKey(
            name="default.replication.factor",
            default=1,
            minimum=1,
            doc="Replicas of a topic whose creator gives none.",
        ),
        ConfigKey(
            name="socket.request.max.bytes",
            default=100 << 20,
            minimum=1,
            maximum=MAX_INT,
            doc="The largest frame that is taken in.",
        ),
        ConfigKey(
            name="fetch.max.bytes",
            default=55 << 20,
            minimum=1024,
            maximum=MAX_INT,
            doc="The most bytes that one fetch returns, its first batch excepted.",
        ),
        ConfigKey(
            name="max.incremental.fetch.session.cache.slots",
            default=1_000,
            minimum=0,
            maximum=MAX_INT,
            doc="Incremental fetch sessions that are kept at one time; further consumers send full requests.",
        ),
        ConfigKey(
            name="max.connections", default=10_000, minimum=0, maximum=MAX_INT, doc="Connections open at one time."
        ),
        ConfigKey(
            name="log.retention.check.interval.ms",
            default=300_000,
            minimum=1,
            doc="Milliseconds between two looks for segments to delete.",
        ),
        ConfigKey(
            name="log.flush.scheduler.interval.ms",
            default=1_000,
            minimum=1,
            doc="Milliseconds between two looks for logs whose flush.ms has passed.",
        ),
        ConfigKey(
            name="log.flush.offset.checkpoint.interval.ms",
            default=60_000,
            minimum=1,
            doc="Milliseconds between two writes of the recovery point checkpoint.",
        ),
        ConfigKey(name="log.cleaner.enable", default=True, doc="Compact the logs whose cleanup.policy asks for it."),
        ConfigKey(
            name="log.cleaner.backoff.ms",
            default=15_000,
            minimum=1,
            doc="Milliseconds between two looks for logs to compact.",
        ),
        ConfigKey(
            name="log.cleaner.dedupe.buffer.size",
            default=128 << 20,
            minimum=1 << 10,
            doc="Bytes of memory for the keys of one compaction pass, 24 for a key's slot.",
        ),
        ConfigKey(
            name="log.cleaner.io.max.bytes.per.second",
            default=1e300,
            minimum=1,
            doc="Bytes that compaction reads and writes in a second at most.",
        ),
        ConfigKey(
            name="replica.high.watermark.checkpoint.interval.ms",
            default=5_000,
            minimum=1,
            doc="Milliseconds between two writes of the high watermarks' checkpoint.",
        ),
        ConfigKey(
            name="producer.id.expiration.check.interval.ms",
            default=600_000,
            minimum=1,
            doc="Milliseconds between two looks for producers to forget.",
        ),
        ConfigKey(name="zookeeper.session.timeout.ms", default=18_000, minimum=1, doc="ZooKeeper's session timeout."),
        ConfigKey(
            name="zookeeper.connection.timeout.ms",
            default=18_000,
            minimum=1,
            doc="Milliseconds to wait for ZooKeeper at the start.",
        ),
        ConfigKey(
            name="shutdown.drain.timeout.ms",
            default=10_000,
            minimum=0,
            doc="Milliseconds that a stopping broker gives its connections to take their replies.",
        ),
        ConfigKey(
            name="admin.token",
            default="",
            doc="Bearer token of the admin endpoint; required where it listens beyond loopback.",
        ),
        ConfigKey(
            name="advertised.listeners",
            default="",
            doc="PLAINTEXT://HOST:PORT that clients are told; the listening address if empty.",
        ),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The parsed table, one field per property."""

    auto_create_topics_enable: bool
    delete_topic_enable: bool
    num_partitions: int
    default_replication_factor: int
    socket_request_max_bytes: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    max_connections: int
    log_retention_check_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_cleaner_enable: bool
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float
    replica_high_watermark_checkpoint_interval_ms: int
    producer_id_expiration_check_interval_ms: int
    zookeeper_session_timeout_ms: int
    zookeeper_connection_timeout_ms: int
    shutdown_drain_timeout_ms: int
    admin_token: str
    advertised_listeners: str

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Parse; InvalidConfigError for an unknown name or a bad value."""
        values = BROKER_CONFIG.parse_with_defaults(properties)
        return cls(**{name.replace(".", "_"): cast("Any", value) for name, value in values.items()})
