"""A fetched batch becomes one that can be produced: the same records, without gaps, and a map to where they were."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.client.producer.ready_batch import checked_header
from millrace.errors import CorruptRecordError, RecordError
from millrace.records.batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    read_header,
    sealed_batch,
)
from millrace.records.compression import Codec, compress
from millrace.records.rebatch import SourceRun, merged, producible
from millrace.records.record import NewRecord, Record, encode_batch, encode_records, read_records
from millrace.records.varint import encode_varint

octets = st.one_of(st.none(), st.binary(max_size=200))
contents = st.tuples(
    st.one_of(st.just(-1), st.integers(0, 2**42), st.integers(-(2**61), 2**61)),
    octets,
    octets,
    st.lists(st.tuples(st.text(max_size=5), octets), max_size=4).map(tuple),
)


@st.composite
def batches(draw):
    """Batches as compaction, brokers and producers leave them, with the records that are in them."""
    held = draw(st.lists(st.tuples(st.booleans(), contents), min_size=1, max_size=30))
    base_offset = draw(st.integers(0, 2**62))
    records = [Record(base_offset + delta, *content) for delta, (is_kept, content) in enumerate(held) if is_kept]
    flags = draw(st.sampled_from([0, TIMESTAMP_TYPE_FLAG, TRANSACTIONAL_FLAG, DELETE_HORIZON_FLAG]))
    header = BatchHeader(
        base_offset,
        partition_leader_epoch=draw(st.integers(-1, 9)),
        attributes=draw(st.sampled_from(Codec)) | flags,
        last_offset_delta=len(held) - 1,
        base_timestamp=draw(st.integers(0, 2**42)),
        max_timestamp=draw(st.integers(0, 2**42)),
        producer_id=7,
        producer_epoch=1,
        base_sequence=3,
    )
    return encode_records(header, records)


def rebatched(batch):
    return producible(read_header(batch), memoryview(batch))


def content(records):
    return [record[1:] for record in records]


@settings(max_examples=300, deadline=None)
@given(batch=batches())
def test_what_is_sent_are_the_same_records_and_the_runs_say_where_they_were(batch):
    source, made = read_records(memoryview(batch)), rebatched(batch)
    if not source:
        assert made is None
        return
    checked_header("t", 0, bytes(made.batch))
    target = read_records(memoryview(made.batch))
    assert content(target) == content(source)
    base = read_header(made.batch).base_offset
    assert [record.offset - base for record in target] == list(range(len(source)))
    assert [one.index for one in made.runs] == [
        sum(run.count for run in made.runs[:at]) for at in range(len(made.runs))
    ]
    mapped = [one.source_offset + step for one in made.runs for step in range(one.count)]
    assert mapped == [record.offset for record in source]
    assert all(after.source_offset > one.source_offset + one.count for one, after in pairwise(made.runs))
    assert read_header(made.batch).max_timestamp == max(record.timestamp_ms for record in source) or (
        made.batch == batch  # a whole batch stays as it is, whatever it says
    )


@settings(max_examples=60, deadline=None)
@given(records=st.lists(contents, min_size=1, max_size=20), codec=st.sampled_from(Codec))
def test_a_whole_batch_is_not_touched(records, codec):
    batch = encode_batch([NewRecord(v, k, t, h) for t, k, v, h in records], base_offset=40, codec=codec)
    assert rebatched(batch) == (batch, (SourceRun(40, 0, len(records)),))


def test_names_of_headers_stay_byte_for_byte():
    """Decoded, a name that is no UTF-8, or null, would be another one."""
    headers = b"".join((b"\x04", encode_varint(2), b"\xff\xfe", b"\x01", b"\x01", encode_varint(1), b"x"))
    fields = b"\x00" + encode_varint(0) + encode_varint(5) + b"\x01\x01" + headers
    body = encode_varint(len(fields)) + fields
    for codec in Codec:
        header = BatchHeader(9, attributes=codec, last_offset_delta=6, base_timestamp=1, record_count=1)
        made = rebatched(sealed_batch(header, compress(codec, body)))
        assert made.runs == (SourceRun(14, 0, 1),)
        again = rebatched(
            sealed_batch(read_header(made.batch)._replace(last_offset_delta=1), made.batch[HEADER_BYTES:])
        )
        assert again.batch == made.batch
        if codec is Codec.NONE:
            assert bytes(made.batch).endswith(headers)


def test_a_control_batch_is_nothing_to_send():
    assert rebatched(encode_batch([NewRecord(b"v")], flags=CONTROL_FLAG)) is None


def holey(**changes):
    batch = encode_batch([NewRecord(b"value")] * 3)
    return sealed_batch(read_header(batch)._replace(last_offset_delta=9, **changes), batch[HEADER_BYTES:])


@pytest.mark.parametrize(
    "batch",
    [
        holey()[:-1] + b"\x07",
        holey(record_count=2),
        holey(record_count=4),
        sealed_batch(read_header(holey())._replace(last_offset_delta=1), holey()[HEADER_BYTES:]),
        holey(attributes=Codec.ZSTD),
        sealed_batch(read_header(holey()), b"\x7e" + holey()[HEADER_BYTES + 1 :]),
        sealed_batch(read_header(holey()), b"\x01" + holey()[HEADER_BYTES + 1 :]),
    ],
    ids=["CRC", "too many", "too few", "offset behind the last", "codec", "length beyond", "negative length"],
)
def test_damage_in_what_is_written_again_is_found(batch):
    with pytest.raises(RecordError) as raised:
        rebatched(batch)
    assert isinstance(raised.value, CorruptRecordError)


@settings(max_examples=100, deadline=None)
@given(
    several=st.lists(st.lists(contents, min_size=1, max_size=3), min_size=2, max_size=5),
    gaps=st.lists(st.integers(0, 1), min_size=5, max_size=5),
    codec=st.sampled_from(Codec),
)
def test_merged_batches_have_all_records_in_order_and_runs_of_where_they_were(several, gaps, codec):
    batches_, offset = [], 40
    for held, gap in zip(several, gaps, strict=False):
        offset += gap
        records = [NewRecord(value, key, time, headers) for time, key, value, headers in held]
        batches_.append(encode_batch(records, base_offset=offset, codec=codec))
        offset += len(held)
    source = [record for one in batches_ for record in read_records(memoryview(one))]
    made = merged([(read_header(one), memoryview(one)) for one in batches_])
    if made is None:
        odd = [one for one in source if one.timestamp_ms < -1 or any(not name for name, _ in one.headers)]
        assert odd or any("\ufffd" in name for one in source for name, _ in one.headers)
        return
    header = checked_header("t", 0, bytes(made.batch))
    assert header.codec_id == codec
    assert content(read_records(memoryview(made.batch))) == content(source)
    mapped = [one.source_offset + step for one in made.runs for step in range(one.count)]
    assert mapped == [record.offset for record in source]


def test_batches_that_cannot_be_read_are_not_merged():
    batch = encode_batch([NewRecord(b"one")])
    lying = sealed_batch(read_header(batch)._replace(record_count=2, last_offset_delta=1), batch[HEADER_BYTES:])
    assert merged([(read_header(one), memoryview(one)) for one in (batch, lying)]) is None
