"""Records for clients of Fetch v0 to v3."""

import pytest

from millrace.errors import ErrorCode
from millrace.records.compression import Codec
from millrace.records.message_set import decode_message_set
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.fetch import PartitionFetched
from millrace_broker.replication.down_conversion import converted

PLAIN = encode_batch([NewRecord(b"a", None, 5), NewRecord(b"b", None, 6)], base_offset=10)
ZSTD = encode_batch([NewRecord(b"c", None, 7)], base_offset=12, codec=Codec.ZSTD)


def fetched(records):
    return PartitionFetched(0, 0, 20, 20, 0, records)


@pytest.mark.parametrize(("version", "times"), [(0, [-1, -1]), (1, [-1, -1]), (2, [5, 6]), (3, [5, 6])])
def test_the_format_is_the_versions(version, times):
    records = list(decode_message_set(converted(version, fetched(PLAIN), 10).records))
    assert [(one.offset, one.value, one.timestamp_ms) for one in records] == [
        (10, b"a", times[0]),
        (11, b"b", times[1]),
    ]


def test_records_below_the_wanted_offset_are_left_out():
    assert [one.offset for one in decode_message_set(converted(2, fetched(PLAIN), 11).records)] == [11]


def test_what_comes_before_zstd_is_given():
    assert len(list(decode_message_set(converted(2, fetched(PLAIN + ZSTD), 10).records))) == 2
    refused = converted(2, fetched(ZSTD), 12)
    assert (refused.error_code, refused.high_watermark, refused.records) == (
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1, b"",
    )  # fmt: skip


def test_damage_is_the_partitions_error():
    damaged = bytearray(PLAIN)
    damaged[-1] ^= 1
    assert converted(2, fetched(bytes(damaged)), 10).error_code == ErrorCode.CORRUPT_MESSAGE


def test_nothing_stays_nothing():
    assert converted(2, fetched(b""), 10).records == b""
