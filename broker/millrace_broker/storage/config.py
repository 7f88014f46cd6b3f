"""What a log may be told: topic properties, their defaults and the broker's synonyms (Kafka's names and values).

A topic's own property wins over the broker's synonym, that over the default. Among synonyms of different units
the finest wins, as in Kafka (`log.retention.ms` before `.minutes` before `.hours`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from millrace.config import MAX_INT, MAX_LONG, ConfigKey, ConfigTable, Value

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
DELETE = "delete"
COMPACT = "compact"
UNLIMITED = -1

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_WEEK_MS = 7 * _DAY_MS

TOPIC_CONFIG = ConfigTable(
    (
        ConfigKey(
            name="segment.bytes", default=1 << 30, minimum=14, maximum=MAX_INT, doc="Size at which a segment is rolled."
        ),
        ConfigKey(
            name="segment.ms",
            default=_WEEK_MS,
            minimum=1,
            maximum=MAX_LONG,
            doc="Span of record timestamps after which a segment is rolled.",
        ),
        ConfigKey(
            name="segment.jitter.ms",
            default=0,
            minimum=0,
            maximum=MAX_LONG,
            doc="Up to so much of segment.ms is left out by chance, so that partitions do not roll all at once.",
        ),
        ConfigKey(
            name="segment.index.bytes",
            default=10 << 20,
            minimum=12,
            maximum=MAX_INT,
            doc="Size of an index file at which its segment is rolled.",
        ),
        ConfigKey(
            name="index.interval.bytes",
            default=4096,
            minimum=0,
            maximum=MAX_INT,
            doc="Bytes of log between two index entries.",
        ),
        ConfigKey(
            name="retention.ms",
            default=_WEEK_MS,
            minimum=UNLIMITED,
            maximum=MAX_LONG,
            doc="Age of a segment's newest record after which it is deleted; -1: never.",
        ),
        ConfigKey(
            name="retention.bytes",
            default=UNLIMITED,
            minimum=UNLIMITED,
            maximum=MAX_LONG,
            doc="Size of a partition above which its oldest segments are deleted; -1: no limit.",
        ),
        ConfigKey(
            name="max.message.bytes",
            default=1_048_588,
            minimum=0,
            maximum=MAX_INT,
            doc="Largest batch that is accepted, its header included.",
        ),
        ConfigKey(
            name="flush.messages",
            default=MAX_LONG,
            minimum=1,
            maximum=MAX_LONG,
            doc="Records appended after which the log is synced to the disk.",
        ),
        ConfigKey(
            name="flush.ms",
            default=MAX_LONG,
            minimum=0,
            maximum=MAX_LONG,
            doc="Time after which appended records are synced to the disk.",
        ),
        ConfigKey(
            name="message.timestamp.type",
            default=CREATE_TIME,
            choices=(CREATE_TIME, LOG_APPEND_TIME),
            doc="Whose time a record bears: the producer's or the broker's.",
        ),
        ConfigKey(name="preallocate", default=False, doc="Take a segment's room on the disk when it is begun."),
        ConfigKey(
            name="cleanup.policy",
            default=DELETE,
            choices=(DELETE, COMPACT),
            doc="What becomes of old segments: deleted, compacted by key, or (delete,compact) both.",
        ),
        ConfigKey(
            name="min.cleanable.dirty.ratio",
            default=0.5,
            minimum=0,
            maximum=1,
            doc="Share of a log that compaction has not seen yet above which it is compacted.",
        ),
        ConfigKey(
            name="min.compaction.lag.ms",
            default=0,
            minimum=0,
            maximum=MAX_LONG,
            doc="How long a record stays uncompacted at least.",
        ),
        ConfigKey(
            name="max.compaction.lag.ms",
            default=MAX_LONG,
            minimum=1,
            maximum=MAX_LONG,
            doc="How long a record stays uncompacted at most, whatever the dirty ratio.",
        ),
        ConfigKey(
            name="delete.retention.ms",
            default=_DAY_MS,
            minimum=0,
            maximum=MAX_LONG,
            doc="How long a tombstone stays after the compaction that it belongs to.",
        ),
        ConfigKey(
            name="file.delete.delay.ms",
            default=60_000,
            minimum=0,
            maximum=MAX_LONG,
            doc="How long a deleted file stays under another name before it is removed.",
        ),
    )
)


class Synonym(NamedTuple):
    """A broker-level property that sets a topic property's default: its value times `factor`."""

    name: str
    factor: int = 1


BROKER_SYNONYMS: dict[str, tuple[Synonym, ...]] = {
    "segment.bytes": (Synonym("log.segment.bytes"),),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
    "segment.jitter.ms": (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS)),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
    "index.interval.bytes": (Synonym("log.index.interval.bytes"),),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", 60_000),
        Synonym("log.retention.hours", _HOUR_MS),
    ),
    "retention.bytes": (Synonym("log.retention.bytes"),),
    "max.message.bytes": (Synonym("message.max.bytes"),),
    "flush.messages": (Synonym("log.flush.interval.messages"),),
    "flush.ms": (Synonym("log.flush.interval.ms"),),
    "message.timestamp.type": (Synonym("log.message.timestamp.type"),),
    "preallocate": (Synonym("log.preallocate"),),
    "cleanup.policy": (Synonym("log.cleanup.policy"),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms"),),
    "max.compaction.lag.ms": (Synonym("log.cleaner.max.compaction.lag.ms"),),
    "delete.retention.ms": (Synonym("log.cleaner.delete.retention.ms"),),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
}


def _synonym_key(topic_name: str, synonym: Synonym) -> ConfigKey:
    key = TOPIC_CONFIG.keys[topic_name]
    default = key.default // synonym.factor if isinstance(key.default, int) else key.default
    return ConfigKey(
        name=synonym.name,
        default=default,
        minimum=key.minimum,
        maximum=None if key.maximum is None else key.maximum // synonym.factor,
        choices=key.choices,
        doc=f"Default of {topic_name}, in units of {synonym.factor}." if synonym.factor > 1 else key.doc,
    )


BROKER_ONLY = (
    ConfigKey(
        name="producer.id.expiration.ms",
        default=_DAY_MS,
        minimum=1,
        maximum=MAX_LONG,
        doc="Silence of a producer after which a log forgets its last sequence number.",
    ),
)

RECOVERY_THREADS = ConfigKey(
    name="num.recovery.threads.per.data.dir",
    default=1,
    minimum=1,
    maximum=MAX_INT,
    doc="Threads that open and recover the logs of one data directory at the start.",
)

BROKER_CONFIG = ConfigTable(
    (
        *BROKER_ONLY,
        RECOVERY_THREADS,
        *(_synonym_key(topic_name, synonym) for topic_name, names in BROKER_SYNONYMS.items() for synonym in names),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """One log's settings; the fields are `TOPIC_CONFIG`'s properties, and the broker's own that a log heeds."""

    segment_bytes: int = 1 << 30
    segment_ms: int = _WEEK_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = _WEEK_MS
    retention_bytes: int = UNLIMITED
    max_message_bytes: int = 1_048_588
    flush_messages: int = MAX_LONG
    flush_ms: int = MAX_LONG
    message_timestamp_type: str = CREATE_TIME
    preallocate: bool = False
    cleanup_policy: str = DELETE
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_LONG
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    producer_id_expiration_ms: int = _DAY_MS

    @property
    def is_compacted(self) -> bool:
        """Whether `cleanup.policy` holds `compact`."""
        return COMPACT in self.cleanup_policy.split(",")

    @property
    def is_deleted(self) -> bool:
        """Whether `cleanup.policy` holds `delete`."""
        return DELETE in self.cleanup_policy.split(",")

    @property
    def roll_ms(self) -> int:
        """`segment.ms`, or less: only closed segments are compacted, so `max.compaction.lag.ms` closes them too."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @classmethod
    def from_properties(cls, broker_defaults: Mapping[str, str], topic_overrides: Mapping[str, str]) -> Self:
        """The settings of one topic. Broker properties that are not a log's are left alone.

        Raises InvalidConfigError for an unknown topic property and for a value out of range.
        """
        values = _broker_values(broker_defaults) | TOPIC_CONFIG.parse(topic_overrides)
        return cls(**{name.replace(".", "_"): value for name, value in values.items()})  # type: ignore[arg-type]  # the table types each


def _broker_values(properties: Mapping[str, str]) -> dict[str, Value]:
    values = BROKER_CONFIG.parse({key.name: properties[key.name] for key in BROKER_ONLY if key.name in properties})
    for topic_name, synonyms in BROKER_SYNONYMS.items():
        for synonym in synonyms:
            if synonym.name in properties:
                value = BROKER_CONFIG.keys[synonym.name].parse(properties[synonym.name])
                values[topic_name] = value * synonym.factor if isinstance(value, int) and value > 0 else value
                break
    return values
