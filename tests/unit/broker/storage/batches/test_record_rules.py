"""Rules for single records: keys in compacted topics, and times that are not too far from the broker's."""

import pytest

from millrace.errors import ErrorCode, InvalidTimestampError, RejectedRecordsError
from millrace.records.batch import NO_TIMESTAMP
from millrace.records.compression import Codec
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage.batches.preparation import NO_KEY, asks_of_records, finished, prepare
from millrace_broker.storage.config import LOG_APPEND_TIME, LogConfig

NOW_MS = 1_700_000_000_000


def check(config, *records, codec=Codec.NONE):
    batch = memoryview(encode_batch([NewRecord(b"v", key, timestamp) for key, timestamp in records], codec=codec))
    finished(prepare(batch, config, NOW_MS))


@pytest.mark.parametrize(
    ("settings", "asks"),
    [
        ({}, False),
        ({"cleanup_policy": "compact"}, True),
        ({"message_timestamp_before_max_ms": 5}, True),
        ({"message_timestamp_after_max_ms": 5}, True),
        ({"message_timestamp_after_max_ms": 5, "message_timestamp_type": LOG_APPEND_TIME}, False),
    ],
)
def test_records_are_looked_at_only_where_a_rule_asks_for_it(settings, asks):
    assert asks_of_records(LogConfig(**settings)) is asks


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_every_record_without_a_key_is_named(codec):
    config = LogConfig(cleanup_policy="compact,delete")
    check(config, (b"k", NOW_MS), (b"", NOW_MS), codec=codec)
    with pytest.raises(RejectedRecordsError) as failure:
        check(config, (None, NOW_MS), (b"k", NOW_MS), (None, NOW_MS), codec=codec)
    assert failure.value.record_errors == ((0, NO_KEY), (2, NO_KEY))
    assert failure.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_every_record_with_a_time_too_far_away_is_named(codec):
    config = LogConfig(message_timestamp_before_max_ms=100, message_timestamp_after_max_ms=10)
    check(config, (None, NOW_MS - 100), (None, NOW_MS + 10), (None, NO_TIMESTAMP), codec=codec)
    with pytest.raises(InvalidTimestampError, match=f"record 1: timestamp {NOW_MS + 11}") as failure:
        check(config, (None, NOW_MS), (None, NOW_MS + 11), (None, NOW_MS - 101), codec=codec)
    assert [index for index, _ in failure.value.record_errors] == [1, 2]
    assert failure.value.code is ErrorCode.INVALID_TIMESTAMP


def test_times_are_the_brokers_own_with_log_append_time():
    config = LogConfig(
        cleanup_policy="compact", message_timestamp_type=LOG_APPEND_TIME, message_timestamp_before_max_ms=1
    )
    check(config, (b"k", 5))


def test_where_both_rules_are_broken_the_time_is_the_error_and_each_record_has_one():
    config = LogConfig(cleanup_policy="compact", message_timestamp_after_max_ms=0)
    with pytest.raises(InvalidTimestampError) as failure:
        check(config, (None, NOW_MS + 1), (b"k", NOW_MS + 1))
    assert failure.value.record_errors[0] == (0, NO_KEY)
    assert failure.value.record_errors[1][0] == 1
