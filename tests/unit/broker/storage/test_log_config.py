import sys
from dataclasses import asdict

import pytest

from millrace.config import ConfigType, value_text
from millrace.errors import InvalidConfigError
from millrace_broker.storage.config import BROKER_CONFIG, BROKER_ONLY, BROKER_SYNONYMS, TOPIC_CONFIG, LogConfig


def test_defaults_of_the_value_and_of_the_table_agree() -> None:
    table = {name.replace(".", "_"): key.default for name, key in TOPIC_CONFIG.keys.items()}
    table |= {name.replace(".", "_"): BROKER_CONFIG.keys[name].default for name in BROKER_ONLY}
    assert asdict(LogConfig()) == table == asdict(LogConfig.from_properties({}, {}))


def test_the_topic_properties_without_a_broker_synonym_are_kafkas_and_that_of_mirrors() -> None:
    assert set(TOPIC_CONFIG.keys) - set(BROKER_SYNONYMS) == {
        "mirror.source",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "remote.storage.enable",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "message.format.version",
        "internal.segment.bytes",
    }
    assert "log.segment.bytes" in BROKER_CONFIG.keys


@pytest.mark.parametrize(
    "properties",
    [
        {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
        {"remote.storage.enable": "true"},
    ],
)
def test_properties_that_do_not_go_together_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidConfigError, match=r"=2|Tiered Storage"):
        LogConfig.from_properties({}, properties).check()


def test_lists_are_taken_with_spaces_and_each_element_is_checked() -> None:
    config = LogConfig.from_properties(
        {}, {"cleanup.policy": "compact, delete", "leader.replication.throttled.replicas": "0:1,1:1"}
    )
    assert config.cleanup_policy == "compact,delete"
    assert config.leader_replication_throttled_replicas == "0:1,1:1"
    for name, value in (("cleanup.policy", "compact,drop"), ("leader.replication.throttled.replicas", "0:1,x")):
        with pytest.raises(InvalidConfigError, match=name.replace(".", r"\.")):
            LogConfig.from_properties({}, {name: value})


@pytest.mark.parametrize(
    ("name", "kind", "default"),
    [
        ("segment.bytes", ConfigType.INT, "1073741824"),
        ("retention.ms", ConfigType.LONG, "604800000"),
        ("cleanup.policy", ConfigType.LIST, "delete"),
        ("min.cleanable.dirty.ratio", ConfigType.DOUBLE, "0.5"),
        ("preallocate", ConfigType.BOOLEAN, "false"),
        ("compression.type", ConfigType.STRING, "producer"),
        ("compression.gzip.level", ConfigType.INT, "-1"),
    ],
)
def test_types_and_texts_are_kafkas(name: str, kind: ConfigType, default: str) -> None:
    key = TOPIC_CONFIG.keys[name]
    assert (key.type, value_text(key.default)) == (kind, default)


def test_large_numbers_are_written_as_java_writes_them() -> None:
    assert value_text(sys.float_info.max) == "1.7976931348623157E308"


def test_a_topic_wins_over_its_broker_and_that_over_the_default() -> None:
    config = LogConfig.from_properties(
        {"log.segment.bytes": "1000", "message.max.bytes": "77", "socket.request.max.bytes": "5"},
        {"segment.bytes": "2000"},
    )
    assert (config.segment_bytes, config.max_message_bytes, config.index_interval_bytes) == (2000, 77, 4096)


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_wins(properties: dict[str, str], retention_ms: int) -> None:
    assert LogConfig.from_properties(properties, {}).retention_ms == retention_ms


@pytest.mark.parametrize(
    ("broker", "topic", "named"),
    [
        ({}, {"segment.byte": "1"}, "segment.byte"),
        ({}, {"segment.bytes": "13"}, "segment.bytes"),
        ({}, {"retention.ms": "-2"}, "retention.ms"),
        ({}, {"cleanup.policy": "compress"}, "cleanup.policy"),
        ({}, {"message.timestamp.type": "CreateTime,LogAppendTime"}, "message.timestamp.type"),
        ({}, {"retention.ms": "1_000"}, "retention.ms"),
        ({}, {"compression.gzip.level": "0"}, "compression.gzip.level"),
        ({}, {"min.insync.replicas": "0"}, "min.insync.replicas"),
        ({}, {"min.cleanable.dirty.ratio": "1.01"}, "min.cleanable.dirty.ratio"),
        ({}, {"min.cleanable.dirty.ratio": "nan"}, "min.cleanable.dirty.ratio"),
        ({"log.cleaner.min.cleanable.ratio": "-0.1"}, {}, "log.cleaner.min.cleanable.ratio"),
        ({"log.message.timestamp.type": "Now"}, {}, "log.message.timestamp.type"),
        ({"log.flush.interval.messages": "0"}, {}, "log.flush.interval.messages"),
    ],
)
def test_what_is_unknown_or_out_of_range_is_refused_by_name(
    broker: dict[str, str], topic: dict[str, str], named: str
) -> None:
    with pytest.raises(InvalidConfigError, match=named.replace(".", r"\.")):
        LogConfig.from_properties(broker, topic)


def test_compaction_has_kafkas_properties_at_both_levels() -> None:
    broker = {
        "log.cleanup.policy": "compact",
        "log.cleaner.min.cleanable.ratio": "0.25",
        "log.cleaner.min.compaction.lag.ms": "1",
        "log.cleaner.max.compaction.lag.ms": "2",
        "log.cleaner.delete.retention.ms": "3",
    }
    config = LogConfig.from_properties(broker, {"cleanup.policy": "compact,delete"})
    assert (config.is_compacted, config.is_deleted) == (True, True)
    assert (config.min_cleanable_dirty_ratio, config.min_compaction_lag_ms) == (0.25, 1)
    assert (config.max_compaction_lag_ms, config.delete_retention_ms) == (2, 3)
    assert config.roll_ms == 2
    assert LogConfig.from_properties(broker, {"cleanup.policy": "delete"}).roll_ms == config.segment_ms


def test_the_older_name_of_the_times_bounds_is_each_that_has_no_value_of_its_own() -> None:
    broker = {"log.message.timestamp.difference.max.ms": "100"}
    assert LogConfig.from_properties(broker, {}).message_timestamp_before_max_ms == 100
    config = LogConfig.from_properties(
        {}, {"message.timestamp.difference.max.ms": "7", "message.timestamp.after.max.ms": "3"}
    )
    assert (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == (7, 3)
