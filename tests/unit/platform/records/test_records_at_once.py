"""Records decoded and encoded all at once are those decoded and encoded one by one, whatever the bytes."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace import kernel
from millrace.errors import RecordError
from millrace.records.batch import TIMESTAMP_TYPE_FLAG, BatchHeader, walk
from millrace.records.record import (
    NewRecord,
    Record,
    decode_body,
    decompress_body,
    encode_batch,
    encode_bodies,
    encode_bodies_plainly,
    kernel_batch,
    records_of,
)
from millrace_support.hostile_records import HostileRecords

needs_kernel = pytest.mark.skipif(kernel.native is None, reason=f"the record kernel is {kernel.description}")
FARTHEST = 2**63 - 1

octets = st.one_of(st.none(), st.binary(max_size=300))
new_records = st.builds(
    NewRecord,
    value=octets,
    key=octets,
    timestamp_ms=st.one_of(st.just(-1), st.integers(0, 2**42), st.integers(-(2**61), 2**61)),
    headers=st.lists(st.tuples(st.text(max_size=5), octets), max_size=70).map(tuple),
)


def body_of(records, **changes):
    batch = encode_batch(records)
    ((_, header),) = walk(batch)
    return header._replace(**changes), decompress_body(header, memoryview(batch))


def ends(decode, header, body):
    try:
        return list(decode(header, body))
    except RecordError as error:
        return type(error)


@settings(max_examples=60, deadline=None)
@given(records=st.lists(new_records, min_size=1, max_size=20), base_timestamp=st.integers(-(2**61), 2**61))
def test_encoded_bytes_are_the_same(records, base_timestamp):
    placed = list(enumerate(records))
    assert encode_bodies(placed, base_timestamp) == encode_bodies_plainly(placed, base_timestamp)


@settings(max_examples=60, deadline=None)
@given(records=st.lists(new_records, min_size=1, max_size=20))
def test_decoded_records_are_the_same(records):
    header, body = body_of(records)
    decoded = records_of(header, body)
    assert decoded == list(decode_body(header, body))
    assert {type(record) for record in decoded} == {Record}


def test_hostile_bytes_end_alike():
    hostile = HostileRecords(random.Random(11))
    refused = 0
    for _ in range(1500):
        batch = hostile.batch()
        try:
            ((_, header),) = walk(batch)
            body = decompress_body(header, memoryview(batch))
        except (RecordError, ValueError):
            continue
        found = ends(records_of, header, body)
        assert found == ends(decode_body, header, body)
        refused += isinstance(found, type)
    assert refused > 100


def test_sums_may_lie_beyond_64_bits():
    records = [NewRecord(b"v", timestamp_ms=0), NewRecord(b"v", timestamp_ms=FARTHEST)]
    header, body = body_of(records, base_offset=FARTHEST, base_timestamp=FARTHEST)
    assert [(record.offset, record.timestamp_ms) for record in records_of(header, body)] == [
        (FARTHEST, FARTHEST),
        (FARTHEST + 1, 2 * FARTHEST),
    ]


def test_log_append_time_is_every_record_s():
    header, body = body_of([NewRecord(b"v", timestamp_ms=3)] * 2, attributes=TIMESTAMP_TYPE_FLAG, max_timestamp=9)
    assert [record.timestamp_ms for record in records_of(header, body)] == [9, 9]


def test_a_batch_without_records_is_an_empty_list():
    assert records_of(BatchHeader(0), b"") == []


def test_any_buffer_will_do():
    header, body = body_of([NewRecord(b"value")])
    assert records_of(header, bytearray(body)) == records_of(header, memoryview(body)) == records_of(header, body)
    assert encode_batch([NewRecord(bytearray(b"value"))]) == encode_batch([NewRecord(b"value")])


@pytest.mark.parametrize(
    "record",
    [
        NewRecord("text"),
        NewRecord(b"v", key=5),
        NewRecord(b"v", headers=((b"bytes", b"v"),)),
        NewRecord(b"v", headers=(("key", "text"),)),
        NewRecord(b"v", headers=(("key",),)),
        NewRecord(b"v", headers=None),
    ],
)
def test_what_is_no_record_is_refused(record):
    with pytest.raises((TypeError, ValueError, AttributeError)):
        encode_batch([record])


def test_a_key_of_lone_surrogates_is_refused():
    with pytest.raises(UnicodeEncodeError):
        encode_batch([NewRecord(b"v", headers=(("\ud800", b""),))])


@needs_kernel
def test_records_are_of_a_tuple_s_type():
    header, body = body_of([NewRecord(b"value")])
    with pytest.raises(TypeError, match="tuple"):
        kernel.native.read_records(kernel_batch(header, body), dict)
    with pytest.raises(TypeError):
        kernel.native.write_records([5])
