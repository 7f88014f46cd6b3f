"""Conversion between message sets and batches."""

import pytest

from millrace.errors import InvalidRecordError, RecordTooLargeError, UnsupportedCodecError, UnsupportedMagicError
from millrace.records.batch import HEADER_BYTES, BatchHeader, read_header, walk
from millrace.records.compression import Codec
from millrace.records.control import ControlType, EndTransactionMarker, encode_marker
from millrace.records.convert import down_convert, up_convert
from millrace.records.message_set import decode_message_set, encode_message_set, walk_messages
from millrace.records.record import NewRecord, Record, decode_records, encode_batch, encode_records

LEGACY_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
OFFSETS = (5, 6, 9)


def records(magic=1, offsets=OFFSETS):
    return [Record(offset, 1000 + offset if magic else -1, b"k", b"v%d" % offset) for offset in offsets]


def headers_of(batches):
    return [header for _, header in walk(batches)]


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_up_keeps_records_offsets_and_codec(magic, codec):
    batches = up_convert(encode_message_set(records(magic), magic=magic, codec=codec))
    assert list(decode_records(batches)) == records(magic)
    (header,) = headers_of(batches)
    assert (header.base_offset, header.last_offset, header.record_count) == (5, 9, 3)
    assert header.codec_id == codec
    assert header.max_timestamp == (1009 if magic else -1)


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_down_keeps_records_offsets_and_codec(magic, codec):
    header = BatchHeader(5, last_offset_delta=4, attributes=codec)
    batch = encode_records(header, [record._replace(headers=(("h", b"x"),)) for record in records()])
    converted = down_convert(batch, magic)
    assert list(decode_message_set(converted)) == records(magic)
    messages = [message for _, message in walk_messages(converted)]
    assert {message.codec for message in messages} == {codec}
    assert {message.magic for message in messages} == {magic}


def test_up_gives_new_offsets_where_asked():
    sets = encode_message_set(records(), magic=1, codec=Codec.GZIP) + encode_message_set(records(), magic=0)
    assert [record.offset for record in decode_records(up_convert(sets, first_offset=100))] == [*range(100, 106)]


def test_up_needs_offsets_that_increase_unless_it_gives_them():
    twice = encode_message_set(records(offsets=(0, 0)), magic=0)
    with pytest.raises(InvalidRecordError, match="do not increase"):
        up_convert(twice)
    assert [record.offset for record in decode_records(up_convert(twice, first_offset=0))] == [0, 1]


def test_up_makes_batches_of_bounded_size_and_span():
    message_set = encode_message_set(records(offsets=range(100)), magic=1)
    batches = up_convert(message_set, batch_bytes=1000)
    assert list(decode_records(batches)) == records(offsets=range(100))
    assert len(headers_of(batches)) > 3
    far = records(offsets=(0, 2**31 - 1, 2**31))
    batches = up_convert(encode_message_set(far, magic=1))
    assert list(decode_records(batches)) == far
    assert [header.record_count for header in headers_of(batches)] == [2, 1]


def test_log_append_time_goes_up():
    first = encode_message_set(records(offsets=(1, 1)), magic=1, log_append_time=True)
    later = encode_message_set(records(offsets=(7,)), magic=1, log_append_time=True)
    wrapper = encode_message_set(records(offsets=(8, 9)), magic=1, codec=Codec.LZ4, log_append_time=True)
    headers = headers_of(up_convert(first + later + wrapper, first_offset=0))
    assert [(header.record_count, header.max_timestamp) for header in headers] == [(2, 1001), (1, 1007), (2, 1009)]
    assert all(header.is_log_append_time for header in headers)


@pytest.mark.parametrize("codec", LEGACY_CODECS)
def test_log_append_time_goes_down(codec):
    header = BatchHeader(5, last_offset_delta=4, attributes=codec | 0x08)._replace(max_timestamp=77)
    converted = down_convert(encode_records(header, records()), 1)
    assert [record.timestamp_ms for record in decode_message_set(converted)] == [77] * 3
    assert all(message.is_log_append_time for _, message in walk_messages(converted))


def test_down_drops_control_batches_and_what_lies_before_the_wanted_offset():
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    batches = (
        encode_batch([NewRecord(b"a"), NewRecord(b"b")], base_offset=0, codec=Codec.ZSTD)
        + encode_batch([NewRecord(b"c"), NewRecord(b"d")], base_offset=2, codec=Codec.GZIP)
        + encode_marker(marker, producer_id=1, producer_epoch=0, timestamp_ms=0)
        + encode_batch([NewRecord(b"e")], base_offset=5)
        + encode_records(BatchHeader(6, last_offset_delta=3), [])
    )
    values = [record.value for record in decode_message_set(down_convert(batches, 1, from_offset=3))]
    assert values == [b"d", b"e"]


def test_down_has_no_zstd_and_up_no_batches():
    with pytest.raises(UnsupportedCodecError, match="zstd"):
        down_convert(encode_batch([NewRecord(b"a")], codec=Codec.ZSTD), 1)
    with pytest.raises(UnsupportedMagicError):
        up_convert(encode_batch([NewRecord(b"a")]))


def test_down_ends_before_the_batch_that_would_be_too_much():
    one = encode_batch([NewRecord(bytes(100))])
    size_bytes = len(down_convert(one, 1))
    for max_bytes, batches in ((0, 1), (size_bytes, 1), (2 * size_bytes - 1, 1), (2 * size_bytes, 2), (1 << 20, 3)):
        assert len(down_convert(one * 3, 1, max_bytes=max_bytes)) == batches * size_bytes


def test_what_is_decompressed_is_bounded_for_each_batch_down_and_over_all_up():
    batch = encode_batch([NewRecord(bytes(100_000))], codec=Codec.GZIP)
    assert down_convert(batch * 3, 1, limit_bytes=101_000)
    with pytest.raises(RecordTooLargeError):
        down_convert(batch * 3, 1, limit_bytes=99_000)
    with pytest.raises(RecordTooLargeError):
        up_convert(down_convert(batch * 3, 1), limit_bytes=250_000)


def test_nothing_becomes_nothing():
    assert up_convert(b"") == down_convert(b"", 0) == b""


class TestEncodeRecords:
    """`encode_records` keeps what it is not asked to renew."""

    def test_a_delete_horizon_leaves_the_timestamps(self):
        header = BatchHeader(5, last_offset_delta=9).with_delete_horizon(50_000)
        batch = encode_records(header, records())
        read = read_header(batch)
        assert read.delete_horizon_ms == read.base_timestamp == 50_000
        assert read.max_timestamp == 1009
        assert list(decode_records(batch)) == records()
        assert read_header(encode_batch([NewRecord(b"x")])).delete_horizon_ms is None

    def test_an_empty_batch_keeps_its_span_producer_and_time(self):
        producer = {"producer_id": 3, "producer_epoch": 1, "base_sequence": 8}
        header = BatchHeader(5, last_offset_delta=9, max_timestamp=70, **producer)
        batch = encode_records(header, [])
        read = read_header(batch)
        assert len(batch) == HEADER_BYTES
        assert list(decode_records(batch)) == []
        assert (read.last_offset, read.record_count, read.base_timestamp, read.max_timestamp) == (14, 0, 70, 70)
        assert (read.producer_id, read.producer_epoch, read.base_sequence) == (3, 1, 8)

    @pytest.mark.parametrize(
        ("header", "record"),
        [
            (BatchHeader(5), Record(4, 0, None, None)),
            (BatchHeader(5), Record(6, 0, None, None)),
            (BatchHeader(2**63), Record(2**63, 0, None, None)),
            (BatchHeader(0), Record(0, 2**63, None, None)),
            (BatchHeader(0).with_delete_horizon(-2), Record(0, 2**63 - 1, None, None)),
        ],
    )
    def test_what_has_no_place_is_refused(self, header, record):
        with pytest.raises(InvalidRecordError):
            encode_records(header, [record])
