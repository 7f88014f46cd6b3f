"""Produce requests for one partition: what is read the short way is what the long way reads, and so are the answers."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.errors import MalformedRequestError
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, encode, milliseconds
from millrace.wire.encoder import contents
from millrace.wire.produce import (
    PartitionProduced,
    TopicProduced,
    decode_produce_request,
    decode_without_copying,
    encode_produce_response,
    one_produce_reader,
    produce_place,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
VERSIONS = st.integers(3, 13)
NO_ID, TOPIC_ID = UUID(int=0), UUID(int=5)
NAMES = st.text(max_size=40).filter(lambda name: "\0" not in name)
SIZES = st.sampled_from([0, 1, 100, 125, 126, 127, 128, 16_381, 16_382, 16_383, 16_384, 70_000, 2_097_151, 2_097_152])
DAMAGE = st.lists(
    st.tuples(st.sampled_from(["set", "insert", "cut"]), st.floats(0, 1), st.integers(0, 255)), max_size=3
)


def body_of(version, name, records, *, acks=-1, partition=0, topic_id=TOPIC_ID):
    data = [{"name": name, "topic_id": topic_id, "partition_data": [{"index": partition, "records": records}]}]
    fields = {"transactional_id": None, "acks": acks, "timeout": 1000, "topic_data": data}
    return encode(ApiKey.PRODUCE, version, Direction.REQUEST, fields)


def long_way(version, body):
    """What the request says of its only partition, None where it is not so plain or no request."""
    try:
        request = decode_produce_request(version, body)
    except MalformedRequestError:
        return None
    if request.transactional_id is not None or [len(one.partition_data) for one in request.topic_data] != [1]:
        return None
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    where = (topic.topic_id or NO_ID) if version >= 13 else topic.name
    if partition.records is None:
        return None
    return request.acks, milliseconds(request.timeout), where, partition.index, bytes(partition.records)


def short_way(version, body):
    one = one_produce_reader(version)(memoryview(body))
    if one is None:
        return None
    acks, timeout_ms, place, records = one
    try:
        known = produce_place(version, place)
    except MalformedRequestError:
        return None
    return acks, timeout_ms, known.topic_id if version >= 13 else known.name, known.partition, bytes(records)


@given(st.integers(5, 13), NAMES, SIZES, st.integers(-(2**15), 2**15 - 1), st.tuples(INT32, st.uuids()))
def test_plain_requests_are_read_the_short_way(version, name, size, acks, place):
    partition, topic_id = place
    body = body_of(version, name, bytes(size), acks=acks, partition=partition, topic_id=topic_id)
    read = short_way(version, body)
    assert read == (acks, 1000, topic_id if version >= 13 else name, partition, bytes(size))
    assert read == long_way(version, body)


@settings(max_examples=600)
@given(VERSIONS, st.sampled_from(["x", "orders", "\u00e4"]), st.sampled_from([0, 5, 200]), DAMAGE)
def test_what_is_read_the_short_way_is_what_the_long_way_reads(version, name, size, damage):
    body = bytearray(body_of(version, name, bytes(size)))
    for kind, place, byte in damage:
        at = int(place * len(body))
        body[at : at + (kind != "insert")] = b"" if kind == "cut" else bytes([byte])
    read = short_way(version, bytes(body))
    assert read is None or read == long_way(version, bytes(body))


@pytest.mark.parametrize("version", range(5, 14))
def test_every_byte_of_a_request_counts_alike(version):
    body = body_of(version, "orders", bytes(130))
    accepted = 0
    for at in range(len(body) - 130 - 3):
        for byte in range(256):
            changed = body[:at] + bytes([byte]) + body[at + 1 :]
            read = short_way(version, changed)
            accepted += read is not None
            assert read is None or read == long_way(version, changed)
    assert accepted > 1000


def test_a_request_of_another_form_is_left_to_the_long_way():
    data = [{"name": "t", "partition_data": [{"index": index, "records": b"x"} for index in range(2)]}]
    fields = {"transactional_id": None, "acks": 1, "timeout": 1, "topic_data": data}
    assert short_way(9, encode(ApiKey.PRODUCE, 9, Direction.REQUEST, fields)) is None
    assert short_way(9, encode(ApiKey.PRODUCE, 9, Direction.REQUEST, fields | {"topic_data": data + data})) is None
    one = [{"name": "t", "partition_data": [{"index": 0, "records": b"x"}]}]
    transactional = fields | {"topic_data": one, "transactional_id": "t"}
    assert short_way(9, encode(ApiKey.PRODUCE, 9, Direction.REQUEST, transactional)) is None
    long_name = "n" * 200
    assert short_way(9, body_of(9, long_name, b"x")) is None
    assert decode_without_copying(9, body_of(9, long_name, b"x")).topic_data[0].name == long_name


@given(st.integers(5, 13), NAMES, INT32, st.uuids(), st.tuples(INT64, INT64, INT64))
def test_answers_are_those_of_the_long_way(version, name, partition, topic_id, fields):
    one = one_produce_reader(version)(memoryview(body_of(version, name, b"x", partition=partition, topic_id=topic_id)))
    place = produce_place(version, one[2])
    produced = TopicProduced(name, topic_id, [PartitionProduced(partition, 0, *fields)])
    assert place.appended(*fields) == b"".join(map(contents, encode_produce_response(version, [produced])))
