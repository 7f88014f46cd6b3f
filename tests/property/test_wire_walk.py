"""The walk over a message against kio's decoder: they end at the same byte, and what the walk refuses is no message."""

import sys
from random import Random

import pytest
from kio.serial.errors import SerialError

from millrace.errors import MalformedRequestError
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.cold import Direction, _reader, decode
from millrace.wire.decoder import MAX_ELEMENTS
from millrace.wire.header import read_request_header
from millrace_broker.handlers.registry import APIS
from millrace_support.random_requests import RequestFuzzer
from millrace_support.random_words import Words

VERSIONS = {key: VersionRange(api.versions.minimum, api.versions.maximum) for key, api in APIS.items()}
FOUR_BILLION = b"\xff\xff\xff\xff\x0f"


@pytest.mark.parametrize("key", VERSIONS, ids=lambda key: ApiKey(key).name)
def test_the_walk_ends_where_the_decoder_does(key):
    fuzzer = RequestFuzzer(Random(int(key)), {key: VERSIONS[key]}, Words())
    walked = 0
    for _ in range(400):
        frame = fuzzer.frame()
        try:
            header = read_request_header(memoryview(frame))
        except MalformedRequestError:
            continue
        version, body = header.api_version, memoryview(frame)[header.body_position :]
        if header.api_key != key or version not in VERSIONS[key]:
            continue
        walk, read = _reader(key, version, Direction.REQUEST)
        try:
            body = walk(body, sys.maxsize)
        except ValueError:
            continue
        try:
            _, end = read(body, 0)
        except (SerialError, ValueError, OverflowError):
            continue
        walk(body[:end], sys.maxsize)
        if end:
            with pytest.raises(ValueError, match=r"null|length|elements|within|tagged"):
                walk(body[: end - 1], sys.maxsize)
        walked += 1
    assert walked > 50


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, FOUR_BILLION),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, b"\xff\xff\xff\xff\x7f"),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, b"\x7f\xff\xff\xff"),
        (ApiKey.PRODUCE, 9, bytes(7) + FOUR_BILLION),
        (ApiKey.FETCH, 12, bytes(21) + FOUR_BILLION),
        (ApiKey.FETCH, 17, bytes(21) + b"\x02" + bytes(16) + FOUR_BILLION),
        (ApiKey.METADATA, 12, FOUR_BILLION),
        (ApiKey.ALTER_REPLICA_LOG_DIRS, 2, b"\x02\x02a\x02\x02a" + FOUR_BILLION),
    ],
)
def test_an_array_that_claims_billions_is_refused_before_room_is_taken_for_it(key, version, body):
    with pytest.raises(MalformedRequestError, match="can't have"):
        decode(key, version, Direction.REQUEST, body + bytes(40))


def test_a_null_array_where_none_may_be_is_refused():
    with pytest.raises(MalformedRequestError, match="partitions is null"):
        decode(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, Direction.REQUEST, b"\x02\x02a\x02\x02a\x00\x00\x00\x00")


def test_a_request_of_more_elements_than_the_largest_cluster_has_is_refused():
    count = MAX_ELEMENTS + 1
    body = b"\x00\x00\x00\x01\x00\x01a\x00\x00\x00\x01\x00\x01a" + count.to_bytes(4, "big") + bytes(4 * count)
    with pytest.raises(MalformedRequestError, match="too many elements"):
        decode(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, Direction.REQUEST, body)
