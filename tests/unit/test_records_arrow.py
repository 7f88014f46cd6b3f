"""The Arrow kernel gives what `decode_records` gives, for good bytes and for bad."""

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.errors import CorruptRecordError, RecordError
from millrace.records import arrow
from millrace.records.arrow import MICROSECONDS_LIMIT, RECORD_SCHEMA, decode_to_arrow
from millrace.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_FLAG,
    CRC_POSITION,
    HEADER_BYTES,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    compute_crc,
)
from millrace.records.compression import Codec
from millrace.records.record import NewRecord, Record, decode_records, encode_batch

octets = st.one_of(st.none(), st.binary(max_size=200))
new_records = st.builds(
    NewRecord,
    value=octets,
    key=octets,
    timestamp_ms=st.one_of(st.just(-1), st.integers(0, 2**42), st.integers(-(2**62), 2**62)),
    headers=st.lists(st.tuples(st.text(max_size=5), octets), max_size=3).map(tuple),
)
batches = st.lists(st.tuples(st.lists(new_records, min_size=1, max_size=80), st.sampled_from(Codec)), max_size=4)


def log_of(batches):
    out, offset = b"", 0
    for records, codec in batches:
        out += encode_batch(records, base_offset=offset, codec=codec)
        offset += len(records)
    return out


def expected_timestamp(milliseconds):
    return None if milliseconds == NO_TIMESTAMP or abs(milliseconds) > MICROSECONDS_LIMIT else milliseconds * 1000


def reference(buffer, from_offset=0, until_offset=2**63 - 1):
    return [
        record._replace(timestamp_ms=expected_timestamp(record.timestamp_ms))
        for record in decode_records(buffer)
        if from_offset <= record.offset < until_offset
    ]


def kernel(buffer, **wanted):
    rows = []
    for batch in decode_to_arrow(buffer, **wanted):
        batch.validate(full=True)
        assert batch.schema == RECORD_SCHEMA
        plain = batch.set_column(1, "timestamp", batch.column("timestamp").cast(pa.int64()))
        for row in plain.to_pylist():
            headers = tuple((header["key"], header["value"]) for header in row["headers"])
            rows.append(Record(row["offset"], row["timestamp"], row["key"], row["value"], headers))
    return rows


def resealed(batch):
    batch[CRC_POSITION : CRC_POSITION + 4] = compute_crc(batch, 0, len(batch)).to_bytes(4, "big")
    return bytes(batch)


@settings(deadline=None)
@given(batches, st.integers(0, 100), st.integers(0, 200))
def test_equals_the_record_decoder_in_any_range(batches, from_offset, until_offset):
    buffer = log_of(batches)
    wanted = {"from_offset": from_offset, "until_offset": until_offset}
    assert kernel(buffer, **wanted) == reference(buffer, **wanted)


@settings(max_examples=400, deadline=None)
@given(batches, st.randoms(use_true_random=False))
def test_hostile_bytes_raise_record_errors_or_decode_alike(batches, chance):
    buffer = bytearray(log_of([(records, Codec.NONE) for records, _ in batches][:1]))
    for _ in range(chance.randint(1, 4) if len(buffer) > HEADER_BYTES else 0):
        buffer[chance.randrange(HEADER_BYTES, len(buffer))] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
    hostile = resealed(buffer) if buffer else b""
    try:
        want = reference(hostile)
    except RecordError:
        want = None
    if want is None or any(abs(record.offset) >= 2**63 for record in want):
        with pytest.raises(RecordError):
            kernel(hostile)
    else:
        same_as_reference_or_too_long_integer(hostile, want)


def same_as_reference_or_too_long_integer(hostile, want):
    try:
        assert kernel(hostile) == want
    except CorruptRecordError as error:
        assert "longer than 64 bits" in str(error)  # noqa: PT017 - the reference reads 70 bits


def test_a_cut_tail_is_passed_over():
    whole = log_of([([NewRecord(b"a")], Codec.NONE), ([NewRecord(b"b")], Codec.NONE)])
    assert [record.value for record in kernel(whole[:-1])] == [b"a"]
    assert kernel(whole[:10]) == []


def test_a_wrong_crc_is_seen():
    batch = bytearray(log_of([([NewRecord(b"value")], Codec.NONE)]))
    batch[-1] ^= 0xFF
    with pytest.raises(CorruptRecordError, match="CRC-32C"):
        kernel(bytes(batch))


def test_control_batches_are_passed_over():
    batch = bytearray(encode_batch([NewRecord(b"marker")]))
    batch[ATTRIBUTES_POSITION + 1] |= CONTROL_FLAG
    assert kernel(resealed(batch) + encode_batch([NewRecord(b"a")], base_offset=1)) == [Record(1, None, None, b"a")]


def test_log_append_time_is_the_batch_s_timestamp():
    batch = bytearray(encode_batch([NewRecord(b"a", timestamp_ms=5), NewRecord(b"b", timestamp_ms=9)]))
    batch[ATTRIBUTES_POSITION + 1] |= TIMESTAMP_TYPE_FLAG
    assert [record.timestamp_ms for record in kernel(resealed(batch))] == [9000, 9000]


def test_blocks_are_bounded(monkeypatch):
    monkeypatch.setattr(arrow, "BLOCK_BYTES", 300)
    chance = random.Random(1)
    batches = [([NewRecord(chance.randbytes(100))], Codec.ZSTD if n % 2 else Codec.NONE) for n in range(10)]
    blocks = list(decode_to_arrow(log_of(batches)))
    assert [block.num_rows for block in blocks] == [2, 2, 2, 2, 2]
    assert kernel(log_of(batches)) == reference(log_of(batches))
