"""Arrow columns, by the compiled kernel and by numpy, are what `decode_records` gives, for good bytes and for bad."""

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace import kernel
from millrace.errors import CorruptRecordError, RecordError, UnsupportedCodecError
from millrace.records import arrow
from millrace.records.arrow import COMPILED, PLAIN, PassedOver, decode_to_arrow
from millrace.records.arrow_columns import RECORD_SCHEMA
from millrace.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_FLAG,
    CRC_POSITION,
    HEADER_BYTES,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    compute_crc,
    walk,
)
from millrace.records.compression import Codec
from millrace.records.message_set import decode_message_set, encode_message_set
from millrace.records.record import NewRecord, Record, decode_records, encode_batch, records_of
from millrace.times import MAX_DATETIME_MS, MIN_DATETIME_MS

needs_kernel = pytest.mark.skipif(kernel.native is None, reason=f"the record kernel is {kernel.description}")
both = pytest.mark.parametrize("path", [pytest.param("compiled", marks=needs_kernel), "numpy"])
PATHS = {"compiled": COMPILED, "numpy": PLAIN}
LEGACY_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]

octets = st.one_of(st.none(), st.binary(max_size=200))
new_records = st.builds(
    NewRecord,
    value=octets,
    key=octets,
    timestamp_ms=st.one_of(st.just(-1), st.integers(0, 2**42), st.integers(-(2**62), 2**62 - 1)),
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
    in_calendar = MIN_DATETIME_MS <= milliseconds <= MAX_DATETIME_MS
    return milliseconds * 1000 if in_calendar and milliseconds != NO_TIMESTAMP else None


def reference(buffer, from_offset=0, until_offset=2**63 - 1, decode=decode_records):
    return [
        record._replace(timestamp_ms=expected_timestamp(record.timestamp_ms))
        for record in decode(buffer)
        if from_offset <= record.offset < until_offset
    ]


def columns(path, buffer, **wanted):
    return list(decode_to_arrow(buffer, **wanted, decoders=PATHS[path]))


def decoded(path, buffer, **wanted):
    rows = []
    for batch in columns(path, buffer, **wanted):
        batch.validate(full=True)
        assert batch.select(RECORD_SCHEMA.names).schema == RECORD_SCHEMA
        plain = batch.set_column(1, "timestamp", batch.column("timestamp").cast(pa.int64()))
        for row in plain.to_pylist():
            headers = tuple((header["key"], header["value"]) for header in row["headers"])
            rows.append(Record(row["offset"], row["timestamp"], row["key"], row["value"], headers))
    return rows


def resealed(batch):
    batch[CRC_POSITION : CRC_POSITION + 4] = compute_crc(batch, 0, len(batch)).to_bytes(4, "big")
    return bytes(batch)


def body_of(batch):
    [(_, header)] = walk(batch)
    return header, batch[HEADER_BYTES:]


def flagged(flag, *records, base_offset=0):
    batch = bytearray(encode_batch(records, base_offset=base_offset))
    batch[ATTRIBUTES_POSITION + 1] |= flag
    return resealed(batch)


@both
@settings(max_examples=60, deadline=None)
@given(batches=batches, from_offset=st.integers(0, 100), until_offset=st.integers(0, 200))
def test_equals_the_record_decoder_in_any_range(path, batches, from_offset, until_offset):
    buffer = log_of(batches)
    wanted = {"from_offset": from_offset, "until_offset": until_offset}
    assert decoded(path, buffer, **wanted) == reference(buffer, **wanted)


@both
@settings(max_examples=100, deadline=None)
@given(batches=batches, chance=st.randoms(use_true_random=False))
def test_hostile_bytes_raise_record_errors_or_decode_alike(path, batches, chance):
    buffer = bytearray(log_of([(records, Codec.NONE) for records, _ in batches][:1]))
    for _ in range(chance.randint(1, 4) if len(buffer) > HEADER_BYTES else 0):
        buffer[chance.randrange(HEADER_BYTES, len(buffer))] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
    hostile = resealed(buffer) if buffer else b""
    try:
        want = reference(hostile)
    except RecordError as error:
        with pytest.raises(type(error)):
            decoded(path, hostile)
    else:
        assert decoded(path, hostile) == want


@both
@pytest.mark.parametrize("magic", [0, 1])
@settings(max_examples=30, deadline=None)
@given(
    runs=st.lists(st.tuples(st.lists(new_records, min_size=1, max_size=9), st.sampled_from(LEGACY_CODECS)), max_size=4),
    from_offset=st.integers(0, 20),
    until_offset=st.integers(0, 40),
)
def test_message_sets_equal_their_own_decoder(path, magic, runs, from_offset, until_offset):
    buffer, offset = b"", 0
    for records, codec in runs:
        placed = [Record(offset + n, one.timestamp_ms, one.key, one.value) for n, one in enumerate(records)]
        buffer += encode_message_set(placed, magic=magic, codec=codec)
        offset += len(records)
    wanted = {"from_offset": from_offset, "until_offset": until_offset}
    assert decoded(path, buffer, **wanted) == reference(buffer, **wanted, decode=decode_message_set)


@both
def test_a_log_may_go_from_message_sets_to_batches(path):
    old = [Record(n, 5, b"k", b"v%d" % n) for n in range(6)]
    buffer = encode_message_set(old[:2], magic=0) + encode_message_set(old[2:], magic=1, codec=Codec.GZIP)
    buffer += encode_batch([NewRecord(b"new")], base_offset=6)
    assert [(record.offset, record.value) for record in decoded(path, buffer)] == [
        *[(n, b"v%d" % n) for n in range(6)],
        (6, b"new"),
    ]


@both
def test_a_wrapper_s_log_append_time_is_its_messages_time(path):
    records = [Record(n, 5 + n, None, b"v") for n in range(3)]
    buffer = encode_message_set(records, magic=1, codec=Codec.SNAPPY, log_append_time=True)
    assert [record.timestamp_ms for record in decoded(path, buffer)] == [7000, 7000, 7000]


@both
def test_a_wrong_crc_of_a_message_is_seen(path):
    messages = bytearray(encode_message_set([Record(0, 5, None, b"value")], magic=1))
    messages[-1] ^= 0xFF
    with pytest.raises(CorruptRecordError, match="CRC-32"):
        decoded(path, bytes(messages))


@both
def test_a_cut_tail_is_passed_over(path):
    whole = log_of([([NewRecord(b"a")], Codec.NONE), ([NewRecord(b"b")], Codec.NONE)])
    assert [record.value for record in decoded(path, whole[:-1])] == [b"a"]
    assert decoded(path, whole[:10]) == []


@both
def test_a_wrong_crc_is_seen(path):
    batch = bytearray(log_of([([NewRecord(b"value")], Codec.NONE)]))
    batch[-1] ^= 0xFF
    with pytest.raises(CorruptRecordError, match="CRC-32C"):
        decoded(path, bytes(batch))


@both
def test_an_undefined_codec_is_named(path):
    with pytest.raises(UnsupportedCodecError, match="7"):
        decoded(path, flagged(7, NewRecord(b"value")))


@both
def test_control_batches_are_passed_over(path):
    buffer = flagged(CONTROL_FLAG, NewRecord(b"marker")) + encode_batch([NewRecord(b"a")], base_offset=1)
    passed_over = PassedOver()
    assert decoded(path, buffer, passed_over=passed_over) == [Record(1, None, None, b"a")]
    assert passed_over == PassedOver(control=[(0, 1)])


@both
def test_log_append_time_is_the_batch_s_timestamp(path):
    batch = flagged(TIMESTAMP_TYPE_FLAG, NewRecord(b"a", timestamp_ms=5), NewRecord(b"b", timestamp_ms=9))
    assert [record.timestamp_ms for record in decoded(path, batch)] == [9000, 9000]


@both
def test_blocks_are_bounded(path, monkeypatch):
    monkeypatch.setattr(arrow, "BLOCK_BYTES", 300)
    chance = random.Random(1)
    batches = [([NewRecord(chance.randbytes(100))], Codec.ZSTD if n % 2 else Codec.NONE) for n in range(10)]
    assert [block.num_rows for block in columns(path, log_of(batches))] == [2, 2, 2, 2, 2]
    assert decoded(path, log_of(batches)) == reference(log_of(batches))


SEQUENCES = [
    bytes(octets)
    for first in (0x41, 0x7F, 0x80, 0xBF, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5)
    for second in (0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0)
    for octets in [
        (first,),
        (first, second),
        (first, second, 0x80),
        (first, second, 0xBF, 0x80),
        (first, second, 0x80, 0x41),
    ]
]
FOLLOWING = bytes(8192)  # whose length, 80 80 01, goes on like UTF-8


@both
def test_a_header_s_key_is_shown_as_python_reads_it_and_kept_where_it_is_no_text(path):
    for key in SEQUENCES:
        batch = bytearray(encode_batch([NewRecord(b"v", headers=(("x" * len(key), FOLLOWING),))]))
        at = batch.index(b"x" * len(key))
        batch[at : at + len(key)] = key
        sealed = resealed(batch)
        want = key.decode(errors="replace")
        assert decoded(path, sealed)[0].headers[0][0] == want
        [columns_of_it] = columns(path, sealed)
        kept = None if want.encode() == key else [key]
        names = columns_of_it.schema.names
        assert (columns_of_it.column("header_keys").to_pylist() if "header_keys" in names else [None]) == [kept]
        [record] = decode_records(sealed)
        assert record.headers == ((want, FOLLOWING),)
        assert records_of(*body_of(sealed)) == [record]


@both
@pytest.mark.parametrize("milliseconds", [
    -(2**63) + 1, -(2**62), MIN_DATETIME_MS - 1, MIN_DATETIME_MS, -2, NO_TIMESTAMP, 0, MAX_DATETIME_MS,
    MAX_DATETIME_MS + 1, 1_700_000_000_000_000, (2**63 - 1) // 1000, 2**62, 2**63 - 1,
])  # fmt: skip
@pytest.mark.parametrize("magic", [1, 2])
def test_a_time_beyond_the_calendar_is_null_and_kept_beside_it(path, magic, milliseconds):
    plain = Record(1, 5, b"k", b"v")
    if magic == 2:
        buffer = encode_batch([NewRecord(b"v", timestamp_ms=milliseconds)])
        buffer += encode_batch([NewRecord(b"v", b"k", timestamp_ms=5)], base_offset=1)
    else:
        buffer = encode_message_set([Record(0, milliseconds, None, b"v"), plain], magic=1)
    assert [record.timestamp_ms for record in decoded(path, buffer)] == [expected_timestamp(milliseconds), 5000]
    [batch] = columns(path, buffer)
    is_kept = milliseconds != NO_TIMESTAMP and expected_timestamp(milliseconds) is None
    assert ("timestamp_ms" in batch.schema.names) is is_kept
    if is_kept:
        assert batch.column("timestamp_ms").to_pylist() == [milliseconds, None]
        assert batch.column("header_keys").null_count == 2
    [rest] = columns(path, buffer, from_offset=1)
    assert rest.schema == RECORD_SCHEMA


@both
def test_a_null_header_key_is_the_empty_one_and_kept(path):
    body = bytes.fromhex("00 0000 01 0276 04 010261 026e01")  # two headers: null, and n without a value
    batch = bytearray(encode_batch([NewRecord(b"v")])[:HEADER_BYTES]) + bytes([len(body) * 2]) + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    sealed = resealed(batch)
    headers = (("", b"a"), ("n", None))
    assert decoded(path, sealed)[0].headers == headers
    assert columns(path, sealed)[0].column("header_keys").to_pylist() == [[None, b"n"]]
    assert [record.headers for record in decode_records(sealed)] == [headers]
    assert [record.headers for record in records_of(*body_of(sealed))] == [headers]


@needs_kernel
def test_what_two_gibibytes_do_not_hold_is_refused():
    body = bytes(1 << 20)
    with pytest.raises(ValueError, match="2 GiB"):
        kernel.native.decode_message_sets([(body, -1, 0, 0, False)] * 2048, 0, 1)


@needs_kernel
@pytest.mark.parametrize(
    "wrong", [[None], [()], [(b"", 1)], [("text", 0, 0, 0, 0, False)], [(b"", 0, 2**31, 0, 0, False)]]
)
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises((TypeError, OverflowError)):
        kernel.native.decode_batches(wrong, 0, 1)


@needs_kernel
def test_a_count_takes_no_room_that_the_bytes_do_not_justify():
    with pytest.raises(CorruptRecordError, match="more records are counted"):
        kernel.native.decode_batches([(bytes(100), 0, 2**31 - 1, 0, 2**31 - 1, False)], 0, 1)
