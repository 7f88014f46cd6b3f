"""Hand-written request decoders against kio's encoders; hostile bytes give the one typed error."""

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.errors import MalformedRequestError
from millrace.wire.api import ApiKey
from millrace.wire.cold import Direction, decode, encode
from millrace.wire.encoder import Encoder
from millrace.wire.fetch import FetchPartition, PartitionKey, decode_fetch_request
from millrace.wire.produce import decode_produce_request, decode_without_copying

NAMES = st.text(max_size=10)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
POSITIVE = st.integers(0, 2**31 - 1)
IDS = st.uuids().filter(lambda value: value != UUID(int=0))
TOPICS = st.tuples(NAMES, IDS)
DECODERS = {
    ApiKey.PRODUCE: (decode_produce_request, range(14)),
    ApiKey.FETCH: (decode_fetch_request, range(19)),
}
CASES = [(decoder, version) for decoder, versions in DECODERS.values() for version in versions]
CASES += [(decode_without_copying, version) for version in range(3, 14)]


@given(st.integers(3, 13), st.tuples(st.none() | NAMES, st.sampled_from([-1, 0, 1]), POSITIVE), TOPICS,
       st.lists(st.tuples(INT32, st.binary(max_size=30))))  # fmt: skip
def test_produce_requests(version, head, topic, partitions):
    (transactional_id, acks, timeout_ms), (name, topic_id) = head, topic
    data = [{"index": index, "records": records} for index, records in partitions]
    fields = {"transactional_id": transactional_id, "acks": acks, "timeout": timeout_ms,
              "topic_data": [{"name": name, "topic_id": topic_id, "partition_data": data}]}  # fmt: skip
    body = encode(ApiKey.PRODUCE, version, Direction.REQUEST, fields)
    for request in (decode_without_copying(version, body), decode_produce_request(version, body)):
        (topic,) = request.topic_data
        assert (request.transactional_id, request.acks) == (transactional_id, acks)
        assert topic.topic_id == topic_id if version >= 13 else topic.name == name
        assert [(one.index, bytes(one.records)) for one in topic.partition_data] == partitions


@given(st.integers(0, 2), INT32, NAMES, st.binary(max_size=30))
def test_produce_requests_before_batches(version, timeout_ms, name, records):
    out = Encoder(flexible=False)
    out.int16(1)
    out.int32(timeout_ms)
    out.array_length(1)
    out.string(name)
    out.array_length(1)
    out.int32(5)
    out.bytes_(records)
    request = decode_produce_request(version, b"".join(out.parts))
    assert (request.transactional_id, request.acks) == (None, 1)
    [topic] = request.topic_data
    assert (topic.name, topic.topic_id) == (name, None)
    assert [(one.index, one.records) for one in topic.partition_data] == [(5, records)]


PARTITIONS = st.lists(st.tuples(INT32, INT64, INT32, INT32, INT32), max_size=5, unique_by=lambda one: one[0])


@given(st.integers(4, 18), st.tuples(POSITIVE, INT32, INT32), st.tuples(INT32, INT32, st.lists(INT32)), TOPICS,
       PARTITIONS)  # fmt: skip
def test_fetch_requests(version, limits, session, named, partitions):
    (wait, minimum, maximum), (session_id, epoch, forgotten), (name, topic_id) = limits, session, named
    topic = {"topic": name, "topic_id": topic_id}
    wanted = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": size, "current_leader_epoch": current,
         "last_fetched_epoch": last}
        for index, offset, size, current, last in partitions
    ]  # fmt: skip
    fields = {
        "replica_id": -1, "max_wait": wait, "min_bytes": minimum, "max_bytes": maximum, "isolation_level": 1,
        "session_id": session_id, "session_epoch": epoch, "topics": [topic | {"partitions": wanted}],
        "forgotten_topics_data": [topic | {"partitions": forgotten}], "rack_id": "r",
    }  # fmt: skip
    request = decode_fetch_request(version, encode(ApiKey.FETCH, version, Direction.REQUEST, fields))
    key = topic_id if version >= 13 else name
    assert request[:5] == (-1, wait, minimum, maximum, 1)
    assert (request.session_id, request.session_epoch) == ((session_id, epoch) if version >= 7 else (0, -1))
    assert request.wanted == {
        PartitionKey(key, index): FetchPartition(
            offset, size, current if version >= 9 else -1, last if version >= 12 else -1
        )
        for index, offset, size, current, last in partitions
    }  # fmt: skip
    assert request.forgotten == ([PartitionKey(key, index) for index in forgotten] if version >= 7 else [])


@given(st.integers(0, 3), NAMES, INT32, INT64, INT32)
def test_fetch_requests_before_batches(version, name, index, offset, size):
    out = Encoder(flexible=False)
    for value in (-1, 100, 1, *([5000] if version == 3 else [])):
        out.int32(value)
    out.array_length(1)
    out.string(name)
    out.array_length(1)
    out.int32(index)
    out.int64(offset)
    out.int32(size)
    request = decode_fetch_request(version, b"".join(out.parts))
    assert request[:4] == (-1, 100, 1, 5000 if version == 3 else 2**31 - 1)
    assert request.wanted == {PartitionKey(name, index): FetchPartition(offset, size)}


@settings(max_examples=300)
@given(st.sampled_from(CASES), st.binary(max_size=120))
def test_any_bytes_are_a_request_or_the_typed_error(case, body):
    decoder, version = case
    with suppress(MalformedRequestError):
        decoder(version, body)


@given(st.integers(0, 200), st.integers(0, 255), st.integers(3, 13))
def test_a_damaged_produce_request_is_one_or_the_typed_error(position, byte, version):
    partition = {"index": 0, "records": bytes(40)}
    fields = {"transactional_id": "t", "acks": 1, "timeout": 1,
              "topic_data": [{"name": "n", "topic_id": UUID(int=9), "partition_data": [partition] * 2}]}  # fmt: skip
    body = bytearray(encode(ApiKey.PRODUCE, version, Direction.REQUEST, fields))
    body[position % len(body)] = byte
    for decoder in (decode_produce_request, decode_without_copying):
        with suppress(MalformedRequestError):
            decoder(version, bytes(body))


@pytest.mark.parametrize(("decoder", "version"), CASES)
def test_a_request_that_is_cut_short_is_the_typed_error(decoder, version):
    with pytest.raises(MalformedRequestError):
        decoder(version, b"\x00\x00")


KIO_CASES = [(key, version) for key, versions in (
    (ApiKey.PRODUCE, range(3, 14)), (ApiKey.FETCH, range(4, 19)), (ApiKey.METADATA, range(14)),
    (ApiKey.API_VERSIONS, range(5)), (ApiKey.INIT_PRODUCER_ID, range(6)),
) for version in versions]  # fmt: skip


@settings(max_examples=300)
@given(st.sampled_from(KIO_CASES), st.binary(max_size=80))
def test_any_bytes_are_a_message_of_kio_or_the_typed_error(case, body):
    with suppress(MalformedRequestError):
        decode(*case, Direction.REQUEST, body)
