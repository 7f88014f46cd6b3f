"""Fetch answers as a follower reads them: the same as kio reads, and no bytes that break the decoder."""

from random import Random
from uuid import UUID

import pytest

from millrace.errors import MalformedRequestError
from millrace.wire.fetch import (
    PartitionFetched,
    PartitionKey,
    TopicFetched,
    decode_fetch_response,
    encode_fetch_response,
)
from millrace.wire.messages import FETCH
from millrace.wire.metadata import LeaderHint

VERSIONS = range(13, 18)  # those that followers read by hand
IDS = [UUID(int=number) for number in range(1, 4)]
EXAMPLES = [
    [],
    [(IDS[0], [PartitionFetched(0, 0, 10, 9, 8, b"records")])],
    [
        (IDS[0], [PartitionFetched(3, 6, -1, -1, -1, b"", aborted=(), current_leader=LeaderHint(4, 5))]),
        (IDS[1], [PartitionFetched(0, 0, 1 << 40, 2, 3, b"", diverging_epoch=(4, 1 << 50))]),
        (IDS[2], [PartitionFetched(n, 0, n, n, n, bytes(n), aborted=[(7, 1), (8, 2)]) for n in range(200)]),
    ],
]


def encoded(version, example, **options):
    topics = [TopicFetched("", topic_id, partitions) for topic_id, partitions in example]
    return b"".join(encode_fetch_response(version, topics, **options))


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_is_read_as_it_was_written(version, example):
    body = encoded(version, example, error_code=71, session_id=99)
    answer = decode_fetch_response(body)
    assert (answer.error_code, answer.session_id) == (71, 99)
    expected = {
        PartitionKey(topic_id, one.partition_index): one._replace(aborted=None, current_leader=None)
        for topic_id, partitions in example
        for one in partitions
    }
    assert answer.fetched == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_kio_reads_the_same(version):
    body = encoded(version, EXAMPLES[-1])
    message = FETCH.decode_response(version, body)
    theirs = {
        PartitionKey(topic.topic_id, one.partition_index): (int(one.error_code), one.high_watermark, one.records)
        for topic in message.responses
        for one in topic.partitions
    }
    ours = decode_fetch_response(body).fetched
    assert {key: (one.error_code, one.high_watermark, one.records) for key, one in ours.items()} == theirs


def test_damaged_bytes_are_malformed_or_another_answer():
    chance = Random(5)
    body = encoded(17, EXAMPLES[-1])
    failures = 0
    for _ in range(2000):
        damaged = bytearray(body[: chance.choice([len(body), chance.randrange(len(body))])])
        for _ in range(chance.randrange(1, 4)):
            if damaged:
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            decode_fetch_response(bytes(damaged))
        except MalformedRequestError:
            failures += 1
    assert failures > 200
