"""Message sets and batches against kafka-python's encoders and decoders, in both directions."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from millrace.records.batch import TIMESTAMP_TYPE_FLAG, BatchHeader
from millrace.records.compression import Codec
from millrace.records.convert import down_convert, up_convert
from millrace.records.message_set import decode_message_set, encode_message_set
from millrace.records.record import Record, decode_records, encode_records

LEGACY_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
MAX_BATCH_BYTES = 1 << 30

data = st.none() | st.binary(max_size=40)
timestamps = st.integers(-1, 2**62)
gaps = st.lists(st.integers(1, 1 << 20), min_size=1, max_size=12)
headers = st.lists(st.tuples(st.text(max_size=5), data), max_size=3).map(tuple)
no_headers = st.just(())
anywhere = st.integers(0, 2**40)
at_nought = st.just(0)


@st.composite
def some_records(draw, first_offsets=anywhere, headers=no_headers):
    offset = draw(first_offsets) - 1
    found = []
    for gap in draw(gaps):
        offset += gap
        found.append(Record(offset, draw(timestamps), draw(data), draw(data), draw(headers)))
    return found


def peer_decoded(buffer):
    found = []
    for batch in MemoryRecords(buffer):
        assert batch.validate_crc()
        for record in batch:
            timestamp_ms = -1 if record.timestamp is None else record.timestamp
            found.append(Record(record.offset, timestamp_ms, record.key, record.value, tuple(record.headers)))
    return found


def peer_encoded(records, magic, codec):
    builder = MemoryRecordsBuilder(magic, codec, MAX_BATCH_BYTES, offset=records[0].offset)
    for record in records:
        builder.skip(record.offset - builder.next_offset())
        assert builder.append(record.timestamp_ms, record.key, record.value, list(record.headers)) is not None
    builder.close()
    return bytes(builder.buffer())


def without_timestamps(records):
    return [record._replace(timestamp_ms=-1) for record in records]


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
@settings(max_examples=40, deadline=None)
@given(records=some_records())
def test_kafka_python_reads_our_message_sets(magic, codec, records):
    encoded = encode_message_set(records, magic=magic, codec=codec)
    assert peer_decoded(encoded) == (records if magic else without_timestamps(records))


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
@settings(max_examples=40, deadline=None)
@given(records=some_records())
def test_we_read_kafka_pythons_message_sets(magic, codec, records):
    encoded = bytearray(peer_encoded(records, magic, codec))
    if codec:  # it leaves a wrapper's offset to the broker
        struct.pack_into(">q", encoded, 0, records[-1].offset)
    assert list(decode_message_set(encoded)) == (records if magic else without_timestamps(records))


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@settings(max_examples=20, deadline=None)
@given(records=some_records(first_offsets=at_nought))
def test_we_read_a_wrapper_without_a_place_as_kafka_python_does(codec, records):
    encoded = peer_encoded(records, 1, codec)
    assert list(decode_message_set(encoded)) == peer_decoded(encoded)


@pytest.mark.parametrize("magic", [0, 1])
@settings(max_examples=40, deadline=None)
@given(records=some_records())
def test_messages_without_a_codec_are_the_same_bytes(magic, records):
    assert encode_message_set(records, magic=magic) == peer_encoded(records, magic, Codec.NONE)


@settings(max_examples=40, deadline=None)
@given(records=some_records())
def test_both_give_a_wrappers_log_append_time_to_all(records):
    encoded = encode_message_set(records, magic=1, codec=Codec.GZIP, log_append_time=True)
    assert list(decode_message_set(encoded)) == peer_decoded(encoded)


@pytest.mark.parametrize("codec", Codec)
@settings(max_examples=40, deadline=None)
@given(records=some_records(headers=headers), log_append_time=st.booleans(), horizon=st.none() | timestamps)
def test_kafka_python_reads_our_batches(codec, records, log_append_time, horizon):
    flags = TIMESTAMP_TYPE_FLAG if log_append_time else 0
    first, last = records[0].offset, records[-1].offset
    header = BatchHeader(first, attributes=codec | flags, last_offset_delta=last - first, max_timestamp=4711)
    if horizon is not None:
        header = header.with_delete_horizon(horizon)
    expected = [one._replace(timestamp_ms=4711) for one in records] if log_append_time else records
    batch = encode_records(header, records)
    assert peer_decoded(batch) == list(decode_records(batch)) == expected


@pytest.mark.parametrize("codec", Codec)
@settings(max_examples=40, deadline=None)
@given(records=some_records(first_offsets=at_nought, headers=headers))
def test_we_read_kafka_pythons_batches(codec, records):
    batch = peer_encoded(records, 2, codec)
    assert list(decode_records(batch)) == records


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
@settings(max_examples=40, deadline=None)
@given(records=some_records(headers=headers))
def test_conversions_agree_with_kafka_python(magic, codec, records):
    header = BatchHeader(records[0].offset, last_offset_delta=records[-1].offset - records[0].offset, attributes=codec)
    bare = [record._replace(headers=()) for record in records]
    expected = bare if magic else without_timestamps(bare)
    message_set = down_convert(encode_records(header, records), magic)
    assert peer_decoded(message_set) == expected
    assert peer_decoded(up_convert(message_set)) == expected
