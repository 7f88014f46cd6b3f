"""Records for clients of Fetch v0 to v3."""

import pytest

from millrace.errors import ErrorCode
from millrace.records.compression import Codec
from millrace.records.message_set import decode_message_set
from millrace.records.record import NewRecord, encode_batch
from millrace.wire.fetch import FetchPartition, PartitionFetched, PartitionKey
from millrace_broker.replication import down_conversion
from millrace_broker.replication.down_conversion import all_converted

PLAIN = encode_batch([NewRecord(b"a", None, 5), NewRecord(b"b", None, 6)], base_offset=10)
ZSTD = encode_batch([NewRecord(b"c", None, 7)], base_offset=12, codec=Codec.ZSTD)


def fetched(records):
    return PartitionFetched(0, 0, 20, 20, 0, records)


def converted(version, one, fetch_offset, partition_max_bytes=1 << 20):
    key = PartitionKey("t", 0)
    [(_, answer)] = all_converted(
        version, [(key, one)], {key: FetchPartition(fetch_offset, partition_max_bytes)}, 1 << 20
    )
    return answer


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


def test_no_partition_has_more_than_was_asked_of_it():
    """Messages are longer than records in a batch: what has no room is for the next request."""
    batches = b"".join(encode_batch([NewRecord(b"") for _ in range(100)], base_offset=at) for at in range(0, 1000, 100))
    answer = converted(2, fetched(batches), 0, len(batches))
    records = list(decode_message_set(answer.records))
    assert [one.offset for one in records] == list(range(len(records)))
    assert 100 <= len(records) < 1000
    assert len(answer.records) <= len(batches)


def test_the_whole_answer_has_its_limit_and_a_first_batch_is_given_above_it():
    keys = [PartitionKey("t", index) for index in range(4)]
    wanted = dict.fromkeys(keys, FetchPartition(10, 1 << 20))
    size_bytes = len(converted(2, fetched(PLAIN), 10).records)
    for max_bytes, given in (
        (0, [1, 0, 0, 0]),
        (1, [1, 0, 0, 0]),
        (2 * size_bytes, [1, 1, 0, 0]),
        (1 << 20, [1, 1, 1, 1]),
    ):
        answers = all_converted(2, [(key, fetched(PLAIN)) for key in keys], wanted, max_bytes)
        assert [len(one.records) // size_bytes for _, one in answers] == given
        assert {one.error_code for _, one in answers} == {0}


def test_a_batch_that_is_too_large_opened_is_told(monkeypatch):
    monkeypatch.setattr(down_conversion, "OPENED_LIMIT_BYTES", 1000)
    batch = encode_batch([NewRecord(bytes(100_000))], codec=Codec.GZIP)
    assert converted(2, fetched(batch), 0).error_code == ErrorCode.MESSAGE_TOO_LARGE
