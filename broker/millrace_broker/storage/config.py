"""The settings of a log: topic properties, their defaults and the broker's synonyms (Kafka's names and values).

A topic's own property wins over the broker's synonym, and that over the default. Among synonyms of different units the
finest wins, as in Kafka (`log.retention.ms` before `.minutes` before `.hours`). The defaults are those of Kafka 3.9.

A field with `has_effect=False` is known and shown as Kafka shows it, and changes nothing here: there is no tiered
storage, so `remote.storage.enable=true` is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, Unpack

from millrace.config import (
    MAX_INT,
    MAX_LONG,
    ConfigKey,
    ConfigTable,
    Default,
    Rules,
    Synonym,
    Value,
    build,
    declared_keys,
    setting,
)
from millrace.errors import InvalidConfigError
from millrace_broker.properties.kafka_properties import TOPIC, known_rules

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
DELETE = "delete"
COMPACT = "compact"
UNLIMITED = -1
AS_THE_WHOLE_LOG = -2

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_WEEK_MS = 7 * _DAY_MS

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
GZIP_LEVELS = ("-1", "1", "2", "3", "4", "5", "6", "7", "8", "9")
NAME = r"[A-Za-z0-9._-]+"
THROTTLED_REPLICAS = r"|\*|\d+:\d+"


def _log_setting(default: Default, doc: str, *synonyms: str | Synonym, **rules: Unpack[Rules]) -> Default:
    named = tuple(Synonym(one) if isinstance(one, str) else one for one in synonyms)
    return setting(default, doc, synonyms=named, **rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """One log's settings: a field per topic property, and `producer.id.expiration.ms`, which is the broker's alone."""

    segment_bytes: int = _log_setting(1 << 30, "Size at which a segment is rolled.", "log.segment.bytes")
    internal_segment_bytes: int = _log_setting(
        0,
        "Without effect here: segment.bytes has no higher bound that Kafka's own tests would have to pass by.",
        minimum=0,
        has_effect=False,
    )
    segment_ms: int = _log_setting(
        _WEEK_MS,
        "Span of record timestamps after which a segment is rolled.",
        "log.roll.ms",
        Synonym("log.roll.hours", _HOUR_MS),
    )
    segment_jitter_ms: int = _log_setting(
        0,
        "Up to so much of segment.ms is left out by chance, so that partitions do not roll all at once.",
        "log.roll.jitter.ms",
        Synonym("log.roll.jitter.hours", _HOUR_MS),
    )
    segment_index_bytes: int = _log_setting(
        10 << 20, "Size of an index file at which its segment is rolled.", "log.index.size.max.bytes", minimum=12
    )
    index_interval_bytes: int = _log_setting(
        4096, "Bytes of log between two index entries.", "log.index.interval.bytes"
    )
    retention_ms: int = _log_setting(
        _WEEK_MS,
        "Age of a segment's newest record after which it is deleted; -1: never.",
        "log.retention.ms",
        Synonym("log.retention.minutes", _MINUTE_MS),
        Synonym("log.retention.hours", _HOUR_MS),
    )
    retention_bytes: int = _log_setting(
        UNLIMITED,
        "Size of a partition above which its oldest segments are deleted; -1: no limit.",
        "log.retention.bytes",
        minimum=UNLIMITED,
    )
    max_message_bytes: int = _log_setting(
        1_048_588, "Largest batch that is accepted, its header included.", "message.max.bytes"
    )
    flush_messages: int = _log_setting(
        MAX_LONG, "Records appended after which the log is synced to the disk.", "log.flush.interval.messages"
    )
    flush_ms: int = _log_setting(
        MAX_LONG, "Time after which appended records are synced to the disk.", "log.flush.interval.ms"
    )
    message_timestamp_type: str = _log_setting(
        CREATE_TIME, "Whose time a record bears: the producer's or the broker's.", "log.message.timestamp.type"
    )
    message_timestamp_before_max_ms: int = _log_setting(
        MAX_LONG,
        "How far a record's time may lie before the broker's; not looked at with LogAppendTime.",
        "log.message.timestamp.before.max.ms",
    )
    message_timestamp_after_max_ms: int = _log_setting(
        MAX_LONG,
        "How far a record's time may lie after the broker's; not looked at with LogAppendTime.",
        "log.message.timestamp.after.max.ms",
    )
    message_timestamp_difference_max_ms: int = _log_setting(
        MAX_LONG,
        "The older name of both bounds of a record's time; each holds where its own property does not.",
        "log.message.timestamp.difference.max.ms",
    )
    message_format_version: str = _log_setting(
        "3.0-IV1",
        "Without effect here: records are kept in the format in which they are sent, v2 at the latest.",
        has_effect=False,
    )
    message_downconversion_enable: bool = _log_setting(
        True,
        "Give records to old consumers in a format that they know; otherwise they get an error.",
        "log.message.downconversion.enable",
    )
    compression_type: str = _log_setting(
        "producer",
        "How batches are kept: as the producer compressed them, or with a codec of the broker's.",
        "compression.type",
    )
    compression_gzip_level: int = _log_setting(
        -1,
        "Level of gzip where compression.type asks for it.",
        "compression.gzip.level",
        choices=GZIP_LEVELS,
        maximum=MAX_INT,
        minimum=None,
    )
    compression_lz4_level: int = _log_setting(
        9, "Level of lz4 where compression.type asks for it.", "compression.lz4.level"
    )
    compression_zstd_level: int = _log_setting(
        3, "Level of zstd where compression.type asks for it.", "compression.zstd.level"
    )
    min_insync_replicas: int = _log_setting(
        1,
        "In-sync replicas without which acks=all is refused; no more are asked for than the partition has.",
        "min.insync.replicas",
    )
    unclean_leader_election_enable: bool = _log_setting(
        False, "Let a replica lead that is not in sync.", "unclean.leader.election.enable"
    )
    preallocate: bool = _log_setting(False, "Take a segment's room on the disk when it is begun.", "log.preallocate")
    cleanup_policy: str = _log_setting(
        DELETE,
        "How old segments are treated: deleted, compacted by key, or (delete,compact) both.",
        "log.cleanup.policy",
    )
    millrace_delete_policies: str = _log_setting(
        "time,size",
        "Policies that let old segments go where cleanup.policy has delete, by name; Kafka has no such property.",
        "millrace.delete.policies",
        is_list=True,
        pattern=NAME,
    )
    mirror_source: str = _log_setting(
        "",
        "Name of the mirror that alone writes the topic, with the offsets of its source; Kafka has no such property.",
        has_default=False,
        is_shown_if_set=True,
        pattern=NAME,
    )
    min_cleanable_dirty_ratio: float = _log_setting(
        0.5,
        "Share of a log that compaction has not seen yet above which it is compacted.",
        "log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = _log_setting(
        0, "How long a record stays uncompacted at least.", "log.cleaner.min.compaction.lag.ms"
    )
    max_compaction_lag_ms: int = _log_setting(
        MAX_LONG,
        "How long a record stays uncompacted at most, whatever the dirty ratio.",
        "log.cleaner.max.compaction.lag.ms",
    )
    delete_retention_ms: int = _log_setting(
        _DAY_MS,
        "How long a tombstone stays after the compaction that it belongs to.",
        "log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms: int = _log_setting(
        60_000, "How long a deleted file stays under another name before it is removed.", "log.segment.delete.delay.ms"
    )
    leader_replication_throttled_replicas: str = _log_setting(
        "",
        "Leaders that send to lagging followers at a limited rate: PARTITION:BROKER,… or *.",
        pattern=THROTTLED_REPLICAS,
    )
    follower_replication_throttled_replicas: str = _log_setting(
        "",
        "Followers that fetch at a limited rate as long as they lag: PARTITION:BROKER,… or *.",
        pattern=THROTTLED_REPLICAS,
    )
    remote_storage_enable: bool = _log_setting(
        False, "Keep old segments in tiered storage, of which there is none.", has_effect=False
    )
    remote_log_copy_disable: bool = _log_setting(False, "Copy no more segments to tiered storage.", has_effect=False)
    remote_log_delete_on_disable: bool = _log_setting(
        False, "Delete what is in tiered storage when it is turned off.", has_effect=False
    )
    local_retention_ms: int = _log_setting(
        AS_THE_WHOLE_LOG,
        "retention.ms of what tiered storage has a copy of; -2: the same.",
        "log.local.retention.ms",
        has_effect=False,
    )
    local_retention_bytes: int = _log_setting(
        AS_THE_WHOLE_LOG,
        "retention.bytes of what tiered storage has a copy of; -2: the same.",
        "log.local.retention.bytes",
        has_effect=False,
    )
    producer_id_expiration_ms: int = _log_setting(
        _DAY_MS,
        "Silence of a producer after which a log forgets its last sequence number.",
        minimum=1,
        maximum=MAX_INT,
        is_dynamic=True,
    )

    @property
    def is_compacted(self) -> bool:
        """Whether `cleanup.policy` holds `compact`."""
        return COMPACT in self.cleanup_policy.split(",")

    @property
    def is_deleted(self) -> bool:
        """Whether `cleanup.policy` holds `delete`."""
        return DELETE in self.cleanup_policy.split(",")

    @property
    def delete_policies(self) -> tuple[str, ...]:
        """The names in `millrace.delete.policies`."""
        return tuple(filter(None, self.millrace_delete_policies.split(",")))

    @property
    def roll_ms(self) -> int:
        """The age that closes a segment; `max.compaction.lag.ms` if less, as only closed ones are compacted."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @classmethod
    def from_properties(cls, broker_defaults: Mapping[str, str], topic_overrides: Mapping[str, str]) -> Self:
        """Returns the settings of one topic's logs; properties of the broker that no log uses are skipped.

        Raises InvalidConfigError for an unknown topic property and for a value out of range.
        """
        values = _with_both_bounds(_broker_values(broker_defaults) | TOPIC_CONFIG.parse(topic_overrides))
        return build(cls, values)

    def check(self) -> None:
        """Raises InvalidConfigError if `min.compaction.lag.ms` is above the maximum, or tiered storage is asked for."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfigError(
                f"min.compaction.lag.ms={self.min_compaction_lag_ms}: Invalid value, above "
                f"max.compaction.lag.ms={self.max_compaction_lag_ms}"
            )
        if self.remote_storage_enable:
            raise InvalidConfigError(
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
                "storage. It has remote.storage.enable=true."
            )


BROKER_ONLY = ("producer.id.expiration.ms",)
_KEYS = {key.name: key for key in declared_keys(LogConfig, known_rules(TOPIC))}
TOPIC_CONFIG = ConfigTable(key for key in _KEYS.values() if key.name not in BROKER_ONLY)
BROKER_SYNONYMS = {key.name: key.synonyms for key in TOPIC_CONFIG.keys.values() if key.synonyms}


def _synonym_key(key: ConfigKey, index: int) -> ConfigKey:
    """Returns the broker's property at `index` of a topic setting's names, such as `log.retention.hours` beside `.ms`.

    As in Kafka, the coarsest unit has the default, and the finest can be changed while the broker runs.
    """
    name, factor = key.synonyms[index]
    scaled = factor > 1
    return ConfigKey(
        name=name,
        default=key.default // factor if isinstance(key.default, int) and scaled else key.default,
        minimum=key.minimum,
        maximum=MAX_INT if scaled else key.maximum,
        choices=key.choices,
        pattern=key.pattern,
        is_list=key.is_list,
        has_effect=key.has_effect,
        is_dynamic=index == 0,
        has_default=index == len(key.synonyms) - 1 and name != "log.flush.interval.ms",
        doc=f"Default of {key.name}, in units of {factor} ms." if scaled else key.doc,
    )


RECOVERY_THREADS = ConfigKey(
    name="num.recovery.threads.per.data.dir",
    default=1,
    minimum=1,
    maximum=MAX_INT,
    is_dynamic=True,
    doc="Threads that open and recover the logs of one data directory at the start.",
)

BROKER_CONFIG = ConfigTable(
    (
        *(_KEYS[name] for name in BROKER_ONLY),
        RECOVERY_THREADS,
        *(_synonym_key(key, index) for key in TOPIC_CONFIG.keys.values() for index in range(len(key.synonyms))),
    )
)


def _with_both_bounds(values: dict[str, Value]) -> dict[str, Value]:
    """Sets `message.timestamp.before.max.ms` and `.after.max.ms` where they are missing, and returns the values.

    They get the value of the older `message.timestamp.difference.max.ms`, as in Kafka 3.9.
    """
    difference = values.get("message.timestamp.difference.max.ms", MAX_LONG)
    if difference != MAX_LONG:
        for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
            if values.get(name, MAX_LONG) == MAX_LONG:
                values[name] = difference
    return values


def _broker_values(properties: Mapping[str, str]) -> dict[str, Value]:
    values = BROKER_CONFIG.parse({name: properties[name] for name in BROKER_ONLY if name in properties})
    for topic_name, synonyms in BROKER_SYNONYMS.items():
        for synonym in synonyms:
            if synonym.name in properties:
                value = BROKER_CONFIG.keys[synonym.name].parse(properties[synonym.name])
                values[topic_name] = value * synonym.factor if isinstance(value, int) and value > 0 else value
                break
    return values
