"""The messages of a controller, whose schemas are Millrace's own: they come back, and garbage is a typed error."""

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.errors import MalformedRequestError
from millrace.wire.api import ApiKey, is_flexible
from millrace.wire.cold import Direction, decode, encode
from millrace.wire.controller_apis import CONTROLLER_APIS
from millrace.wire.header import read_request_header
from millrace.wire.kio_schemas import schema
from millrace.wire.messages import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from millrace_broker.handlers.registry import APIS
from millrace_support.random_messages import random_fields, said
from millrace_support.random_requests import RequestFuzzer, UnknownTags
from millrace_support.random_words import Words

MESSAGES = [
    (ApiKey(key), version, direction)
    for key, api in CONTROLLER_APIS.items()
    for version in range(api.versions.minimum, api.versions.maximum + 1)
    for direction in Direction
]
NONE, MANY = 0.0, 0.9


@pytest.mark.parametrize(("key", "version", "direction"), MESSAGES, ids=lambda one: getattr(one, "name", one))
@settings(max_examples=15)
@given(random=st.randoms(use_true_random=False))
def test_a_message_comes_back(key, version, direction, random):
    _, fields = schema(key, version, direction)
    values = random_fields(random, fields)
    body = encode(key, version, direction, values)
    decoded = said(decode(key, version, direction, body), fields)
    assert decoded == values
    assert encode(key, version, direction, decoded) == body
    for end in {0, len(body) // 2, len(body) - 1}:
        with pytest.raises(MalformedRequestError):
            decode(key, version, direction, body[:end])


@pytest.mark.parametrize(("key", "version", "direction"), MESSAGES, ids=lambda one: getattr(one, "name", one))
@settings(max_examples=20)
@given(body=st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_typed_error(key, version, direction, body):
    with suppress(MalformedRequestError):
        decode(key, version, direction, body)


@pytest.mark.parametrize("key", CONTROLLER_APIS, ids=lambda key: ApiKey(key).name)
def test_a_damaged_request_is_a_message_or_a_typed_error(key):
    versions = CONTROLLER_APIS[key].versions
    fuzzer = RequestFuzzer(Random(int(key)), {key: versions}, Words())
    read = 0
    for _ in range(300):
        frame = memoryview(fuzzer.frame())
        try:
            header = read_request_header(frame)
            if header.api_key == key and header.api_version in versions:
                decode(key, header.api_version, Direction.REQUEST, frame[header.body_position :])
                read += 1
        except MalformedRequestError:
            pass
    assert read > 50


@pytest.mark.parametrize(
    ("key", "version"),
    [(key, version) for key, version, direction in MESSAGES
     if direction is Direction.REQUEST and is_flexible(key, version)],
    ids=lambda one: getattr(one, "name", one),
)  # fmt: skip
def test_tagged_fields_that_no_schema_has_are_passed_over(key, version):
    compared = 0
    for seed in range(20):
        fuzzers = [RequestFuzzer(Random(seed), {key: CONTROLLER_APIS[key].versions}, Words()) for _ in range(2)]
        plain, tagged = (
            bytes(fuzzer.whole(key, version, UnknownTags(Random(seed), likelihood))[0])
            for fuzzer, likelihood in zip(fuzzers, (NONE, MANY), strict=True)
        )
        try:
            expected = decode(key, version, Direction.REQUEST, body_of(plain))
        except MalformedRequestError:  # random text may be no UTF-8
            continue
        assert decode(key, version, Direction.REQUEST, body_of(tagged)) == expected
        compared += tagged != plain
    assert compared > 5


def body_of(frame):
    return frame[read_request_header(memoryview(frame)).body_position :]


def test_a_field_that_a_version_lacks_has_the_protocols_default():
    begin = {"controller_id": 1, "controller_epoch": 2}
    fields = {**begin, "ungrouped_partition_states": [], "live_leaders": []}
    request = LEADER_AND_ISR.decode_request(0, LEADER_AND_ISR.encode_request(0, fields))
    assert (request.broker_epoch, request.type, request.topic_states) == (-1, 0, ())
    assert request.is_kraft_controller is False
    fields = {**begin, "delete_partitions": True, "topics": [{"name": "t", "partition_indexes": [3]}]}
    request = STOP_REPLICA.decode_request(1, STOP_REPLICA.encode_request(1, fields))
    assert (request.topics[0].partition_indexes, request.topic_states, request.ungrouped_partitions) == ((3,), (), ())
    broker = {"id": 5, "v0_host": "h", "v0_port": 9}
    fields = {**begin, "ungrouped_partition_states": [], "live_brokers": [broker]}
    (broker,) = UPDATE_METADATA.decode_request(0, UPDATE_METADATA.encode_request(0, fields)).live_brokers
    assert (broker.v0_host, broker.v0_port, broker.endpoints, broker.rack) == ("h", 9, (), None)


def test_an_array_that_claims_billions_is_refused_before_room_is_taken_for_it():
    with pytest.raises(MalformedRequestError, match="can't have"):
        LEADER_AND_ISR.decode_request(7, bytes(18) + b"\xff\xff\xff\xff\x0f" + bytes(40))


def test_a_broker_alone_offers_none_of_them():
    assert not APIS.keys() & CONTROLLER_APIS.keys()
